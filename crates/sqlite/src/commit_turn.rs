//! `commit_turn`: everything that a turn decided, in one transaction.

use std::time::Duration;

use everturn_core::{Event, EventKind, ExecutionStatus};
use everturn_provider::store::{CheckIn, ExecutionUpdate, Stamp, TurnCommit};
use everturn_provider::{Clock, ProviderError, ScheduledActivityIdentifier};
use rusqlite::{OptionalExtension, params};

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::history::{self, HistoryDelta};
use crate::kv::{self, KvChange};
use crate::locks::{self, StoredLock, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue::{self, StoredMessage};
use crate::totals::TotalsChange;
use crate::unknown_instance;
use crate::worker_queue::StoredActivity;

/// A turn as it is stored.
pub(crate) struct CommitTurn {
    lock_token: String,
    execution_id: i64,
    delta: HistoryDelta,
    kv_changes: Vec<KvChange>,
    custom_status: Option<Option<String>>,
    activities: Vec<StoredActivity>,
    /// Each with how long it stays invisible; a timer becomes visible at its fire time.
    messages: Vec<(StoredMessage, Option<Duration>)>,
    update: ExecutionUpdate,
    cancelled: Vec<(String, i64, i64)>,
    base: Option<Stamp>,
    stamp: Stamp,
    check_in: Option<CheckIn>,
    payload_bytes: usize,
    called: ClockReading,
}

impl CommitTurn {
    /// Encodes a turn; refuses items that do not belong into their queue.
    pub(crate) fn encode(commit: &TurnCommit, clock: &dyn Clock) -> Result<Self, ProviderError> {
        let operation = <Self as Verb>::NAME;
        let delta = HistoryDelta::encode(operation, &commit.history_delta)?;
        let activities = commit.worker_items.iter().map(|work| StoredActivity::encode(operation, &work.item));
        let activities = activities.collect::<Result<Vec<_>, _>>()?;
        let messages = commit
            .orchestrator_items
            .iter()
            .map(|message| Ok((StoredMessage::encode(operation, message)?, message.delay)))
            .collect::<Result<Vec<_>, ProviderError>>()?;
        let payload_bytes = delta.bytes()
            + activities.iter().map(StoredActivity::bytes).sum::<usize>()
            + messages.iter().map(|(message, _)| message.work_item.len()).sum::<usize>();
        Ok(Self {
            lock_token: commit.lock_token.clone(),
            execution_id: history::stored_id(operation, "execution id", commit.execution_id)?,
            kv_changes: commit.history_delta.iter().filter_map(KvChange::of).collect(),
            custom_status: last_custom_status(&commit.history_delta),
            delta,
            activities,
            messages,
            update: commit.update.clone(),
            cancelled: commit.cancelled_activities.iter().filter_map(stored_identity).collect(),
            base: commit.base,
            stamp: commit.stamp.unwrap_or_else(|| drawn_stamp(clock)),
            check_in: commit.check_in.clone(),
            payload_bytes,
            called: ClockReading::of(clock),
        })
    }
}

fn drawn_stamp(clock: &dyn Clock) -> Stamp {
    Stamp(u64::try_from(clock.random_u128() >> 64).unwrap_or(0))
}

fn last_custom_status(events: &[Event]) -> Option<Option<String>> {
    events.iter().rev().find_map(|event| match &event.kind {
        EventKind::CustomStatusUpdated { status } => Some(status.clone()),
        _ => None,
    })
}

/// The identity as it is stored; an identity that does not fit into the table has no row.
fn stored_identity(activity: &ScheduledActivityIdentifier) -> Option<(String, i64, i64)> {
    let execution_id = i64::try_from(activity.execution_id).ok()?;
    let activity_id = i64::try_from(activity.activity_id).ok()?;
    Some((activity.instance.clone(), execution_id, activity_id))
}

const SELECT_INSTANCE: &str = "SELECT i.instance_id, i.lock_token, i.locked_until_ms, i.turn_stamp, \
     i.created_at_ms IS NOT NULL, i.startable, i.current_execution_id, c.status, \
     CASE WHEN i.current_execution_id = ?2 THEN c.status ELSE (SELECT e.status FROM executions AS e \
         WHERE e.instance_key = ?1 AND e.execution_id = ?2) END \
     FROM instances AS i LEFT JOIN executions AS c \
     ON c.instance_key = i.instance_key AND c.execution_id = i.current_execution_id WHERE i.instance_key = ?1";
const DELETE_TAGGED: &str =
    "DELETE FROM orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const NAME_INSTANCE: &str = "UPDATE instances SET orchestration_name = ?2, orchestration_version = ?3 \
     WHERE instance_key = ?1 AND (orchestration_name <> ?2 OR orchestration_version <> ?3)";
const END_EXECUTION: &str = "UPDATE executions SET status = ?3, output = ?4, \
     completed_at_ms = CASE WHEN ?3 = 'Running' THEN NULL ELSE ?5 END WHERE instance_key = ?1 AND execution_id = ?2";
const SET_CUSTOM_STATUS: &str = "UPDATE instances SET custom_status = ?2, \
     custom_status_version = min(custom_status_version, 4611686018427387903) + 1 WHERE instance_key = ?1";
const CANCEL_ACTIVITY: &str =
    "DELETE FROM worker_queue WHERE instance_id = ?1 AND execution_id = ?2 AND activity_id = ?3";
const MARK_STARTABLE: &str = "UPDATE instances SET startable = 1 WHERE instance_key = ?1";
const OLDEST_MESSAGE: &str =
    "SELECT min(seq) FROM orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms <= ?2";
const RELEASE: &str = "UPDATE instances SET turn_stamp = ?2, updated_at_ms = ?3, startable = ?4, \
     current_execution_id = CASE WHEN created_at_ms IS NOT NULL THEN max(current_execution_id, ?5) END, \
     lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = ?6, \
     delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL WHERE instance_key = ?1";
const CREATE_AND_RELEASE: &str = "UPDATE instances SET orchestration_name = ?6, orchestration_version = ?7, \
     parent_instance_id = ?8, created_at_ms = ?3, current_execution_id = ?4, startable = 1, \
     turn_stamp = ?2, updated_at_ms = ?3, \
     lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = ?5, \
     delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL WHERE instance_key = ?1";

/// The instance row, as far as a commit needs it.
struct CommittedInstance {
    id: String,
    lock: StoredLock,
    stamp: Option<i64>,
    created: bool,
    startable: bool,
    current_execution_id: Option<i64>,
    /// The status of its current execution.
    status: Option<String>,
    /// The status of the execution that the turn belongs to; `None` if that does not exist.
    execution_status: Option<String>,
}

impl Verb for CommitTurn {
    type Answer = ();
    const NAME: &'static str = "commit_turn";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let token = &self.lock_token;
        let key = row_of(token).ok_or_else(|| unknown_token(token))?;
        let instance = find(scope, key, self.execution_id)?.ok_or_else(|| unknown_token(token))?;
        locks::check(scope, &instance.lock, token, self.called)?;
        if let Some(base) = self.base
            && instance.stamp != Some(base.0.cast_signed())
        {
            let message = format!(
                "committing turn of {}: its history is not the one the turn was built on",
                instance.id
            );
            return Err(ProviderError::history_moved("", message).into());
        }
        history::check_new(scope.conn, key, self.execution_id, &self.delta)?;
        scope.conn.prepare_cached(DELETE_TAGGED)?.execute([key])?;
        self.write_execution(scope, key)?;
        let names = self.names();
        // Once the first execution has a start event, messages need no start message among them.
        let startable =
            instance.startable || names.is_some() || (self.delta.has_start() && self.execution_id == 1);
        if startable && !instance.startable && self.cancels(&instance.id) {
            // The turn makes the instance, so its cancellation is kept.
            scope.conn.prepare_cached(MARK_STARTABLE)?.execute([key])?;
        }
        self.write_queues(scope)?;
        let oldest: Option<i64> = if startable {
            let now_ms = scope.now.wall_ms;
            scope.conn.prepare_cached(OLDEST_MESSAGE)?.query_row([key, now_ms], |row| row.get(0))?
        } else {
            None
        };
        let stamp = self.stamp.0.cast_signed();
        let now_ms = scope.now.wall_ms;
        match names {
            Some((name, version)) if !instance.created => {
                let parent = &self.update.parent_instance_id;
                scope.conn.prepare_cached(CREATE_AND_RELEASE)?.execute(params![
                    key,
                    stamp,
                    now_ms,
                    self.execution_id,
                    oldest,
                    name,
                    version,
                    parent
                ])?;
            }
            _ => {
                if let Some((name, version)) = names {
                    scope.conn.prepare_cached(NAME_INSTANCE)?.execute(params![key, name, version])?;
                }
                scope.conn.prepare_cached(RELEASE)?.execute(params![
                    key,
                    stamp,
                    now_ms,
                    startable,
                    self.execution_id,
                    oldest
                ])?;
            }
        }
        scope.effects.totals.add(self.totals(&instance));
        self.note_unawaited_timers(scope, key, &instance)?;
        scope.effects.turn_is_ready(oldest);
        if !startable {
            unknown_instance::refresh_unstarted(scope.conn, key)?;
            orchestrator_queue::refresh(scope, key)?;
        }
        scope.effects.ended_turns.insert(key);
        scope.effects.released.push(token.clone());
        if self.is_visible() {
            scope.effects.touched.push(instance.id);
        }
        Ok(())
    }

    fn committed(&self) {
        if let Some(check_in) = &self.check_in {
            check_in();
        }
    }
}

impl CommitTurn {
    /// Whether a client that watches the instance could see a difference. Most turns change nothing that clients see.
    fn is_visible(&self) -> bool {
        self.update.status.is_some()
            || self.delta.has_outcome()
            || self.custom_status.is_some()
            || !self.kv_changes.is_empty()
    }

    /// Whether the turn sends a cancellation to this instance.
    fn cancels(&self, instance_id: &str) -> bool {
        self.messages.iter().any(|(message, _)| message.is_cancel && message.instance_id == instance_id)
    }

    /// Timers of the execution that the turn ends, and of executions before the one that is now current, are awaited no more.
    fn note_unawaited_timers(
        &self,
        scope: &Scope<'_>,
        key: i64,
        instance: &CommittedInstance,
    ) -> Result<(), VerbFailure> {
        let has_ended = self.update.status.is_some_and(|status| status != ExecutionStatus::Running);
        let exists = instance.created || self.names().is_some();
        let is_later = self.execution_id > instance.current_execution_id.unwrap_or(1);
        let supersedes = exists && is_later;
        if !(has_ended || supersedes) {
            return Ok(());
        }
        // An instance that no turn has named has no current execution.
        let first = if exists { i64::MIN } else { self.execution_id };
        let before = self.execution_id.saturating_add(i64::from(has_ended));
        orchestrator_queue::note_unawaited(scope.conn, key, first..before)
    }

    /// How the turn changes the totals.
    fn totals(&self, instance: &CommittedInstance) -> TotalsChange {
        let mut change = TotalsChange::default();
        change.events += self.delta.count();
        change.executions += i64::from(instance.execution_status.is_none());
        let status = self.update.status.map(ExecutionStatus::as_str);
        let status = status.or(instance.execution_status.as_deref()).unwrap_or("Running");
        if instance.created {
            // A turn of an earlier execution leaves the current one as it is.
            if instance.current_execution_id.is_none_or(|current| self.execution_id >= current) {
                change.instance_moves(instance.status.as_deref(), Some(status));
            }
        } else if self.names().is_some() {
            change.instances += 1;
            change.instance_moves(None, Some(status));
        }
        change
    }

    /// The name and version that the turn gives the instance.
    fn names(&self) -> Option<(&str, &str)> {
        self.update.orchestration_name.as_deref().zip(self.update.orchestration_version.as_deref())
    }

    fn write_execution(&self, scope: &Scope<'_>, key: i64) -> Result<(), VerbFailure> {
        let conn = scope.conn;
        let pin = self.update.pinned_engine_version.as_ref().map(ToString::to_string);
        history::append(conn, key, self.execution_id, scope.now.wall_ms, &self.delta, pin)?;
        if let Some(status) = &self.custom_status {
            conn.prepare_cached(SET_CUSTOM_STATUS)?.execute(params![key, status])?;
        }
        kv::apply(conn, key, &self.kv_changes)?;
        if let Some(status) = self.update.status {
            conn.prepare_cached(END_EXECUTION)?.execute(params![
                key,
                self.execution_id,
                status.as_str(),
                self.update.output,
                scope.now.wall_ms
            ])?;
            if status != ExecutionStatus::Running {
                kv::merge(conn, key)?;
            }
        }
        Ok(())
    }

    fn write_queues(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        for activity in &self.activities {
            activity.insert(scope)?;
        }
        let mut cancel = scope.conn.prepare_cached(CANCEL_ACTIVITY)?;
        for (instance_id, execution_id, activity_id) in &self.cancelled {
            let removed = cancel.execute(params![instance_id, execution_id, activity_id])?;
            scope.effects.removed |= removed > 0;
        }
        for (message, delay) in &self.messages {
            let fire_at_ms = message.timer.map(|timer| timer.fire_at_ms);
            let visible_at_ms = fire_at_ms.or_else(|| delay.map(|delay| scope.now.wall_after(delay)));
            orchestrator_queue::insert(scope, message, visible_at_ms)?;
        }
        Ok(())
    }
}

fn find(scope: &Scope<'_>, key: i64, execution_id: i64) -> Result<Option<CommittedInstance>, VerbFailure> {
    Ok(scope
        .conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([key, execution_id], |row| {
            Ok(CommittedInstance {
                id: columns::text(row, 0)?.unwrap_or_default(),
                lock: StoredLock::of(row, 1)?,
                stamp: row.get(3)?,
                created: row.get(4)?,
                startable: row.get(5)?,
                current_execution_id: columns::integer(row, 6)?,
                status: columns::text(row, 7)?,
                execution_status: columns::text(row, 8)?,
            })
        })
        .optional()?)
}
