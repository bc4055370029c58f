//! Instances kept in memory between their turns.
//!
//! An entry has one owner: the cache, a fetch that borrowed it, or the turn that runs on it. It is warm only for the
//! execution and the stamp it was committed with. An entry of any other state is stale and is dropped, never updated.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::KvEntry;
use everturn_core::turn::Execution;
use everturn_provider::store::{LentInstance, Stamp, WarmView};

use super::deferred_drop::DeferredDrops;
use super::dispatcher::execution_start::ExecutionStart;

/// One execution in memory, with what a turn needs to know of it without its history.
pub(crate) struct WarmEntry {
    pub(crate) execution_id: u64,
    /// The commit this state belongs to.
    pub(crate) stamp: Stamp,
    /// How it began.
    pub(crate) start: Arc<ExecutionStart>,
    /// How many turns this execution has taken.
    pub(crate) turns: u64,
    /// The key-value store it began with, kept only if warm turns are replayed for comparison.
    pub(crate) kv_at_start: Option<HashMap<String, KvEntry>>,
    /// Boxed, because an entry is moved several times a turn.
    execution: Option<Box<Execution>>,
    deferred_drops: DeferredDrops,
}

impl WarmEntry {
    pub(crate) fn new(
        execution: Box<Execution>,
        execution_id: u64,
        stamp: Stamp,
        start: Arc<ExecutionStart>,
        deferred_drops: DeferredDrops,
    ) -> Self {
        Self {
            execution_id,
            stamp,
            start,
            turns: 0,
            kv_at_start: None,
            execution: Some(execution),
            deferred_drops,
        }
    }

    /// The execution; `None` only while the entry is being dropped.
    pub(crate) fn execution(&self) -> Option<&Execution> {
        self.execution.as_deref()
    }

    /// The execution, to run a turn on it.
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
            self.deferred_drops.drop_later(execution);
        }
    }
}

/// The cache; cheap to clone. Evicts the least recently used entry first, by count and by estimated bytes.
#[derive(Clone)]
pub(crate) struct WarmCache(Arc<WarmCacheInner>);

struct WarmCacheInner {
    instances_max: usize,
    bytes_max: usize,
    entries: Mutex<WarmEntries>,
}

#[derive(Default)]
struct WarmEntries {
    by_instance: HashMap<String, CachedEntry>,
    /// Instances by when they were last inserted.
    by_age: BTreeMap<u64, String>,
    next_age: u64,
    bytes: usize,
    closed: bool,
}

struct CachedEntry {
    entry: WarmEntry,
    age: u64,
    bytes: usize,
}

impl WarmCache {
    /// A cache of at most `instances_max` instances and `bytes_max` estimated bytes. If either is 0 it keeps nothing.
    pub(crate) fn new(instances_max: usize, bytes_max: usize) -> Self {
        Self(Arc::new(WarmCacheInner { instances_max, bytes_max, entries: Mutex::default() }))
    }

    /// Returns false if the limits keep nothing.
    pub(crate) fn is_enabled(&self) -> bool {
        self.0.instances_max > 0 && self.0.bytes_max > 0
    }

    /// Inserts an instance, replacing the entry that was cached for it.
    pub(crate) fn insert(&self, instance: String, entry: WarmEntry) {
        let bytes = entry.weight_bytes();
        let dropped = {
            let mut entries = self.entries();
            if entries.closed || !self.is_enabled() || bytes > self.0.bytes_max {
                vec![entry]
            } else {
                let mut dropped: Vec<WarmEntry> =
                    entries.remove(&instance).into_iter().map(|(_, e)| e).collect();
                entries.insert(instance, entry, bytes);
                while entries.by_instance.len() > self.0.instances_max || entries.bytes > self.0.bytes_max {
                    let Some((_, oldest)) = entries.by_age.pop_first() else { break };
                    dropped.extend(entries.remove(&oldest).map(|(_, entry)| entry));
                }
                dropped
            }
        };
        // After the lock is released, because dropping an entry runs other code.
        drop(dropped);
    }

    /// How a cached execution began, if it waits for this activity. One that does not may belong to a deleted instance
    /// with the same id.
    pub(crate) fn start_of(
        &self,
        instance: &str,
        execution_id: u64,
        activity_id: u64,
    ) -> Option<Arc<ExecutionStart>> {
        let entries = self.entries();
        let entry = &entries.by_instance.get(instance)?.entry;
        let waits = entry.execution_id == execution_id
            && entry.execution().is_some_and(|execution| execution.awaits_activity(activity_id));
        waits.then(|| Arc::clone(&entry.start))
    }

    /// How many instances are cached.
    pub(crate) fn len(&self) -> usize {
        self.entries().by_instance.len()
    }

    /// Drops every entry, and every entry that is inserted later.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut entries = self.entries();
            entries.closed = true;
            entries.by_age.clear();
            entries.bytes = 0;
            std::mem::take(&mut entries.by_instance)
        };
        drop(dropped);
    }

    #[cfg(test)]
    fn instances(&self) -> Vec<String> {
        self.entries().by_age.values().cloned().collect()
    }

    fn entries(&self) -> MutexGuard<'_, WarmEntries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmEntries {
    fn insert(&mut self, instance: String, entry: WarmEntry, bytes: usize) {
        let age = self.next_age;
        self.next_age += 1;
        self.bytes += bytes;
        self.by_age.insert(age, instance.clone());
        self.by_instance.insert(instance, CachedEntry { entry, age, bytes });
    }

    fn remove(&mut self, instance: &str) -> Option<(String, WarmEntry)> {
        let (instance, cached) = self.by_instance.remove_entry(instance)?;
        self.by_age.remove(&cached.age);
        self.bytes = self.bytes.saturating_sub(cached.bytes);
        Some((instance, cached.entry))
    }
}

impl WarmView for WarmCache {
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance> {
        let (instance, entry) = self.entries().remove(instance)?;
        if entry.execution_id != execution_id || entry.stamp != stamp {
            return None;
        }
        Some(LentInstance::new(LentEntry { instance, entry: Some(entry), cache: self.clone() }))
    }
}

/// A borrowed entry. If it is dropped before it is taken, it returns to the cache unchanged.
pub(crate) struct LentEntry {
    instance: String,
    entry: Option<WarmEntry>,
    cache: WarmCache,
}

impl LentEntry {
    /// Takes the entry.
    pub(crate) fn into_entry(mut self) -> Option<WarmEntry> {
        self.entry.take()
    }
}

impl Drop for LentEntry {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.cache.insert(std::mem::take(&mut self.instance), entry);
        }
    }
}

/// An entry whose turn is being committed: cached once the commit is durable, dropped otherwise.
pub(crate) struct CheckInSlot {
    instance: String,
    entry: Mutex<Option<WarmEntry>>,
    cache: WarmCache,
}

impl CheckInSlot {
    pub(crate) fn new(instance: String, entry: WarmEntry, cache: WarmCache) -> Self {
        Self { instance, entry: Mutex::new(Some(entry)), cache }
    }

    /// Moves the entry into the cache. A second call does nothing.
    pub(crate) fn check_in(&self) {
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(entry) = entry {
            self.cache.insert(self.instance.clone(), entry);
        }
    }

    /// Drops the entry: its turn was not committed, or the provider does not check in.
    pub(crate) fn void(&self) {
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(entry);
    }
}

#[cfg(test)]
mod tests;
