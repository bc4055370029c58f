//! Instances kept in memory between their turns.
//!
//! An entry has one owner: the cache, a fetch that borrowed it, or the turn that runs on it. It is warm only for the
//! execution and the stamp it was committed with. An entry of any other state is stale and is dropped, never updated.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn_core::KvEntry;
use everturn_core::turn::Execution;
use everturn_provider::store::{LentInstance, Stamp, WarmView};
use tokio::time::Instant;

use super::deferred_drop::DeferredDrops;
use super::dispatcher::execution_start::ExecutionStart;

/// How long a step under way keeps fetches from taking its instance. If the store does not answer for longer, the instance is
/// replayed: then the store declines the step.
const STEP_HIDES_MAX: Duration = Duration::from_secs(10);

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

    /// Whether its execution waits for this activity.
    pub(crate) fn awaits_activity(&self, activity_id: u64) -> bool {
        self.execution().is_some_and(|execution| execution.awaits_activity(activity_id))
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
    /// Instances with a fused step under way. Their entries are not here.
    stepping: HashMap<String, SteppingInstance>,
    next_step: u64,
    closed: bool,
}

/// What is known of an instance while a fused step of it is under way.
struct SteppingInstance {
    step: u64,
    execution_id: u64,
    start: Arc<ExecutionStart>,
    since: Instant,
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

    /// Takes the instance out for a fused step, if one of these activities is awaited by the cached execution. Until the mark
    /// is dropped, no fetch takes the instance.
    pub(crate) fn take_for_step(
        &self,
        instance: &str,
        execution_id: u64,
        mut activity_ids: impl Iterator<Item = u64>,
    ) -> Option<(WarmEntry, SteppingMark)> {
        let mut entries = self.entries();
        let entry = &entries.by_instance.get(instance)?.entry;
        if entry.execution_id != execution_id || !activity_ids.any(|id| entry.awaits_activity(id)) {
            return None;
        }
        let (instance, entry) = entries.remove(instance)?;
        let step = entries.next_step;
        entries.next_step += 1;
        let since = Instant::now();
        let stepping = SteppingInstance { step, execution_id, start: Arc::clone(&entry.start), since };
        entries.stepping.insert(instance.clone(), stepping);
        drop(entries);
        Some((entry, SteppingMark { instance, step, cache: self.clone() }))
    }

    /// How a cached execution began, if it waits for this activity. One that does not may belong to a deleted instance
    /// with the same id; while a step is under way that cannot be told.
    pub(crate) fn start_of(
        &self,
        instance: &str,
        execution_id: u64,
        activity_id: u64,
    ) -> Option<Arc<ExecutionStart>> {
        let entries = self.entries();
        if let Some(stepping) = entries.stepping.get(instance) {
            return (stepping.execution_id == execution_id).then(|| Arc::clone(&stepping.start));
        }
        let entry = &entries.by_instance.get(instance)?.entry;
        let waits = entry.execution_id == execution_id && entry.awaits_activity(activity_id);
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

    fn holds(&self, instance: &str, execution_id: u64, stamp: Stamp) -> bool {
        let entries = self.entries();
        let held = entries.by_instance.get(instance).map(|cached| &cached.entry);
        held.is_some_and(|entry| entry.execution_id == execution_id && entry.stamp == stamp)
    }

    fn is_stepping(&self, instance: &str) -> bool {
        let entries = self.entries();
        entries.stepping.get(instance).is_some_and(|stepping| stepping.since.elapsed() < STEP_HIDES_MAX)
    }
}

/// A fused step of the instance is under way until this is dropped.
pub(crate) struct SteppingMark {
    instance: String,
    step: u64,
    cache: WarmCache,
}

impl Drop for SteppingMark {
    fn drop(&mut self) {
        let mut entries = self.cache.entries();
        // A later step of the instance may have begun since its entry was inserted.
        if entries.stepping.get(&self.instance).is_some_and(|stepping| stepping.step == self.step) {
            entries.stepping.remove(&self.instance);
        }
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
    held: Mutex<HeldForCommit>,
    cache: WarmCache,
}

/// What waits for the end of a commit.
#[derive(Default)]
struct HeldForCommit {
    /// The execution, if it is worth keeping.
    entry: Option<WarmEntry>,
    /// The mark of a fused step. It ends with the commit: the next fetch may come before the caller of the commit wakes up.
    mark: Option<SteppingMark>,
}

impl CheckInSlot {
    /// A slot for an execution that is worth keeping.
    pub(crate) fn new(instance: String, entry: WarmEntry, cache: WarmCache) -> Self {
        let held = Mutex::new(HeldForCommit { entry: Some(entry), mark: None });
        Self { instance, held, cache }
    }

    /// A slot for a fused step.
    pub(crate) fn of_step(
        instance: String,
        entry: Option<WarmEntry>,
        mark: SteppingMark,
        cache: WarmCache,
    ) -> Self {
        Self { instance, held: Mutex::new(HeldForCommit { entry, mark: Some(mark) }), cache }
    }

    /// Moves the entry into the cache. A second call does nothing.
    pub(crate) fn check_in(&self) {
        let HeldForCommit { entry, mark } = self.take();
        if let Some(entry) = entry {
            self.cache.insert(self.instance.clone(), entry);
        }
        drop(mark);
    }

    /// Drops the entry: its turn was not committed, or the provider does not check in.
    pub(crate) fn void(&self) {
        drop(self.take());
    }

    fn take(&self) -> HeldForCommit {
        std::mem::take(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
