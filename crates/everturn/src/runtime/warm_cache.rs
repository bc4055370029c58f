//! Instances kept in memory between their turns.
//!
//! An entry has one owner: the cache, a fetch that borrowed it, or the turn that runs on it. It is warm only for the
//! execution and the stamp it was committed with; anything else is stale and is dropped, never caught up.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::turn::Execution;
use everturn_core::{Bug, KvEntry, planted};
use everturn_provider::{LentInstance, Stamp, WarmView};

use super::dispatcher::standing::StartFacts;
use super::graveyard::Graveyard;

/// One execution in memory, with what the pipeline must know of it without its history.
pub(crate) struct WarmEntry {
    pub(crate) execution_id: u64,
    /// The commit this state belongs to.
    pub(crate) stamp: Stamp,
    pub(crate) facts: Arc<StartFacts>,
    /// How many turns this execution has taken.
    pub(crate) turns: u64,
    /// The key-value store it began with, kept only if warm turns are replayed for comparison.
    pub(crate) kv_at_start: Option<HashMap<String, KvEntry>>,
    /// Boxed, because an entry is moved several times a turn.
    execution: Option<Box<Execution>>,
    graveyard: Graveyard,
}

impl WarmEntry {
    pub(crate) fn new(
        execution: Box<Execution>,
        execution_id: u64,
        stamp: Stamp,
        facts: Arc<StartFacts>,
        graveyard: Graveyard,
    ) -> Self {
        Self {
            execution_id,
            stamp,
            facts,
            turns: 0,
            kv_at_start: None,
            execution: Some(execution),
            graveyard,
        }
    }

    /// The execution; `None` only while the entry is being dropped.
    pub(crate) fn execution(&self) -> Option<&Execution> {
        self.execution.as_deref()
    }

    /// The execution, to take a turn.
    pub(crate) fn execution_mut(&mut self) -> Option<&mut Execution> {
        self.execution.as_deref_mut()
    }

    fn weight_bytes(&self) -> usize {
        let kv: usize =
            self.kv_at_start.iter().flatten().map(|(key, entry)| key.len() + entry.value.len()).sum();
        self.execution().map_or(0, Execution::weight_bytes) + kv
    }
}

impl Drop for WarmEntry {
    fn drop(&mut self) {
        if let Some(execution) = self.execution.take() {
            self.graveyard.bury(execution);
        }
    }
}

/// The cache; cheap to clone. It forgets the least recently used first, by count and by estimated weight.
#[derive(Clone)]
pub(crate) struct WarmCache(Arc<Inner>);

struct Inner {
    instances_max: usize,
    bytes_max: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    by_instance: HashMap<String, Kept>,
    /// Instances by when they were last put in.
    by_age: BTreeMap<u64, String>,
    next_age: u64,
    bytes: usize,
    closed: bool,
}

struct Kept {
    entry: WarmEntry,
    age: u64,
    bytes: usize,
}

impl WarmCache {
    /// A cache for at most so many instances and so many estimated bytes; zero of either keeps nothing.
    pub(crate) fn new(instances_max: usize, bytes_max: usize) -> Self {
        Self(Arc::new(Inner { instances_max, bytes_max, held: Mutex::default() }))
    }

    /// Whether anything is ever kept.
    pub(crate) fn is_enabled(&self) -> bool {
        self.0.instances_max > 0 && self.0.bytes_max > 0
    }

    /// Puts an instance in, replacing whatever was held for it.
    pub(crate) fn insert(&self, instance: String, entry: WarmEntry) {
        let bytes = entry.weight_bytes();
        let dropped = {
            let mut held = self.held();
            if held.closed || !self.is_enabled() || bytes > self.0.bytes_max {
                vec![entry]
            } else {
                let mut dropped: Vec<WarmEntry> =
                    held.remove(&instance).into_iter().map(|(_, e)| e).collect();
                held.insert(instance, Kept { entry, age: 0, bytes });
                while held.by_instance.len() > self.0.instances_max || held.bytes > self.0.bytes_max {
                    let Some((_, oldest)) = held.by_age.pop_first() else { break };
                    dropped.extend(held.remove(&oldest).map(|(_, entry)| entry));
                }
                dropped
            }
        };
        // Not before the lock is released: what happens to a dropped entry is not this cache's affair.
        drop(dropped);
    }

    /// The orchestration of an instance that is held where it waits for this activity. A copy that does not may be of
    /// another life of the instance, under the same id.
    pub(crate) fn facts_of(
        &self,
        instance: &str,
        execution_id: u64,
        activity_id: u64,
    ) -> Option<Arc<StartFacts>> {
        let held = self.held();
        let entry = &held.by_instance.get(instance)?.entry;
        let waits = entry.execution_id == execution_id
            && entry.execution().is_some_and(|execution| execution.awaits_activity(activity_id));
        waits.then(|| Arc::clone(&entry.facts))
    }

    /// How many instances are held.
    pub(crate) fn len(&self) -> usize {
        self.held().by_instance.len()
    }

    /// Drops everything, and everything that is put in later.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut held = self.held();
            held.closed = true;
            held.by_age.clear();
            held.bytes = 0;
            std::mem::take(&mut held.by_instance)
        };
        drop(dropped);
    }

    #[cfg(test)]
    fn instances(&self) -> Vec<String> {
        self.held().by_age.values().cloned().collect()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn insert(&mut self, instance: String, mut kept: Kept) {
        kept.age = self.next_age;
        self.next_age += 1;
        self.bytes += kept.bytes;
        self.by_age.insert(kept.age, instance.clone());
        self.by_instance.insert(instance, kept);
    }

    fn remove(&mut self, instance: &str) -> Option<(String, WarmEntry)> {
        let (instance, kept) = self.by_instance.remove_entry(instance)?;
        self.by_age.remove(&kept.age);
        self.bytes = self.bytes.saturating_sub(kept.bytes);
        Some((instance, kept.entry))
    }
}

impl WarmView for WarmCache {
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance> {
        let (instance, entry) = self.held().remove(instance)?;
        if entry.execution_id != execution_id || (entry.stamp != stamp && !planted(Bug::StaleWarmCache)) {
            return None;
        }
        Some(LentInstance::new(Lent { instance, entry: Some(entry), cache: self.clone() }))
    }
}

/// An entry on loan; dropped untaken it goes back as it was.
pub(crate) struct Lent {
    instance: String,
    entry: Option<WarmEntry>,
    cache: WarmCache,
}

impl Lent {
    /// Keeps the entry for good.
    pub(crate) fn into_entry(mut self) -> Option<WarmEntry> {
        self.entry.take()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.cache.insert(std::mem::take(&mut self.instance), entry);
        }
    }
}

/// An entry that waits for its commit: checked in once that is durable, dropped otherwise.
pub(crate) struct CheckInSlot {
    instance: String,
    entry: Mutex<Option<WarmEntry>>,
    cache: WarmCache,
}

impl CheckInSlot {
    pub(crate) fn new(instance: String, entry: WarmEntry, cache: WarmCache) -> Self {
        Self { instance, entry: Mutex::new(Some(entry)), cache }
    }

    /// Moves the entry into the cache; the second time nothing happens.
    pub(crate) fn check_in(&self) {
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(entry) = entry {
            self.cache.insert(self.instance.clone(), entry);
        }
    }

    /// Drops the entry: its commit did not happen, or nobody checks it in.
    pub(crate) fn void(&self) {
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(entry);
    }
}

#[cfg(test)]
mod tests;
