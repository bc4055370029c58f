//! Ending an activity in a fused step, if its instance is in memory here.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::{Feature, NextWork};
use tokio::time::timeout;

use super::super::dispatcher::run_step::{StepLeader, run_step};
use super::super::steps::{EndedActivity, Entered, StepNews, TakenWork};
use super::WorkerSlot;
use super::activity::LockedWork;

/// How an ended activity was committed.
pub(super) enum StepEnd {
    /// With a turn of its instance; the worker goes on with this activity.
    Committed(Option<Box<TakenWork>>),
    /// Not yet: its outcome must be stored.
    NotFused {
        completion: WorkItem,
        /// Whether another step of its instance went on meanwhile, and may have cancelled the activity.
        has_waited: bool,
    },
}

/// How long an outcome waits for another step of its instance. A store may hang.
const WAITS_MAX: Duration = Duration::from_secs(10);

impl WorkerSlot {
    /// Commits the outcome of an activity together with the turn that it causes, if the instance is in memory here.
    pub(super) async fn end_in_step(&self, work: &LockedWork, completion: WorkItem) -> StepEnd {
        let (node, item) = (&self.node, &work.item);
        // An activity that was tried before is stored first: the turn on its outcome may be what ended the process.
        let may_fuse = item.attempt_count <= 1
            && node.store.supports(Feature::FusedSteps)
            && node.warm.start_of(&item.instance, item.execution_id, item.id).is_some();
        if !may_fuse {
            return StepEnd::NotFused { completion, has_waited: false };
        }
        let ended = Arc::new(EndedActivity {
            execution_id: item.execution_id,
            activity_id: item.id,
            completion,
            lock_token: item.token.clone(),
            next: self.next_fetch(),
        });
        let (mut news, has_waited) = match node.steps.enter(&item.instance, &ended) {
            Entered::Leads(lead) => (StepNews::Lead(lead), false),
            // If the leader was aborted, panicked or hangs and its step is committed, the store says that the lock is lost.
            Entered::Waits(news) => {
                let news = timeout(WAITS_MAX, news).await.ok().and_then(Result::ok);
                (news.unwrap_or(StepNews::NotFused), true)
            }
            Entered::NotFused => (StepNews::NotFused, false),
        };
        if let StepNews::Lead(lead) = news {
            let leader = StepLeader { node, worker_id: &self.worker_id, ended: &ended, lock: &work.lock };
            news = run_step(leader, lead).await;
        }
        match news {
            StepNews::Committed(next) => StepEnd::Committed(next),
            StepNews::NotFused | StepNews::Lead(_) => {
                let completion = Arc::try_unwrap(ended).map(|ended| ended.completion);
                let completion = completion.unwrap_or_else(|shared| shared.completion.clone());
                StepEnd::NotFused { completion, has_waited }
            }
        }
    }

    /// What this slot can run next; `None` if it stops.
    #[inline]
    fn next_fetch(&self) -> Option<NextWork> {
        let random = || self.node.clock().random_u128();
        (!self.stop.is_cancelled())
            .then(|| NextWork::new(Arc::clone(self.fetch_for(self.node.sessions.fullness())), random()))
    }
}
