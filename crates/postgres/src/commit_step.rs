//! `commit_step`: a turn and the end of the activities that caused it, in one transaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::ExecutionStatus;
use everturn_provider::store::{NextWork, StepAnswer, StepCommit, StepDecline, WorkFetch};
use everturn_provider::{Clock, ProviderError, TagFilter};

use crate::commit_queue::CommitQueue;
use crate::commit_turn::CommitTurn;
use crate::drawn_locks::{DrawnLocks, locked_before, shown_random};
use crate::engine_version::OWN_ENGINE;
use crate::fetch_work::{self, AssignedWork, ReadWork, WorkAnswer, WorkLock};
use crate::locks::row_of;
use crate::needs::{InstanceName, Needs};
use crate::operation::{BatchOrder, Run, Verb};
use crate::provider::PostgresProvider;
use crate::text::check_texts;
use crate::unit_of_work::{ExecutionImage, UnitOfWork};

/// A step as it is stored.
pub(crate) struct CommitStep {
    instance_id: String,
    /// The tokens of the activities that ended.
    ended: Vec<String>,
    /// What their workers can take next.
    next: Vec<Option<WorkLock>>,
    turn: CommitTurn,
    called_ms: i64,
    locks: Arc<DrawnLocks>,
}

/// What became of a step.
pub(crate) enum Stepped {
    /// With what the workers go on with.
    Committed(Vec<Option<AssignedWork>>),
    /// An earlier call was committed, and its caller did not learn of it.
    CommittedBefore,
    /// Nothing was written.
    Declined(StepDecline),
}

impl CommitStep {
    /// Encodes a step; refuses items that do not belong into their queue.
    pub(crate) fn encode(
        step: &StepCommit,
        clock: &dyn Clock,
        called_ms: i64,
        commits: &Arc<CommitQueue>,
    ) -> Result<Self, ProviderError> {
        check_texts(Self::NAME, [("the id of an instance", Some(step.instance.as_str()))])?;
        let tokens: HashSet<&str> = step.ended.iter().map(|ended| ended.lock_token.as_str()).collect();
        if tokens.len() != step.ended.len() {
            return Err(ProviderError::permanent(Self::NAME, "an activity ends twice in one step"));
        }
        let next = step.ended.iter().map(|ended| {
            let next = ended.next.as_ref()?;
            // Activities with tags are left to the worker's own fetch.
            let takes_untagged =
                matches!(next.fetch.tags, TagFilter::DefaultOnly | TagFilter::DefaultAnd(_) | TagFilter::Any);
            takes_untagged.then(|| WorkLock { random: next.random, lock_timeout: next.fetch.lock_timeout })
        });
        let next: Vec<Option<WorkLock>> = next.collect();
        let randoms = next.iter().flatten().map(|lock| shown_random(lock.random)).collect();
        Ok(Self {
            locks: Arc::new(DrawnLocks::new(Arc::clone(commits), randoms)),
            instance_id: step.instance.clone(),
            ended: step.ended.iter().map(|ended| ended.lock_token.clone()).collect(),
            next,
            turn: CommitTurn::encode(Self::NAME, &step.turn, clock, called_ms)?,
            called_ms,
        })
    }

    /// Whether every ended activity is there and locked by its token.
    fn holds_all(&self, unit: &UnitOfWork) -> bool {
        self.ended.iter().all(|token| {
            let activity = row_of(token).and_then(|seq| unit.activities.get(&seq));
            activity.is_some_and(|activity| activity.lock.check(token, self.called_ms).is_ok())
        })
    }

    /// Notes the row of the execution, if it was not read: that of the current one is known from its instance.
    fn note_execution(&self, unit: &mut UnitOfWork, key: i64) {
        let Some(instance) = unit.instances.get(&key) else { return };
        let status = instance.status.clone().unwrap_or_else(|| ExecutionStatus::Running.as_str().to_owned());
        let execution = ExecutionImage { status, pin: None, events: instance.events };
        unit.executions.entry((key, self.turn.execution_id)).or_insert(execution);
    }

    /// Removes the ended activities.
    fn end_activities(&self, unit: &mut UnitOfWork) {
        for seq in self.ended.iter().filter_map(|token| row_of(token)) {
            let Some(activity) = unit.activities.remove(&seq) else { continue };
            unit.writes.touch_sessions.extend(activity.session_id);
            unit.writes.delete_activities.push(seq);
        }
    }
}

impl Verb for CommitStep {
    type Answer = Stepped;
    const NAME: &'static str = "commit_step";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        self.turn.bytes()
    }

    fn needs(&self, needs: &mut Needs) {
        needs.ids.insert(self.instance_id.clone());
        needs.activities.extend(self.ended.iter().filter_map(|token| row_of(token)));
        needs.workers += self.next.iter().flatten().count();
        if self.turn.pins_a_version() {
            needs.executions_by_id.push((self.instance_id.clone(), self.turn.execution_id));
        }
        self.turn.needs_of_turn(needs, InstanceName::Id(self.instance_id.clone()));
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<Stepped, ProviderError> {
        let declined = |reason| Ok(Stepped::Declined(reason));
        let instance = unit.key_of(&self.instance_id).and_then(|key| unit.instances.get(&key));
        let Some(instance) = instance else { return declined(StepDecline::HistoryMoved) };
        let key = instance.key;
        if instance.stamp == Some(self.turn.stamp.0.cast_signed()) {
            return Ok(Stepped::CommittedBefore);
        }
        if !self.turn.builds_on(instance.stamp)
            || instance.current_execution_id != Some(self.turn.execution_id)
        {
            return declined(StepDecline::HistoryMoved);
        }
        let is_held_back = instance.is_paused || instance.needs_engine > OWN_ENGINE;
        if instance.delayed_until_ms.is_some() || is_held_back || instance.lock.token.is_some() {
            return declined(StepDecline::Locked);
        }
        if instance.ready_seq.is_some() || instance.latest_arrival_ms.is_some() {
            return declined(StepDecline::MessagesWaiting);
        }
        self.turn.check_new_events(unit, key)?;
        if !self.holds_all(unit) {
            return declined(StepDecline::WorkGone);
        }
        self.end_activities(unit);
        self.note_execution(unit, key);
        self.turn.write(unit, key);
        Ok(Stepped::Committed(self.next.iter().map(|lock| unit.assign_ready(lock.as_ref()?)).collect()))
    }

    fn committed(&self, answer: &Stepped) {
        if matches!(answer, Stepped::Committed(_)) {
            self.turn.check_in();
        }
    }
}

/// Commits a step. Its workers go on with what it has locked for them, also if an earlier call did that.
pub(crate) async fn commit(
    provider: &PostgresProvider,
    step: &StepCommit,
) -> Result<StepAnswer, ProviderError> {
    let verb = CommitStep::encode(step, provider.clock(), provider.now_ms(), provider.commits())?;
    let (locks, next) = (Arc::clone(&verb.locks), verb.next.clone());
    let assigned = match provider.call(verb).await? {
        Stepped::Declined(reason) => {
            locks.settle();
            return Ok(StepAnswer::Declined(reason));
        }
        Stepped::Committed(assigned) => assigned,
        // The step is committed whatever becomes of this: a worker without an activity fetches one.
        Stepped::CommittedBefore => match locked_before(provider, &next).await {
            Ok(assigned) => assigned,
            Err(_unreadable) => return Ok(StepAnswer::Committed(next.iter().map(|_| None).collect())),
        },
    };
    let answer = |work| WorkAnswer::new(work, provider.commits());
    let answers: Vec<Option<WorkAnswer>> = assigned.into_iter().map(|work| work.map(answer)).collect();
    locks.settle();
    let mut read = Vec::with_capacity(answers.len());
    for (answer, ended) in answers.into_iter().zip(&step.ended) {
        read.push(match &ended.next {
            Some(next) => next_work(provider, answer, next).await,
            None => None,
        });
    }
    let next = read.into_iter().map(|work| work.map(|work| work.handed_out(provider.clock()))).collect();
    Ok(StepAnswer::Committed(next))
}

/// What the worker of an ended activity goes on with.
async fn next_work(
    provider: &PostgresProvider,
    answer: Option<WorkAnswer>,
    next: &NextWork,
) -> Option<ReadWork> {
    match answer {
        Some(answer) => fetch_work::decode(provider, answer, next.fetch.lock_timeout).await.ok().flatten(),
        // The step gives no activities of sessions.
        None if next.fetch.session.is_some() => {
            let mut look = WorkFetch::clone(&next.fetch).with_work_max(1);
            look.poll_timeout = Duration::ZERO;
            fetch_work::read(provider, &look).await.ok()?.pop()
        }
        None => None,
    }
}
