//! The key-value store of an instance: a base that ended executions left, and the live writes over it.

use std::collections::{BTreeMap, HashMap};

use everturn_core::{EventKind, KvEntry};

use super::tables::Tables;

/// One instance's keys.
#[derive(Debug, Default, Clone)]
pub(crate) struct KvStore {
    /// What ended executions left.
    base: BTreeMap<String, KvEntry>,
    /// What the current execution wrote; `None` is a tombstone.
    delta: BTreeMap<String, Option<KvEntry>>,
}

impl KvStore {
    /// Applies an event of the current execution; those that are not about keys do nothing.
    pub(super) fn apply(&mut self, kind: &EventKind) {
        match kind {
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let entry = KvEntry { value: value.clone(), last_updated_at_ms: *last_updated_at_ms };
                self.delta.insert(key.clone(), Some(entry));
            }
            EventKind::KeyValueCleared { key } => {
                self.delta.insert(key.clone(), None);
            }
            EventKind::KeyValuesCleared => {
                self.delta = self.base.keys().map(|key| (key.clone(), None)).collect();
            }
            EventKind::OrchestrationStarted { .. }
            | EventKind::OrchestrationCompleted { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::OrchestrationContinuedAsNew { .. }
            | EventKind::OrchestrationCancelRequested { .. }
            | EventKind::OrchestrationChained { .. }
            | EventKind::ActivityScheduled { .. }
            | EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::ActivityCancelRequested { .. }
            | EventKind::TimerCreated { .. }
            | EventKind::TimerFired { .. }
            | EventKind::ExternalSubscribed { .. }
            | EventKind::ExternalEvent { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscribed { .. }
            | EventKind::QueueEventDelivered { .. }
            | EventKind::QueueSubscriptionCancelled { .. }
            | EventKind::SubOrchestrationScheduled { .. }
            | EventKind::SubOrchestrationCompleted { .. }
            | EventKind::SubOrchestrationFailed { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::CustomStatusUpdated { .. } => {}
        }
    }

    /// The execution has ended: its writes become part of the base.
    pub(super) fn merge(&mut self) {
        for (key, entry) in std::mem::take(&mut self.delta) {
            match entry {
                Some(entry) => self.base.insert(key, entry),
                None => self.base.remove(&key),
            };
        }
    }

    /// The base alone: what the current execution began with.
    pub(super) fn snapshot(&self) -> HashMap<String, KvEntry> {
        self.base.iter().map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }

    /// Base and live writes as one.
    pub(super) fn merged(&self) -> BTreeMap<&str, &str> {
        let mut merged: BTreeMap<&str, &str> =
            self.base.iter().map(|(key, entry)| (key.as_str(), entry.value.as_str())).collect();
        for (key, entry) in &self.delta {
            match entry {
                Some(entry) => merged.insert(key, &entry.value),
                None => merged.remove(key.as_str()),
            };
        }
        merged
    }
}

/// Whether an event is about keys.
pub(super) fn is_kv_event(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::KeyValueSet { .. } | EventKind::KeyValueCleared { .. } | EventKind::KeyValuesCleared
    )
}

impl Tables {
    /// A key, with the live writes.
    pub fn read_kv_value(&self, instance: &str, key: &str) -> Option<String> {
        self.kv.get(instance)?.merged().get(key).map(|value| (*value).to_owned())
    }

    /// All keys, with the live writes.
    pub fn read_kv_values(&self, instance: &str) -> HashMap<String, String> {
        let Some(kv) = self.kv.get(instance) else { return HashMap::new() };
        kv.merged().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}
