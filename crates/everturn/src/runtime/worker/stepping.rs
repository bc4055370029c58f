//! Ending an activity in a fused step, if its instance is in memory here.

use std::sync::Arc;

use everturn_core::WorkItem;
use everturn_provider::store::{Feature, NextWork};

use super::super::dispatcher::run_step::{StepLeader, run_step};
use super::super::steps::{EndedActivity, Entered, StepNews, TakenWork};
use super::WorkerSlot;
use super::activity::LockedWork;

/// How an ended activity was committed.
pub(super) enum StepEnd {
    /// With a turn of its instance; the worker goes on with this activity.
    Committed(Option<Box<TakenWork>>),
    /// Not yet: its outcome must be stored.
    NotFused(WorkItem),
}

impl WorkerSlot {
    /// Commits the outcome of an activity together with the turn that it causes, if the instance is in memory here.
    pub(super) async fn end_in_step(&self, work: &LockedWork, completion: WorkItem) -> StepEnd {
        let (node, item) = (&self.node, &work.item);
        // An activity that was tried before is stored first: the turn on its outcome may be what ended the process.
        let may_fuse = item.attempt_count <= 1
            && node.store.supports(Feature::FusedSteps)
            && node.warm.start_of(&item.instance, item.execution_id, item.id).is_some();
        if !may_fuse {
            return StepEnd::NotFused(completion);
        }
        let ended = Arc::new(EndedActivity {
            execution_id: item.execution_id,
            activity_id: item.id,
            completion,
            lock_token: item.token.clone(),
            next: self.next_fetch(),
        });
        let mut news = match node.steps.enter(&item.instance, &ended) {
            Entered::Leads(lead) => StepNews::Lead(lead),
            // If the leader was aborted or panicked and its step is committed, the store says that the lock is lost.
            Entered::Waits(news) => news.await.unwrap_or(StepNews::NotFused),
            Entered::NotFused => StepNews::NotFused,
        };
        if let StepNews::Lead(lead) = news {
            let leader = StepLeader { node, worker_id: &self.worker_id, ended: &ended, lock: &work.lock };
            news = run_step(leader, lead).await;
        }
        match news {
            StepNews::Committed(next) => StepEnd::Committed(next),
            StepNews::NotFused | StepNews::Lead(_) => {
                let completion = Arc::try_unwrap(ended).map(|ended| ended.completion);
                StepEnd::NotFused(completion.unwrap_or_else(|shared| shared.completion.clone()))
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
