//! Locking instances and their visible messages for a dispatcher.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use everturn_core::{EventKind, INITIAL_EXECUTION_ID, WorkItem};

use super::kv::KvStore;
use super::parked::LOOK_AT_LEAST_EVERY;
use super::tables::{Lock, Message, Moment, Stored, TableExecution, Tables};
use super::unknown_instance::orphans_of;
use crate::store::{FetchedTurn, HandlerView, MessageNotes, TurnFetch};
use crate::types::{DispatcherCapabilityFilter, OrchestrationItem};

/// Stands in for a name or version that is not stored anywhere.
const UNKNOWN: &str = "unknown";

/// What runs in an instance, as far as the store knows.
pub(super) struct Identity {
    orchestration_name: String,
    version: String,
    execution_id: u64,
    /// Whether the execution's history belongs to the answer.
    has_history: bool,
}

/// What can be done with an instance's visible messages.
pub(super) enum Deliverability {
    /// They can be delivered.
    Deliverable(Identity),
    /// Queue messages of an instance that was never started: these rows.
    Orphans(Vec<u64>),
    /// They came before the start.
    TooEarly,
}

/// The messages that a fetch took.
#[derive(Default)]
struct TaggedMessages {
    messages: Vec<WorkItem>,
    /// Their notes, one each.
    notes: Vec<MessageNotes>,
    /// Why one of them cannot be read.
    damage: Option<String>,
    /// How often the most fetched of them was fetched.
    attempt_count: u32,
}

impl Tables {
    /// Locks up to `turns_max` instances, those with the oldest visible messages first. A warm one comes without history.
    pub fn fetch_turns(
        &mut self,
        now: Moment,
        fetch: &TurnFetch,
        fresh_token: impl Fn() -> String,
    ) -> Vec<FetchedTurn> {
        let filter = fetch.filter.as_ref();
        if filter.is_some_and(|filter| filter.supported_engine_versions.is_empty()) {
            return Vec::new();
        }
        self.show_due_messages(now);
        self.delete_orphans(now);
        let picked = self.pick_instances(now, fetch);
        // Parked fetches do not know of a lock that ends before they look again.
        self.changes.orchestrator_queue |= !picked.is_empty() && fetch.lock_timeout < LOOK_AT_LEAST_EVERY;
        let turns = picked
            .into_iter()
            .map(|(instance, identity)| self.lock_instance(now, instance, identity, fetch, fresh_token()));
        turns.collect()
    }

    /// Locks one instance with all its visible messages.
    fn lock_instance(
        &mut self,
        now: Moment,
        instance: String,
        identity: Identity,
        fetch: &TurnFetch,
        token: String,
    ) -> FetchedTurn {
        let lock = Lock::new(token.clone(), now, fetch.lock_timeout);
        self.instance_locks.insert(instance.clone(), lock);
        self.instance_delays.remove(&instance);
        let TaggedMessages { messages, notes, damage, attempt_count } =
            self.tag_messages(&instance, now, &token);
        let stamp =
            self.stamps.get(&instance).copied().filter(|_| {
                identity.has_history && self.execution(&instance, identity.execution_id).is_some()
            });
        let lent = match (fetch.warm.as_deref(), stamp, &damage) {
            (Some(warm), Some(stamp), None) => warm.lend(&instance, identity.execution_id, stamp),
            _ => None,
        };
        let item = match &lent {
            Some(_) => identity.item(instance, messages),
            None => self.read_item(identity, instance, messages, damage),
        };
        let mut turn = FetchedTurn::new(item, token, fetch.lock_timeout, attempt_count);
        turn.notes = notes;
        turn.warm = lent;
        turn.stamp = stamp;
        turn
    }

    /// The instance with its history, or with the reason why that cannot be read.
    fn read_item(
        &self,
        identity: Identity,
        instance: String,
        messages: Vec<WorkItem>,
        damage: Option<String>,
    ) -> OrchestrationItem {
        let execution = self.execution(&instance, identity.execution_id).filter(|_| identity.has_history);
        let history = match damage {
            Some(damage) => Err(damage),
            None => execution.map_or(Ok(Vec::new()), TableExecution::history),
        };
        let kv_snapshot = self.kv.get(&instance).map(KvStore::snapshot).unwrap_or_default();
        let item = OrchestrationItem { kv_snapshot, ..identity.item(instance, messages) };
        match history {
            Ok(history) => OrchestrationItem { history, ..item },
            Err(error) => OrchestrationItem { history_error: Some(error), ..item },
        }
    }

    /// The instances that may be delivered, those with the oldest messages first.
    fn pick_instances(&self, now: Moment, fetch: &TurnFetch) -> Vec<(String, Identity)> {
        let instances = self.instances_with_messages(now).into_iter();
        let deliverable = instances
            .filter(|instance| !self.is_delayed(instance, now, fetch.handlers.as_deref()))
            .filter(|instance| self.is_compatible(instance, fetch.filter.as_ref()))
            .filter(|instance| !fetch.warm.as_ref().is_some_and(|warm| warm.is_stepping(instance)))
            .filter_map(|instance| match self.deliverability(instance, now) {
                Deliverability::Deliverable(identity) => Some((instance.to_owned(), identity)),
                Deliverability::Orphans(_) | Deliverability::TooEarly => None,
            });
        let mut picked: Vec<(String, Identity)> = Vec::new();
        for (instance, identity) in deliverable.take(fetch.turns_max) {
            // Its turn may be what ended the process that fetched it: others must not share that fate.
            let was_fetched = self.was_fetched(&instance, now);
            if was_fetched && !picked.is_empty() {
                break;
            }
            picked.push((instance, identity));
            if was_fetched {
                break;
            }
        }
        picked
    }

    /// Whether a visible message of the instance was fetched before.
    fn was_fetched(&self, instance: &str, now: Moment) -> bool {
        let mut visible = self.orchestrator_queue.values().filter(|message| message.is_visible(now));
        visible.any(|message| message.instance == instance && message.attempt_count > 0)
    }

    /// Whether a fetch with these handlers must wait for the instance.
    pub(crate) fn is_delayed(&self, instance: &str, now: Moment, handlers: Option<&dyn HandlerView>) -> bool {
        self.instance_delays.get(instance).is_some_and(|delay| delay.holds(now, handlers))
    }

    /// The instances that have visible messages and can be locked, the one with the oldest first.
    pub(super) fn instances_with_messages(&self, now: Moment) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.orchestrator_queue
            .values()
            .filter(|message| message.is_visible(now))
            .map(|message| message.instance.as_str())
            .filter(|instance| seen.insert(*instance) && !self.is_instance_locked(instance, now))
            .collect()
    }

    pub(crate) fn is_instance_locked(&self, instance: &str, now: Moment) -> bool {
        self.instance_locks.get(instance).is_some_and(|lock| lock.is_held(now))
    }

    /// Whether the filter accepts the current execution's pinned version, if it has one.
    fn is_compatible(&self, instance: &str, filter: Option<&DispatcherCapabilityFilter>) -> bool {
        let Some(filter) = filter else { return true };
        let current =
            self.instances.get(instance).map_or(INITIAL_EXECUTION_ID, |row| row.current_execution_id);
        let pin =
            self.execution(instance, current).and_then(|execution| execution.pinned_engine_version.as_ref());
        pin.is_none_or(|pin| filter.is_compatible(pin))
    }

    pub(super) fn deliverability(&self, instance: &str, now: Moment) -> Deliverability {
        if let Some(row) = self.instances.get(instance) {
            return Deliverability::Deliverable(Identity {
                orchestration_name: row.orchestration_name.clone(),
                version: row.orchestration_version.clone(),
                execution_id: row.current_execution_id,
                has_history: true,
            });
        }
        let first = self.execution(instance, INITIAL_EXECUTION_ID);
        if let Some((name, version)) = first.and_then(TableExecution::started_as) {
            return Deliverability::Deliverable(Identity::first_execution(name, version, true));
        }
        let queued = self.messages_of(instance);
        let visible = || queued.iter().filter(|(_, message)| message.is_visible(now));

        let is_damaged = first.is_some_and(|execution| execution.history().is_err())
            || visible().any(|(_, message)| matches!(message.item, Stored::Damaged(_)));
        if let Some((name, version)) = visible().find_map(|(_, message)| message.starts()) {
            return Deliverability::Deliverable(Identity::first_execution(name, version, is_damaged));
        }
        if is_damaged {
            return Deliverability::Deliverable(Identity::first_execution(UNKNOWN, UNKNOWN, true));
        }
        match orphans_of(&queued, now) {
            Some(row_ids) => Deliverability::Orphans(row_ids),
            None => Deliverability::TooEarly,
        }
    }

    /// The rows of an instance in the order of their arrival.
    fn messages_of(&self, instance: &str) -> Vec<(u64, &Message)> {
        let rows = self.orchestrator_queue.iter().filter(|(_, message)| message.instance == instance);
        let mut rows: Vec<(u64, &Message)> = rows.map(|(row_id, message)| (*row_id, message)).collect();
        // The table is ordered by row, and the sort keeps the order of equals.
        rows.sort_by_key(|(_, message)| message.arrived_at_ms);
        rows
    }

    /// Tags all visible messages of an instance with the token that now holds them.
    fn tag_messages(&mut self, instance: &str, now: Moment, token: &str) -> TaggedMessages {
        let visible = self.messages_of(instance).into_iter().filter(|(_, message)| message.is_visible(now));
        let visible: Vec<u64> = visible.map(|(row_id, _)| row_id).collect();
        let mut tagged = TaggedMessages::default();
        for row_id in visible {
            let Some(message) = self.orchestrator_queue.get_mut(&row_id) else { continue };
            message.tagged_by = Some(token.to_owned());
            message.attempt_count = message.attempt_count.saturating_add(1);
            tagged.attempt_count = tagged.attempt_count.max(message.attempt_count);
            match &message.item {
                Stored::Good(item) => {
                    tagged.messages.push(item.clone());
                    tagged.notes.push(message.notes.clone());
                }
                Stored::Damaged(text) => {
                    tagged.damage = Some(format!("message {row_id} of {instance} cannot be read: {text}"));
                }
            }
        }
        tagged
    }

    /// How long until a fetch of turns may find something that it does not find now.
    pub fn next_turn_wake(&self, now: Moment) -> Option<Duration> {
        let delays = self.orchestrator_queue.values().map(|message| now.until_wall(message.visible_at_ms));
        let locks = self.instance_locks.values().map(|lock| now.until(lock.held_until));
        let instance_delays = self.instance_delays.values().map(|delay| now.until_wall(delay.until_ms));
        delays.chain(instance_delays).chain(locks).filter(|wait| !wait.is_zero()).min()
    }
}

impl Identity {
    fn first_execution(name: &str, version: &str, has_history: bool) -> Self {
        Self {
            orchestration_name: name.to_owned(),
            version: version.to_owned(),
            execution_id: INITIAL_EXECUTION_ID,
            has_history,
        }
    }

    /// An item without history.
    fn item(self, instance: String, messages: Vec<WorkItem>) -> OrchestrationItem {
        OrchestrationItem {
            instance,
            orchestration_name: self.orchestration_name,
            execution_id: self.execution_id,
            version: self.version,
            history: Vec::new(),
            messages,
            history_error: None,
            kv_snapshot: HashMap::new(),
        }
    }
}

impl TableExecution {
    /// Name and version of the start event, if it can be read.
    pub(super) fn started_as(&self) -> Option<(&str, &str)> {
        self.events.values().find_map(|event| match event {
            Stored::Good(event) => match &event.kind {
                EventKind::OrchestrationStarted { name, version, .. } => {
                    Some((name.as_str(), version.as_str()))
                }
                _ => None,
            },
            Stored::Damaged(_) => None,
        })
    }
}

impl Message {
    /// Name and version of what this message starts.
    fn starts(&self) -> Option<(&str, &str)> {
        match &self.item {
            Stored::Good(
                WorkItem::StartOrchestration { orchestration, version, .. }
                | WorkItem::ContinueAsNew { orchestration, version, .. },
            ) => Some((orchestration, version.as_deref().unwrap_or(UNKNOWN))),
            _ => None,
        }
    }
}
