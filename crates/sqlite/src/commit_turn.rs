//! `commit_turn`: everything that a turn decided, in one transaction.

use everturn_provider::encoded::{
    EventCounts, HistoryDelta, KvChange, StoredActivity, StoredMessage, stored_id,
};
use std::time::Duration;

use everturn_core::{Event, EventKind, ExecutionStatus};
use everturn_provider::store::{CheckIn, ExecutionUpdate, Stamp, TurnCommit};
use everturn_provider::{Clock, ProviderError, ScheduledActivityIdentifier};
use rusqlite::{OptionalExtension, params};

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::history;
use crate::kv;
use crate::locks::{self, StoredLock, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;
use crate::totals::TotalsChange;
use crate::unknown_instance;
use crate::worker_queue;

/// A turn as it is stored.
pub(crate) struct CommitTurn {
    lock_token: String,
    pub(crate) execution_id: i64,
    delta: HistoryDelta,
    kv_changes: Vec<KvChange>,
    custom_status: Option<Option<String>>,
    activities: Vec<StoredActivity>,
    /// Each with how long it stays invisible; a timer becomes visible at its fire time.
    messages: Vec<(StoredMessage, Option<Duration>)>,
    update: ExecutionUpdate,
    /// The category of the failure that it records.
    failure_kind: Option<&'static str>,
    cancelled: Vec<(String, i64, i64)>,
    base: Option<Stamp>,
    pub(crate) stamp: Stamp,
    check_in: Option<CheckIn>,
    payload_bytes: usize,
    pub(crate) called: ClockReading,
}

impl CommitTurn {
    /// Encodes a turn; refuses items that do not belong into their queue.
    pub(crate) fn encode(
        operation: &str,
        commit: &TurnCommit,
        clock: &dyn Clock,
    ) -> Result<Self, ProviderError> {
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
            execution_id: stored_id(operation, "execution id", commit.execution_id)?,
            kv_changes: commit.history_delta.iter().filter_map(KvChange::of).collect(),
            custom_status: last_custom_status(&commit.history_delta),
            delta,
            activities,
            messages,
            update: commit.update.clone(),
            failure_kind: last_failure_kind(&commit.history_delta),
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

fn last_failure_kind(events: &[Event]) -> Option<&'static str> {
    events.iter().rev().find_map(|event| match &event.kind {
        EventKind::OrchestrationFailed { details } => Some(details.category()),
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
     i.created_at_ms IS NOT NULL, i.startable, i.current_execution_id, \
     CASE WHEN i.current_execution_id IS ?2 THEN e.status ELSE (SELECT c.status FROM everturn_executions AS c \
         WHERE c.instance_key = ?1 AND c.execution_id = i.current_execution_id) END, \
     e.status, e.pinned_engine_version, i.event_count, i.event_bytes, i.last_event_id, e.event_count, e.event_bytes, \
     CASE WHEN e.execution_id IS NOT NULL AND i.current_execution_id IS NOT ?2 THEN (SELECT h.last_event_id \
         FROM everturn_history AS h WHERE h.instance_key = ?1 AND h.execution_id = ?2 \
         ORDER BY h.first_event_id DESC LIMIT 1) END \
     FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = ?2 WHERE i.instance_key = ?1";
const DELETE_TAGGED: &str =
    "DELETE FROM everturn_orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const NAME_INSTANCE: &str = "UPDATE everturn_instances SET orchestration_name = ?2, orchestration_version = ?3 \
     WHERE instance_key = ?1 AND (orchestration_name <> ?2 OR orchestration_version <> ?3)";
const END_EXECUTION: &str = "UPDATE everturn_executions SET status = ?3, output = ?4, \
     completed_at_ms = CASE WHEN ?3 = 'Running' THEN NULL ELSE ?5 END, event_count = ?6, event_bytes = ?7, \
     outcome_event_id = coalesce(max(outcome_event_id, ?8), ?8, outcome_event_id) \
     WHERE instance_key = ?1 AND execution_id = ?2";
// Its events were counted in the row of its instance until now.
const SUPERSEDE: &str = "UPDATE everturn_executions SET event_count = ?3, event_bytes = ?4 \
     WHERE instance_key = ?1 AND execution_id = ?2";
const SET_CUSTOM_STATUS: &str = "INSERT INTO everturn_custom_statuses (instance_key, custom_status, custom_status_version) \
     VALUES (?1, ?2, 1) ON CONFLICT (instance_key) DO UPDATE SET custom_status = ?2, \
     custom_status_version = max(min(custom_status_version, 4611686018427387903), 0) + 1";
const CANCEL_ACTIVITY: &str =
    "DELETE FROM everturn_worker_queue WHERE instance_id = ?1 AND execution_id = ?2 AND activity_id = ?3";
const MARK_STARTABLE: &str = "UPDATE everturn_instances SET startable = 1 WHERE instance_key = ?1";
const OLDEST_MESSAGE: &str =
    "SELECT min(seq) FROM everturn_orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms <= ?2";
const RELEASE: &str = "UPDATE everturn_instances SET turn_stamp = ?2, updated_at_ms = ?3, startable = ?4, \
     current_execution_id = CASE WHEN created_at_ms IS NOT NULL THEN max(current_execution_id, ?5) END, \
     event_count = ?7, event_bytes = ?8, last_event_id = ?9, status = ?10, \
     ended_at_ms = CASE WHEN ?10 IN ('Completed', 'Failed') THEN iif(status IS ?10, ended_at_ms, ?3) END, \
     failure_kind = CASE WHEN ?10 = 'Failed' THEN coalesce(?11, failure_kind) END, \
     lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = ?6, \
     delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL WHERE instance_key = ?1";
// The same for an instance that runs on, has no lock and gets no message: nothing of this is in an index.
const GO_ON: &str = "UPDATE everturn_instances SET turn_stamp = ?2, updated_at_ms = ?3, event_count = ?4, \
     event_bytes = ?5, last_event_id = ?6 WHERE instance_key = ?1";
const CREATE_AND_RELEASE: &str = "UPDATE everturn_instances SET orchestration_name = ?6, orchestration_version = ?7, \
     parent_instance_id = ?8, created_at_ms = ?3, current_execution_id = ?4, startable = 1, \
     turn_stamp = ?2, updated_at_ms = ?3, event_count = ?9, event_bytes = ?10, last_event_id = ?11, \
     root_instance_id = coalesce((SELECT p.root_instance_id FROM everturn_instances AS p WHERE p.instance_id = ?8), instance_id), \
     status = ?12, ended_at_ms = CASE WHEN ?12 IN ('Completed', 'Failed') THEN ?3 END, \
     failure_kind = CASE WHEN ?12 = 'Failed' THEN ?13 END, \
     lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = ?5, \
     delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL WHERE instance_key = ?1";

/// The instance row, as far as a commit needs it.
pub(crate) struct CommittedInstance {
    pub(crate) id: String,
    pub(crate) lock: StoredLock,
    pub(crate) stamp: Option<i64>,
    pub(crate) created: bool,
    pub(crate) startable: bool,
    pub(crate) current_execution_id: Option<i64>,
    /// The status of its current execution.
    pub(crate) status: Option<String>,
    /// The status of the execution that the turn belongs to; `None` if that does not exist.
    pub(crate) execution_status: Option<String>,
    /// The pinned version of that execution.
    pub(crate) pin: Option<String>,
    /// The events of the current execution.
    pub(crate) current_events: EventCounts,
    /// The events of the execution that the turn belongs to, unless it is the current one.
    pub(crate) other_events: EventCounts,
}

impl CommittedInstance {
    /// The events of the execution that the turn belongs to.
    fn events_of(&self, execution_id: i64) -> EventCounts {
        if self.current_execution_id == Some(execution_id) { self.current_events } else { self.other_events }
    }
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
        if self.base.is_some() && !self.builds_on(&instance) {
            let message = format!(
                "committing turn of {}: its history is not the one the turn was built on",
                instance.id
            );
            return Err(ProviderError::history_moved("", message).into());
        }
        self.check_new_events(scope, key, &instance)?;
        scope.conn.prepare_cached(DELETE_TAGGED)?.execute([key])?;
        scope.effects.released.push(token.clone());
        self.write(scope, key, instance)
    }

    fn committed(&self, _answer: &()) {
        if let Some(check_in) = &self.check_in {
            check_in();
        }
    }
}

impl CommitTurn {
    /// Whether the turn says which engine version its execution needs.
    pub(crate) fn pins_a_version(&self) -> bool {
        self.update.pinned_engine_version.is_some()
    }

    /// Whether the instance is as the turn knows it.
    pub(crate) fn builds_on(&self, instance: &CommittedInstance) -> bool {
        self.base.is_some_and(|base| instance.stamp == Some(base.0.cast_signed()))
    }

    /// Refuses events whose id is taken, before anything is written.
    pub(crate) fn check_new_events(
        &self,
        scope: &Scope<'_>,
        key: i64,
        instance: &CommittedInstance,
    ) -> Result<(), VerbFailure> {
        // A turn that was built on the stored history takes no id that history has.
        if self.base.is_some() && self.delta.is_after(instance.events_of(self.execution_id)) {
            return Ok(());
        }
        history::check_new(scope.conn, key, self.execution_id, &self.delta)
    }

    /// Writes a turn that was checked, and releases the lock of the instance.
    pub(crate) fn write(
        &self,
        scope: &mut Scope<'_>,
        key: i64,
        instance: CommittedInstance,
    ) -> Result<(), VerbFailure> {
        let events = instance.events_of(self.execution_id).with(&self.delta);
        self.write_execution(scope, key, &instance, events)?;
        let names = self.names();
        // Once the first execution has a start event, messages need no start message among them.
        let startable =
            instance.startable || names.is_some() || (self.delta.has_start() && self.execution_id == 1);
        if startable && !instance.startable && self.cancels(&instance.id) {
            // The turn makes the instance, so its cancellation is kept.
            scope.conn.prepare_cached(MARK_STARTABLE)?.execute([key])?;
        }
        self.write_queues(scope)?;
        // An instance without a lock has no visible messages but those that it sends itself.
        let may_be_ready = instance.lock.token.is_some() || self.sends_to(&instance.id);
        let oldest: Option<i64> = if startable && may_be_ready {
            let now_ms = scope.now.wall_ms;
            scope.conn.prepare_cached(OLDEST_MESSAGE)?.query_row([key, now_ms], |row| row.get(0))?
        } else {
            None
        };
        let current_events = self.supersede(scope, key, &instance, events)?;
        self.release(scope, key, &instance, startable, oldest, current_events)?;
        scope.effects.totals.add(self.totals(&instance));
        self.note_unawaited_timers(scope, key, &instance)?;
        scope.effects.turn_is_ready(oldest);
        if !startable {
            unknown_instance::refresh_unstarted(scope.conn, key)?;
            orchestrator_queue::refresh(scope, key)?;
        }
        scope.effects.ended_turns.insert(key);
        if self.is_visible() {
            scope.effects.touched.push(instance.id);
        }
        Ok(())
    }

    /// Writes the row of the instance, and releases its lock.
    fn release(
        &self,
        scope: &Scope<'_>,
        key: i64,
        instance: &CommittedInstance,
        startable: bool,
        oldest: Option<i64>,
        current_events: EventCounts,
    ) -> Result<(), VerbFailure> {
        let stamp = self.stamp.0.cast_signed();
        let now_ms = scope.now.wall_ms;
        let status = self.status_after(instance).map(ExecutionStatus::as_str);
        match self.names() {
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
                    parent,
                    current_events.count,
                    current_events.bytes,
                    current_events.last_event_id,
                    status,
                    self.failure_kind
                ])?;
            }
            None if self.goes_on(instance, oldest, status) => {
                scope.conn.prepare_cached(GO_ON)?.execute([
                    key,
                    stamp,
                    now_ms,
                    current_events.count,
                    current_events.bytes,
                    current_events.last_event_id,
                ])?;
            }
            names => {
                if let Some((name, version)) = names {
                    scope.conn.prepare_cached(NAME_INSTANCE)?.execute(params![key, name, version])?;
                }
                scope.conn.prepare_cached(RELEASE)?.execute(params![
                    key,
                    stamp,
                    now_ms,
                    startable,
                    self.execution_id,
                    oldest,
                    current_events.count,
                    current_events.bytes,
                    current_events.last_event_id,
                    status,
                    self.failure_kind
                ])?;
            }
        }
        Ok(())
    }

    /// Whether the instance stays as it is: it exists, runs on, has no lock to be released, and is not ready.
    fn goes_on(&self, instance: &CommittedInstance, oldest: Option<i64>, status: Option<&str>) -> bool {
        instance.created
            && instance.startable
            && status == Some(ExecutionStatus::Running.as_str())
            && instance.status.as_deref() == status
            && instance.lock.token.is_none()
            && instance.current_execution_id == Some(self.execution_id)
            && oldest.is_none()
    }

    /// Whether a client that watches the instance could see a difference. Most turns change nothing that clients see.
    fn is_visible(&self) -> bool {
        self.update.status.is_some()
            || self.delta.has_outcome()
            || self.custom_status.is_some()
            || !self.kv_changes.is_empty()
    }

    /// Whether the turn sends a message to this instance.
    fn sends_to(&self, instance_id: &str) -> bool {
        self.messages.iter().any(|(message, _)| message.instance_id == instance_id)
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

    /// The status of the instance after the turn; `None` if it does not exist.
    fn status_after(&self, instance: &CommittedInstance) -> Option<ExecutionStatus> {
        if !instance.created {
            self.names()?;
        }
        let named = |status: &Option<String>| status.as_deref().and_then(ExecutionStatus::from_name);
        // A turn of an earlier execution leaves the current one as it is.
        if instance.current_execution_id.is_some_and(|current| self.execution_id < current) {
            return named(&instance.status);
        }
        Some(
            self.update
                .status
                .or_else(|| named(&instance.execution_status))
                .unwrap_or(ExecutionStatus::Running),
        )
    }

    /// How the turn changes the totals.
    fn totals(&self, instance: &CommittedInstance) -> TotalsChange {
        let mut change = TotalsChange::default();
        change.events += self.delta.count();
        change.executions += i64::from(instance.execution_status.is_none());
        let after = self.status_after(instance).map(ExecutionStatus::as_str);
        change.instances += i64::from(!instance.created && after.is_some());
        change.instance_moves(instance.status.as_deref().filter(|_| instance.created), after);
        change
    }

    /// The name and version that the turn gives the instance.
    fn names(&self) -> Option<(&str, &str)> {
        self.update.orchestration_name.as_deref().zip(self.update.orchestration_version.as_deref())
    }

    /// The events of the execution that is the current one after the turn. If that is another one than before, the events of
    /// the one before are counted in its own row from now on.
    fn supersede(
        &self,
        scope: &Scope<'_>,
        key: i64,
        instance: &CommittedInstance,
        events: EventCounts,
    ) -> Result<EventCounts, VerbFailure> {
        match instance.current_execution_id {
            None if self.names().is_none() => Ok(EventCounts::default()),
            Some(current) if current > self.execution_id => Ok(instance.current_events),
            Some(current) if current < self.execution_id && instance.status.as_deref() == Some("Running") => {
                let EventCounts { count, bytes, .. } = instance.current_events;
                scope.conn.prepare_cached(SUPERSEDE)?.execute([key, current, count, bytes])?;
                Ok(events)
            }
            _ => Ok(events),
        }
    }

    /// Whether the row of the execution must be written before its status is. A turn in the middle of the current execution
    /// changes nothing in it.
    fn changes_execution(&self, instance: &CommittedInstance, pin: Option<&str>) -> bool {
        instance.current_execution_id != Some(self.execution_id)
            || instance.execution_status.as_deref() != Some("Running")
            || self.delta.has_start()
            || (self.delta.has_outcome() && self.update.status.is_none())
            || pin.is_some_and(|pin| instance.pin.as_deref() != Some(pin))
    }

    fn write_execution(
        &self,
        scope: &Scope<'_>,
        key: i64,
        instance: &CommittedInstance,
        events: EventCounts,
    ) -> Result<(), VerbFailure> {
        let (conn, now_ms) = (scope.conn, scope.now.wall_ms);
        let pin = self.update.pinned_engine_version.as_ref().map(ToString::to_string);
        if self.changes_execution(instance, pin.as_deref()) {
            let (execution_id, delta) = (self.execution_id, &self.delta);
            history::write_execution(conn, key, execution_id, now_ms, events, delta, pin.as_deref())?;
        }
        history::append(conn, key, self.execution_id, &self.delta)?;
        if let Some(status) = &self.custom_status {
            conn.prepare_cached(SET_CUSTOM_STATUS)?.execute(params![key, status])?;
        }
        kv::apply(conn, key, &self.kv_changes)?;
        if let Some(status) = self.update.status {
            let end = || {
                conn.prepare_cached(END_EXECUTION)?.execute(params![
                    key,
                    self.execution_id,
                    status.as_str(),
                    self.update.output,
                    now_ms,
                    events.count,
                    events.bytes,
                    self.delta.outcome_event_id()
                ])
            };
            if end()? == 0 {
                // A damaged file has lost the row of the execution.
                let (execution_id, delta) = (self.execution_id, &self.delta);
                history::write_execution(conn, key, execution_id, now_ms, events, delta, pin.as_deref())?;
                end()?;
            }
            if status != ExecutionStatus::Running {
                kv::merge(conn, key)?;
            }
        }
        Ok(())
    }

    fn write_queues(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        for activity in &self.activities {
            worker_queue::insert(scope, activity)?;
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
                pin: columns::text(row, 9)?,
                current_events: history::counts_of(row, 10)?,
                other_events: history::counts_of(row, 13)?,
            })
        })
        .optional()?)
}
