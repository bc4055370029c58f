//! `commit_step`: a turn and the end of the activities that caused it, in one transaction.

use everturn_provider::encoded::EventCounts;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use everturn_provider::store::{StepAnswer, StepCommit, StepDecline};
use everturn_provider::{Clock, ProviderError, TagFilter};
use rusqlite::OptionalExtension;
use tokio::sync::oneshot;

use crate::columns;
use crate::commit_turn::{CommitTurn, CommittedInstance};
use crate::engine_version::OWN_ENGINE;
use crate::fetch_work::{self, WorkAnswer};
use crate::history;
use crate::locks::{self, StoredLock, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::parked_fetches::ParkedWorkFetch;
use crate::provider::SqliteProvider;
use crate::sessions;
use crate::settle_work;

/// A step as it is stored.
pub(crate) struct CommitStep {
    instance_id: String,
    /// The tokens of the activities that ended.
    ended: Vec<String>,
    turn: CommitTurn,
    /// The fetches of the workers whose activities ended. They are parked when the step has been written.
    fetches: Mutex<Vec<ParkedWorkFetch>>,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stepped {
    Committed,
    /// An earlier call was committed, and its caller did not learn of it.
    CommittedBefore,
    /// Nothing was written.
    Declined(StepDecline),
}

// The row of the execution is read only if the turn pins a version.
const SELECT_FENCE: &str = "SELECT i.instance_key, i.turn_stamp, i.lock_token, i.locked_until_ms, \
     i.delayed_until_ms IS NOT NULL, i.created_at_ms IS NOT NULL, i.startable, i.current_execution_id, i.status, \
     CASE WHEN ?3 THEN (SELECT e.pinned_engine_version FROM everturn_executions AS e \
         WHERE e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id) END, \
     i.event_count, i.event_bytes, i.last_event_id, \
     i.ready_seq IS NOT NULL OR EXISTS (SELECT 1 FROM everturn_orchestrator_queue AS q \
         WHERE q.instance_key = i.instance_key AND q.visible_at_ms <= ?2), \
     i.needs_engine > ?4 OR i.paused_at_ms IS NOT NULL \
     FROM everturn_instances AS i WHERE i.instance_id = ?1";

/// What must hold for a step.
struct Fence {
    key: i64,
    instance: CommittedInstance,
    is_delayed: bool,
    has_messages: bool,
    /// It is paused, or only a newer engine may take its turns.
    is_held_back: bool,
}

impl CommitStep {
    /// Encodes a step; refuses items that do not belong into their queue.
    pub(crate) fn encode(
        step: &StepCommit,
        clock: &dyn Clock,
        fetches: Vec<ParkedWorkFetch>,
    ) -> Result<Self, ProviderError> {
        let tokens: HashSet<&str> = step.ended.iter().map(|ended| ended.lock_token.as_str()).collect();
        if tokens.len() != step.ended.len() {
            return Err(ProviderError::permanent(Self::NAME, "an activity ends twice in one step"));
        }
        Ok(Self {
            fetches: Mutex::new(fetches),
            instance_id: step.instance.clone(),
            ended: step.ended.iter().map(|ended| ended.lock_token.clone()).collect(),
            turn: CommitTurn::encode(<Self as Verb>::NAME, &step.turn, clock)?,
        })
    }

    fn fence(&self, scope: &Scope<'_>) -> Result<Option<Fence>, VerbFailure> {
        let mut select = scope.conn.prepare_cached(SELECT_FENCE)?;
        let pins = self.turn.pins_a_version();
        let wanted = rusqlite::params![self.instance_id, scope.now.wall_ms, pins, OWN_ENGINE];
        let found = select.query_row(wanted, |row| {
            let status = columns::text(row, 8)?;
            Ok(Fence {
                key: row.get(0)?,
                instance: CommittedInstance {
                    id: self.instance_id.clone(),
                    stamp: row.get(1)?,
                    lock: StoredLock::of(row, 2)?,
                    created: row.get(5)?,
                    startable: row.get(6)?,
                    current_execution_id: columns::integer(row, 7)?,
                    execution_status: status.clone(),
                    status,
                    pin: columns::text(row, 9)?,
                    current_events: history::counts_of(row, 10)?,
                    other_events: EventCounts::default(),
                },
                is_delayed: row.get(4)?,
                has_messages: row.get(13)?,
                is_held_back: columns::flag(row, 14)?,
            })
        });
        Ok(found.optional()?)
    }

    /// Parks the fetches of the workers whose activities ended.
    fn park_fetches(&self, scope: &mut Scope<'_>) {
        scope.effects.fetches.append(&mut self.fetches.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether every ended activity is there and locked by its token.
    fn holds_all(&self, scope: &Scope<'_>) -> Result<bool, VerbFailure> {
        for token in &self.ended {
            let Some(seq) = row_of(token) else { return Ok(false) };
            let Some((lock, _session)) = locks::work_lock(scope, seq)? else { return Ok(false) };
            match locks::check(scope, &lock, token, self.turn.called) {
                Ok(()) => {}
                Err(VerbFailure::Refused(_)) => return Ok(false),
                Err(storage) => return Err(storage),
            }
        }
        Ok(true)
    }

    /// Removes the ended activities. Returns false, and has removed nothing, if one of them is gone or its lock is lost.
    ///
    /// Fails if one whose lock was checked cannot be removed, because its row is damaged: others may be removed by then, and
    /// must come back.
    fn end_activities(&self, scope: &mut Scope<'_>) -> Result<bool, VerbFailure> {
        let is_alive = |token: &String| locks::own_clock_says(scope, token, self.turn.called) == Some(true);
        // The deletion of a single one checks its token itself.
        let is_checked = matches!(self.ended.as_slice(), [token] if is_alive(token));
        if !is_checked && !self.holds_all(scope)? {
            return Ok(false);
        }
        for token in &self.ended {
            let Some(seq) = row_of(token) else { return Ok(false) };
            let Some(session) = settle_work::delete_locked(scope, seq, token)? else {
                return if is_checked { Ok(false) } else { Err(unknown_token(token)) };
            };
            sessions::note_activity(scope, session.as_deref())?;
            scope.effects.released.push(token.clone());
        }
        Ok(true)
    }
}

impl Verb for CommitStep {
    type Answer = Stepped;
    const NAME: &'static str = "commit_step";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        self.turn.payload_bytes()
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<Stepped, VerbFailure> {
        let Some(fence) = self.fence(scope)? else {
            return Ok(Stepped::Declined(StepDecline::HistoryMoved));
        };
        let Fence { key, instance, is_delayed, has_messages, is_held_back } = fence;
        if instance.stamp == Some(self.turn.stamp.0.cast_signed()) {
            self.park_fetches(scope);
            return Ok(Stepped::CommittedBefore);
        }
        if !self.turn.builds_on(&instance) || instance.current_execution_id != Some(self.turn.execution_id) {
            return Ok(Stepped::Declined(StepDecline::HistoryMoved));
        }
        if is_delayed || is_held_back || instance.lock.token.is_some() {
            return Ok(Stepped::Declined(StepDecline::Locked));
        }
        if has_messages {
            return Ok(Stepped::Declined(StepDecline::MessagesWaiting));
        }
        self.turn.check_new_events(scope, key, &instance)?;
        if !self.end_activities(scope)? {
            return Ok(Stepped::Declined(StepDecline::WorkGone));
        }
        self.turn.write(scope, key, instance)?;
        self.park_fetches(scope);
        Ok(Stepped::Committed)
    }

    fn committed(&self, answer: &Stepped) {
        if *answer == Stepped::Committed {
            self.turn.committed(&());
        }
    }
}

/// The next activity of a worker, when the writer has assigned one.
type NextAnswer = oneshot::Receiver<Result<Option<WorkAnswer>, ProviderError>>;

/// Commits a step, and fetches for the workers of its activities in the same batch.
pub(crate) async fn commit(
    provider: &SqliteProvider,
    step: &StepCommit,
) -> Result<StepAnswer, ProviderError> {
    let (mut fetches, mut answers) = (Vec::new(), Vec::<Option<NextAnswer>>::new());
    for ended in &step.ended {
        let next = ended.next.as_ref().filter(|next| next.fetch.tags != TagFilter::None);
        answers.push(next.map(|next| {
            let (reply, answer) = oneshot::channel();
            fetches.push(ParkedWorkFetch::of_step(&next.fetch, reply));
            answer
        }));
    }
    let stepped = match provider.call(CommitStep::encode(step, provider.clock(), fetches)?).await {
        Err(error) if error.is_lock_lost() => Stepped::Declined(StepDecline::WorkGone),
        stepped => stepped?,
    };
    match stepped {
        Stepped::Declined(reason) => Ok(StepAnswer::Declined(reason)),
        Stepped::Committed | Stepped::CommittedBefore => {
            let mut assigned = Vec::with_capacity(answers.len());
            for answer in answers {
                // The step is committed whatever becomes of this: a worker without an activity fetches one.
                assigned.push(match answer {
                    Some(answer) => answer.await.ok().and_then(Result::ok).flatten(),
                    None => None,
                });
            }
            let mut next = Vec::with_capacity(assigned.len());
            for (work, ended) in assigned.into_iter().zip(&step.ended) {
                next.push(match (work, &ended.next) {
                    (Some(work), Some(next)) => {
                        fetch_work::decode(provider, work, next.fetch.lock_timeout).await.unwrap_or_default()
                    }
                    _ => None,
                });
            }
            Ok(StepAnswer::Committed(next))
        }
    }
}
