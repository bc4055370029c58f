//! `commit_turn`: everything that a turn decided, in one transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use everturn_core::{Event, EventKind, ExecutionStatus};
use everturn_provider::encoded::{
    EventCounts, HistoryDelta, KvChange, StoredActivity, StoredMessage, length_ms, stored_id, stored_ms,
};
use everturn_provider::store::{CheckIn, ExecutionUpdate, Stamp, TurnCommit};
use everturn_provider::{Clock, ProviderError, ScheduledActivityIdentifier};

use crate::instance_image::QueuedMessages;
use crate::locks::{row_of, unknown_token};
use crate::needs::{EventRange, InstanceName, Needs};
use crate::operation::{BatchOrder, Run, Verb};
use crate::orchestrator_queue;
use crate::text::{check_activity, check_message, check_texts};
use crate::unit_of_work::{ActivityIdentity, ExecutionImage, UnitOfWork};

/// A turn as it is stored.
pub(crate) struct CommitTurn {
    lock_token: String,
    pub(crate) execution_id: i64,
    delta: HistoryDelta,
    kv_changes: Vec<KvChange>,
    custom_status: Option<Option<String>>,
    pub(crate) activities: Vec<StoredActivity>,
    /// Each with how long it stays invisible; a timer becomes visible at its fire time.
    messages: Vec<(StoredMessage, Option<Duration>)>,
    update: ExecutionUpdate,
    /// The category of the failure that it records.
    failure_kind: Option<&'static str>,
    cancelled: Vec<ActivityIdentity>,
    pub(crate) base: Option<Stamp>,
    pub(crate) stamp: Stamp,
    check_in: Option<CheckIn>,
    payload_bytes: usize,
    called_ms: i64,
}

impl CommitTurn {
    /// Encodes a turn; refuses items that do not belong into their queue, and texts that the server cannot hold.
    pub(crate) fn encode(
        operation: &str,
        commit: &TurnCommit,
        clock: &dyn Clock,
        called_ms: i64,
    ) -> Result<Self, ProviderError> {
        let delta = HistoryDelta::encode(operation, &commit.history_delta)?;
        let activities = commit.worker_items.iter().map(|work| StoredActivity::encode(operation, &work.item));
        let activities = activities.collect::<Result<Vec<_>, _>>()?;
        let messages = commit
            .orchestrator_items
            .iter()
            .map(|message| Ok((StoredMessage::encode(operation, message)?, message.delay)))
            .collect::<Result<Vec<_>, ProviderError>>()?;
        let kv_changes: Vec<KvChange> = commit.history_delta.iter().filter_map(KvChange::of).collect();
        let custom_status = last_custom_status(&commit.history_delta);
        let update = &commit.update;
        check_texts(
            operation,
            [
                ("the output", update.output.as_deref()),
                ("the name of the orchestration", update.orchestration_name.as_deref()),
                ("the version of the orchestration", update.orchestration_version.as_deref()),
                ("the id of the parent", update.parent_instance_id.as_deref()),
                ("the custom status", custom_status.as_ref().and_then(Option::as_deref)),
            ],
        )?;
        for change in &kv_changes {
            let (key, value) = match change {
                KvChange::Set { key, value, .. } => (Some(key.as_str()), Some(value.as_str())),
                KvChange::Clear { key, .. } => (Some(key.as_str()), None),
                KvChange::ClearAll { .. } => (None, None),
            };
            check_texts(operation, [("a key", key), ("the value of a key", value)])?;
        }
        for activity in &activities {
            check_activity(operation, activity)?;
        }
        for (message, _) in &messages {
            check_message(operation, message)?;
        }
        for cancelled in &commit.cancelled_activities {
            check_texts(operation, [("the id of an instance", Some(cancelled.instance.as_str()))])?;
        }
        let payload_bytes = delta.bytes()
            + activities.iter().map(StoredActivity::bytes).sum::<usize>()
            + messages.iter().map(|(message, _)| message.work_item.len()).sum::<usize>();
        Ok(Self {
            lock_token: commit.lock_token.clone(),
            execution_id: stored_id(operation, "execution id", commit.execution_id)?,
            kv_changes,
            custom_status,
            delta,
            activities,
            messages,
            update: update.clone(),
            failure_kind: last_failure_kind(&commit.history_delta),
            cancelled: commit.cancelled_activities.iter().filter_map(stored_identity).collect(),
            base: commit.base,
            stamp: commit.stamp.unwrap_or_else(|| drawn_stamp(clock)),
            check_in: commit.check_in.clone(),
            payload_bytes,
            called_ms,
        })
    }
}

/// A random stamp.
pub(crate) fn drawn_stamp(clock: &dyn Clock) -> Stamp {
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

impl Verb for CommitTurn {
    type Answer = ();
    const NAME: &'static str = "commit_turn";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn needs(&self, needs: &mut Needs) {
        let Some(key) = row_of(&self.lock_token) else { return };
        needs.keys.insert(key);
        needs.released.insert(key);
        needs.executions.push((key, self.execution_id));
        self.needs_of_turn(needs, InstanceName::Key(key));
    }

    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<(), ProviderError> {
        let token = &self.lock_token;
        let key = row_of(token).ok_or_else(|| unknown_token(token))?;
        let instance = unit.instances.get(&key).ok_or_else(|| unknown_token(token))?;
        if run == Run::Again && instance.stamp == Some(self.stamp.0.cast_signed()) {
            return Ok(());
        }
        instance.lock.check(token, self.called_ms)?;
        if self.base.is_some() && !self.builds_on(instance.stamp) {
            let message = format!(
                "committing turn of {}: its history is not the one the turn was built on",
                instance.id
            );
            return Err(ProviderError::history_moved("", message));
        }
        self.check_new_events(unit, key)?;
        unit.writes.delete_tagged.push(key);
        self.write(unit, key);
        Ok(())
    }

    fn committed(&self, _answer: &()) {
        self.check_in();
    }
}

impl CommitTurn {
    /// Puts the instance back into memory.
    pub(crate) fn check_in(&self) {
        if let Some(check_in) = &self.check_in {
            check_in();
        }
    }

    /// The rows that what the turn decided needs, besides the instance itself.
    pub(crate) fn needs_of_turn(&self, needs: &mut Needs, instance: InstanceName) {
        if let (Some(first), Some(last)) = (self.delta.first_event_id(), self.delta.last_event_id())
            && self.base.is_none()
        {
            needs.events.push(EventRange { instance, execution_id: self.execution_id, first, last });
        }
        for (message, _) in &self.messages {
            if message.is_cancel {
                needs.ids.insert(message.instance_id.clone());
            } else {
                needs.receiver(&message.instance_id);
            }
            if let Some(timer) = message.timer {
                needs.executions_by_id.push((message.instance_id.clone(), timer.execution_id));
            }
        }
        needs.new_messages += self.messages.len();
        needs.new_activities += self.activities.len();
    }

    /// Whether the turn says which engine version its execution needs.
    pub(crate) fn pins_a_version(&self) -> bool {
        self.update.pinned_engine_version.is_some()
    }

    /// How much it writes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Whether the instance is as the turn knows it.
    pub(crate) fn builds_on(&self, stamp: Option<i64>) -> bool {
        self.base.is_some_and(|base| stamp == Some(base.0.cast_signed()))
    }

    /// Refuses events whose id is taken, before anything is changed.
    pub(crate) fn check_new_events(&self, unit: &UnitOfWork, key: i64) -> Result<(), ProviderError> {
        if self.base.is_some() {
            // The engine numbers events without gaps: what is not after the last one is taken.
            let before = self.events_before(unit, key);
            if self.delta.is_after(before) {
                return Ok(());
            }
            let first = self.delta.first_event_id().unwrap_or_default();
            let message = format!("duplicate event id {first} in execution {}", self.execution_id);
            return Err(ProviderError::permanent("", message));
        }
        check_new(unit, key, self.execution_id, &self.delta)
    }

    /// The events of the execution before the turn.
    fn events_before(&self, unit: &UnitOfWork, key: i64) -> EventCounts {
        let instance = unit.instances.get(&key);
        match instance.filter(|instance| instance.current_execution_id == Some(self.execution_id)) {
            Some(instance) => instance.events,
            None => unit
                .executions
                .get(&(key, self.execution_id))
                .map_or_else(EventCounts::default, |found| found.events),
        }
    }

    /// Changes the rows for a turn that was checked, and releases the lock of the instance.
    pub(crate) fn write(&self, unit: &mut UnitOfWork, key: i64) {
        let events = self.events_before(unit, key).with(&self.delta);
        self.count(unit, key);
        self.note_unawaited_timers(unit, key);
        self.write_execution(unit, key, events);
        self.begin_release(unit, key);
        self.write_queues(unit);
        self.release(unit, key, events);
    }

    /// Makes the instance startable if this turn does that, so that its messages to itself are kept.
    fn begin_release(&self, unit: &mut UnitOfWork, key: i64) {
        let Some(instance) = unit.instances.get_mut(&key) else { return };
        // What its lock holder had is deleted with this turn.
        instance.tagged = QueuedMessages::default();
        instance.startable |= self.names().is_some() || (self.delta.has_start() && self.execution_id == 1);
    }

    fn write_queues(&self, unit: &mut UnitOfWork) {
        for activity in &self.activities {
            if let Some(seq) = unit.next_activity() {
                let owner = unit.owner;
                unit.writes.activities.push(seq, activity, owner);
                unit.note_new_activity(seq, activity);
            }
        }
        for (instance_id, execution_id, activity_id) in &self.cancelled {
            let (instances, executions, ids) = &mut unit.writes.cancel_activities;
            instances.push(instance_id.clone());
            executions.push(*execution_id);
            ids.push(*activity_id);
            unit.cancelled.insert((instance_id.clone(), *execution_id, *activity_id));
        }
        // While its lock is in the row, a message to the instance itself does not make it ready.
        for (message, delay) in &self.messages {
            let fire_at_ms = message.timer.map(|timer| timer.fire_at_ms);
            let after = |delay: &Duration| unit.now_ms.saturating_add(stored_ms(length_ms(*delay)));
            let visible_at_ms = fire_at_ms.or_else(|| delay.as_ref().map(after));
            orchestrator_queue::insert(unit, message, visible_at_ms);
        }
    }

    /// Writes the row of the instance, and releases its lock.
    fn release(&self, unit: &mut UnitOfWork, key: i64, events: EventCounts) {
        let now_ms = unit.now_ms;
        let Some(instance) = unit.instances.get(&key) else { return };
        let status = self.status_after(unit, key);
        let current = instance.current_execution_id;
        let supersedes = current.is_some_and(|current| current < self.execution_id)
            && instance.status.as_deref() == Some("Running");
        let is_current = current.is_none_or(|current| current <= self.execution_id);
        let Some(instance) = unit.instances.get_mut(&key) else { return };
        if let (true, Some(current)) = (supersedes, current) {
            let (keys, ids, counts, bytes) = &mut unit.writes.superseded;
            keys.push(key);
            ids.push(current);
            counts.push(instance.events.count);
            bytes.push(instance.events.bytes);
        }
        if let Some((name, version)) = self.names() {
            (instance.name, instance.version) = (Some(name.to_owned()), Some(version.to_owned()));
            if instance.created_at_ms.is_none() {
                instance.created_at_ms = Some(now_ms);
                instance.parent.clone_from(&self.update.parent_instance_id);
                instance.is_created_now = true;
            }
        }
        let status = status.map(ExecutionStatus::as_str);
        if instance.is_created() {
            instance.current_execution_id =
                Some(current.map_or(self.execution_id, |at| at.max(self.execution_id)));
            if is_current {
                instance.events = events;
            }
        }
        instance.ended_at_ms = match status {
            Some("Completed" | "Failed") if instance.status.as_deref() == status => instance.ended_at_ms,
            Some("Completed" | "Failed") => Some(now_ms),
            _ => None,
        };
        instance.failure_kind = match status {
            Some("Failed") => self.failure_kind.map(str::to_owned).or_else(|| instance.failure_kind.take()),
            _ => None,
        };
        instance.status = status.map(str::to_owned);
        instance.stamp = Some(self.stamp.0.cast_signed());
        instance.updated_at_ms = Some(now_ms);
        instance.unlock();
        instance.end_delay();
        instance.ready_seq = None;
        if instance.startable {
            // An instance without a lock has no visible messages but those that it sends itself.
            instance.ready_seq = instance.untagged.oldest;
            instance.orphaned = false;
        } else {
            instance.unstarted_since_ms = instance.untagged.first_arrival_ms;
            instance.refresh();
        }
        unit.effects.turns |= instance.ready_seq.is_some();
        unit.effects.orphans |= instance.orphaned;
        if self.is_visible() {
            unit.effects.touched.push(instance.id.clone());
        }
    }

    /// Whether a client that watches the instance could see a difference. Most turns change nothing that clients see.
    fn is_visible(&self) -> bool {
        self.update.status.is_some()
            || self.delta.has_outcome()
            || self.custom_status.is_some()
            || !self.kv_changes.is_empty()
    }

    /// Timers of the execution that the turn ends, and of executions before the one that is now current, are awaited no more.
    fn note_unawaited_timers(&self, unit: &mut UnitOfWork, key: i64) {
        let Some(instance) = unit.instances.get(&key) else { return };
        let has_ended = self.has_ended();
        let exists = instance.is_created() || self.names().is_some();
        let supersedes = exists && self.execution_id > instance.current_execution_id.unwrap_or(1);
        if !(has_ended || supersedes) {
            return;
        }
        // An instance that no turn has named has no current execution.
        let first = if exists { i64::MIN } else { self.execution_id };
        let (keys, firsts, befores) = &mut unit.writes.unawaited;
        keys.push(key);
        firsts.push(first);
        befores.push(self.execution_id.saturating_add(i64::from(has_ended)));
    }

    fn has_ended(&self) -> bool {
        self.update.status.is_some_and(|status| status != ExecutionStatus::Running)
    }

    /// The status of the instance after the turn; `None` if it does not exist.
    fn status_after(&self, unit: &UnitOfWork, key: i64) -> Option<ExecutionStatus> {
        let instance = unit.instances.get(&key)?;
        if !instance.is_created() {
            self.names()?;
        }
        // A turn of an earlier execution leaves the current one as it is.
        if instance.current_execution_id.is_some_and(|current| self.execution_id < current) {
            return instance.status.as_deref().and_then(ExecutionStatus::from_name);
        }
        let execution = unit.executions.get(&(key, self.execution_id));
        let stored = execution.and_then(|execution| ExecutionStatus::from_name(&execution.status));
        Some(self.update.status.or(stored).unwrap_or(ExecutionStatus::Running))
    }

    /// Notes how the turn changes the totals.
    fn count(&self, unit: &mut UnitOfWork, key: i64) {
        let after = self.status_after(unit, key).map(ExecutionStatus::as_str);
        let is_new_execution = !unit.executions.contains_key(&(key, self.execution_id));
        let Some(instance) = unit.instances.get(&key) else { return };
        let totals = &mut unit.effects.totals;
        totals.events += self.delta.count();
        totals.executions += i64::from(is_new_execution);
        totals.instances += i64::from(!instance.is_created() && after.is_some());
        totals.instance_moves(instance.status.as_deref().filter(|_| instance.is_created()), after);
    }

    /// The name and version that the turn gives the instance.
    fn names(&self) -> Option<(&str, &str)> {
        self.update.orchestration_name.as_deref().zip(self.update.orchestration_version.as_deref())
    }

    fn write_execution(&self, unit: &mut UnitOfWork, key: i64, events: EventCounts) {
        let id = self.execution_id;
        let pin = self.update.pinned_engine_version.as_ref().map(ToString::to_string);
        let stored = unit.executions.get(&(key, id));
        let is_current =
            unit.instances.get(&key).is_some_and(|instance| instance.current_execution_id == Some(id));
        // A turn in the middle of the current execution changes nothing in the row of that.
        let is_changed = !is_current
            || stored.is_none_or(|stored| stored.status != "Running")
            || self.delta.has_start()
            || (self.delta.has_outcome() && self.update.status.is_none())
            || pin.as_deref().is_some_and(|pin| stored.and_then(|stored| stored.pin.as_deref()) != Some(pin));
        if is_changed {
            let pin = self.update.pinned_engine_version.as_ref();
            unit.writes.executions.push(key, id, events, &self.delta, pin);
        }
        unit.writes.history.push(key, id, &self.delta);
        if let Some(status) = &self.custom_status {
            unit.writes.custom_statuses.0.push(key);
            unit.writes.custom_statuses.1.push(status.clone());
        }
        self.write_kv(unit, key);
        let known = unit.executions.entry((key, id)).or_insert_with(|| ExecutionImage {
            status: ExecutionStatus::Running.as_str().to_owned(),
            pin: None,
            events: EventCounts::default(),
        });
        known.events = events;
        if pin.is_some() {
            known.pin = pin;
        }
        if let Some(status) = self.update.status {
            known.status = status.as_str().to_owned();
            let output = self.update.output.clone();
            unit.writes.ended.push(key, id, status, output, events, self.delta.outcome_event_id());
        }
        if self.has_ended() {
            unit.writes.kv_merge.push(key);
        }
    }

    /// The last change of each key counts.
    fn write_kv(&self, unit: &mut UnitOfWork, key: i64) {
        let mut last: BTreeMap<&str, (Option<&str>, i64)> = BTreeMap::new();
        let mut cleared_at_ms = None;
        for change in &self.kv_changes {
            match change {
                KvChange::Set { key, value, at_ms } => {
                    last.insert(key, (Some(value), *at_ms));
                }
                KvChange::Clear { key, at_ms } => {
                    last.insert(key, (None, *at_ms));
                }
                KvChange::ClearAll { at_ms } => {
                    last.clear();
                    cleared_at_ms = Some(*at_ms);
                }
            }
        }
        if let Some(at_ms) = cleared_at_ms {
            unit.writes.kv_clear.0.push(key);
            unit.writes.kv_clear.1.push(at_ms);
        }
        for (name, (value, at_ms)) in last {
            let (keys, names, values, times) = &mut unit.writes.kv_set;
            keys.push(key);
            names.push(name.to_owned());
            values.push(value.map(str::to_owned));
            times.push(at_ms);
        }
    }
}

/// Refuses events whose id is taken.
pub(crate) fn check_new(
    unit: &UnitOfWork,
    key: i64,
    execution_id: i64,
    delta: &HistoryDelta,
) -> Result<(), ProviderError> {
    let of_execution =
        |stored: &&crate::unit_of_work::StoredRange| stored.key == key && stored.execution_id == execution_id;
    for stored in unit.stored_events.iter().filter(of_execution) {
        // What the events themselves say counts: a damaged row must not keep the failure of its execution from being recorded.
        let Ok(events) = serde_json::from_str::<Vec<Event>>(&stored.events) else { continue };
        let mut ids = events.iter().filter_map(|event| i64::try_from(event.event_id).ok());
        let is_taken = |id: &i64| delta.rows().iter().any(|row| (row.first..=row.last).contains(id));
        if let Some(taken) = ids.find(is_taken) {
            let message = format!("duplicate event id {taken} in execution {execution_id}");
            return Err(ProviderError::permanent("", message));
        }
    }
    Ok(())
}
