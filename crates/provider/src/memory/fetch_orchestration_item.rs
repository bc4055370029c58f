//! Handing an instance and its waiting messages to a dispatcher.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use everturn_core::{EventKind, INITIAL_EXECUTION_ID, WorkItem};

use super::store::{Execution, Held, Lock, Message, Moment, Store, Stored, VISIBLE};
use crate::types::{DispatcherCapabilityFilter, OrchestrationItem};
use crate::warm::{FetchedTurn, WarmView};

/// What stands for a name or version that nothing tells.
const UNKNOWN: &str = "unknown";

/// What runs in an instance, as far as the store knows.
struct Identity {
    orchestration_name: String,
    version: String,
    execution_id: u64,
    /// Whether the execution's history belongs to the answer.
    has_history: bool,
}

/// What an instance's visible messages amount to.
enum Standing {
    /// They can be delivered.
    Deliverable(Identity),
    /// Queue messages of an instance that nobody is going to start: these rows.
    Orphans(Vec<u64>),
    /// They came before the start.
    TooEarly,
}

impl Store {
    /// Locks the instance with the oldest visible message, if there is one. With a view of warm instances, a warm one
    /// comes without history.
    pub(super) fn fetch_orchestration_item(
        &mut self,
        now: Moment,
        fresh_token: &str,
        lock_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Option<&dyn WarmView>,
    ) -> Option<FetchedTurn> {
        if filter.is_some_and(|filter| filter.supported_engine_versions.is_empty()) {
            return None;
        }
        // What has come due stays due, even if the clock is set back.
        for message in self.orchestrator_queue.values_mut().filter(|message| message.is_visible(now)) {
            message.visible_at_ms = VISIBLE;
        }
        for row_id in self.orphans(now) {
            self.orchestrator_queue.remove(&row_id);
        }
        let Some((instance, identity)) = self.pick_instance(now, filter) else {
            self.changes.passed_over |= self.passes_instances_over(now);
            return None;
        };
        let lock = Lock::new(fresh_token.to_owned(), now, lock_timeout);
        self.instance_locks.insert(instance.clone(), lock);
        self.changed_hands.instances.insert(instance.clone());
        let (messages, damage, attempt_count) = self.tag_messages(&instance, now, fresh_token);
        let turn = self.turn(instance, identity, messages, damage, attempt_count, fresh_token, warm);
        if turn.warm.is_some() {
            self.changes.early = Some(fresh_token.to_owned());
        } else {
            let lock = Held::Lock { token: fresh_token.to_owned(), lasts: lock_timeout };
            self.changes.held.push(lock);
        }
        Some(turn)
    }

    /// Whether there are messages whose instance was let go in this batch.
    fn passes_instances_over(&self, now: Moment) -> bool {
        self.changed_hands.instances.iter().any(|instance| {
            !self.is_instance_locked(instance, now)
                && self
                    .orchestrator_queue
                    .values()
                    .any(|message| message.instance == *instance && message.is_visible(now))
        })
    }

    /// The oldest instance that may be delivered.
    fn pick_instance(
        &self,
        now: Moment,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Option<(String, Identity)> {
        self.instances_with_messages(now).into_iter().find_map(|instance| {
            if !self.is_compatible(instance, filter) {
                return None;
            }
            match self.standing(instance, now) {
                Standing::Deliverable(identity) => Some((instance.to_owned(), identity)),
                Standing::Orphans(_) | Standing::TooEarly => None,
            }
        })
    }

    /// The rows of queue messages that nobody will ever take.
    fn orphans(&self, now: Moment) -> Vec<u64> {
        let rows = self.instances_with_messages(now).into_iter().map(|instance| {
            match self.standing(instance, now) {
                Standing::Orphans(row_ids) => row_ids,
                Standing::Deliverable(_) | Standing::TooEarly => Vec::new(),
            }
        });
        rows.flatten().collect()
    }

    /// The instances that have visible messages and can be locked, the one with the oldest first.
    fn instances_with_messages(&self, now: Moment) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.orchestrator_queue
            .values()
            .filter(|message| message.is_visible(now))
            .map(|message| message.instance.as_str())
            .filter(|instance| seen.insert(*instance) && !self.is_instance_locked(instance, now))
            .filter(|instance| !self.changed_hands.instances.contains(*instance))
            .collect()
    }

    fn is_instance_locked(&self, instance: &str, now: Moment) -> bool {
        self.instance_locks.get(instance).is_some_and(|lock| lock.is_held(now))
    }

    /// Whether the current execution's pin, if it has one, lies in the filter.
    fn is_compatible(&self, instance: &str, filter: Option<&DispatcherCapabilityFilter>) -> bool {
        let Some(filter) = filter else { return true };
        let current =
            self.instances.get(instance).map_or(INITIAL_EXECUTION_ID, |row| row.current_execution_id);
        let pin =
            self.execution(instance, current).and_then(|execution| execution.pinned_engine_version.as_ref());
        pin.is_none_or(|pin| filter.is_compatible(pin))
    }

    fn standing(&self, instance: &str, now: Moment) -> Standing {
        if let Some(row) = self.instances.get(instance) {
            return Standing::Deliverable(Identity {
                orchestration_name: row.orchestration_name.clone(),
                version: row.orchestration_version.clone(),
                execution_id: row.current_execution_id,
                has_history: true,
            });
        }
        let first = self.execution(instance, INITIAL_EXECUTION_ID);
        if let Some((name, version)) = first.and_then(Execution::started_as) {
            return Standing::Deliverable(Identity::first_execution(name, version, true));
        }
        let queued: Vec<(&u64, &Message)> =
            self.orchestrator_queue.iter().filter(|(_, message)| message.instance == instance).collect();
        let visible = || queued.iter().filter(|(_, message)| message.is_visible(now));

        let is_damaged = first.is_some_and(|execution| execution.history().is_err())
            || visible().any(|(_, message)| matches!(message.item, Stored::Damaged(_)));
        if let Some((name, version)) = visible().find_map(|(_, message)| message.starts()) {
            return Standing::Deliverable(Identity::first_execution(name, version, is_damaged));
        }
        if is_damaged {
            return Standing::Deliverable(Identity::first_execution(UNKNOWN, UNKNOWN, true));
        }
        let has_start = queued.iter().any(|(_, message)| message.is_start);
        if !has_start && visible().all(|(_, message)| message.is_queue_message) {
            return Standing::Orphans(visible().map(|(row_id, _)| **row_id).collect());
        }
        Standing::TooEarly
    }

    /// Takes all visible messages of an instance along: the messages, what of them cannot be read, the highest count.
    fn tag_messages(
        &mut self,
        instance: &str,
        now: Moment,
        token: &str,
    ) -> (Vec<WorkItem>, Option<String>, u32) {
        let mut messages = Vec::new();
        let mut damage = None;
        let mut attempt_count = 0;
        for (row_id, message) in &mut self.orchestrator_queue {
            if message.instance != instance || !message.is_visible(now) {
                continue;
            }
            message.tagged_by = Some(token.to_owned());
            message.attempt_count = message.attempt_count.saturating_add(1);
            attempt_count = attempt_count.max(message.attempt_count);
            match &message.item {
                Stored::Good(item) => messages.push(item.clone()),
                Stored::Damaged(text) => {
                    damage = Some(format!("message {row_id} of {instance} cannot be read: {text}"));
                }
            }
        }
        (messages, damage, attempt_count)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn turn(
        &self,
        instance: String,
        identity: Identity,
        messages: Vec<WorkItem>,
        damage: Option<String>,
        attempt_count: u32,
        lock_token: &str,
        warm: Option<&dyn WarmView>,
    ) -> FetchedTurn {
        let Identity { orchestration_name, version, execution_id, has_history } = identity;
        let execution = self.execution(&instance, execution_id).filter(|_| has_history);
        let stamp = execution.and_then(|_| self.stamps.get(&instance)).copied();
        let lent = match (warm, stamp, &damage) {
            (Some(warm), Some(stamp), None) => warm.lend(&instance, execution_id, stamp),
            _ => None,
        };
        let (history, history_error, kv_snapshot) = if lent.is_some() {
            (Vec::new(), None, HashMap::new())
        } else {
            let history = match damage {
                Some(damage) => Err(damage),
                None => execution.map_or(Ok(Vec::new()), Execution::history),
            };
            let kv = self.kv.get(&instance).map(super::kv::KvStore::snapshot).unwrap_or_default();
            match history {
                Ok(history) => (history, None, kv),
                Err(error) => (Vec::new(), Some(error), kv),
            }
        };
        let item = OrchestrationItem {
            instance,
            orchestration_name,
            execution_id,
            version,
            history,
            messages,
            history_error,
            kv_snapshot,
        };
        FetchedTurn { item, lock_token: lock_token.to_owned(), attempt_count, warm: lent, stamp }
    }

    /// How long until a dispatcher may find something it does not find now.
    pub(super) fn next_orchestration_wake(&self, now: Moment) -> Option<Duration> {
        let delays = self.orchestrator_queue.values().map(|message| now.until_wall(message.visible_at_ms));
        let locks = self.instance_locks.values().map(|lock| now.until(lock.held_until));
        delays.chain(locks).filter(|wait| !wait.is_zero()).min()
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
}

impl Execution {
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
