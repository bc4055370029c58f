use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use everturn_core::turn::{ExecutionIdentity, TurnClock};
use everturn_core::{Event, OrchestrationContext, OrchestrationHandler};

use super::super::deferred_drop::{DeferredDropTask, deferred_drops};
use super::*;

struct FrozenClock;

impl TurnClock for FrozenClock {
    fn store_ms(&self) -> u64 {
        0
    }

    fn stamp_ms(&self) -> u64 {
        0
    }
}

/// A handler that is counted while it exists. It waits for an activity.
struct CountedHandler(Arc<AtomicUsize>);

#[async_trait]
impl OrchestrationHandler for CountedHandler {
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String> {
        ctx.schedule_activity("A", input).await
    }
}

impl Drop for CountedHandler {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct WarmCacheFixture {
    deferred_drops: DeferredDrops,
    task: DeferredDropTask,
    alive: Arc<AtomicUsize>,
}

impl WarmCacheFixture {
    fn new() -> Self {
        let (deferred_drops, task) = deferred_drops();
        Self { deferred_drops, task, alive: Arc::default() }
    }

    fn entry(&self, instance: &str, stamp: u64) -> WarmEntry {
        self.alive.fetch_add(1, Ordering::SeqCst);
        let start = Event::stamped(
            1,
            instance,
            1,
            None,
            0,
            everturn_core::EventKind::OrchestrationStarted {
                name: "N".into(),
                version: "1.0.0".into(),
                input: String::new(),
                parent_instance: None,
                parent_id: None,
                parent_execution_id: None,
                carry_forward_events: None,
                initial_custom_status: None,
            },
        );
        let recorded = Arc::new(ExecutionStart::from_event(&start).unwrap());
        let identity = ExecutionIdentity {
            instance: instance.into(),
            execution_id: 1,
            orchestration_name: "N".into(),
            orchestration_version: "1.0.0".into(),
        };
        let handler = Arc::new(CountedHandler(Arc::clone(&self.alive)));
        let mut execution = Execution::begin(handler, identity, start, HashMap::new(), 1024);
        execution.take_turn(Vec::new(), &FrozenClock);
        WarmEntry::new(Box::new(execution), 1, Stamp(stamp), recorded, self.deferred_drops.clone())
    }

    /// How many executions exist after the deferred drops.
    async fn alive_after_drops(self) -> usize {
        let stop = tokio_util::sync::CancellationToken::new();
        stop.cancel();
        self.task.run(stop).await;
        self.alive.load(Ordering::SeqCst)
    }
}

fn insert(cache: &WarmCache, fixture: &WarmCacheFixture, instance: &str, stamp: u64) {
    cache.insert(instance.to_owned(), fixture.entry(instance, stamp));
}

#[tokio::test]
async fn only_the_committed_state_is_lent_and_a_stale_one_is_dropped() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    insert(&cache, &fixture, "i", 7);
    assert!(cache.lend("other", 1, Stamp(7)).is_none());
    assert!(cache.lend("i", 1, Stamp(8)).is_none());
    assert!(cache.lend("i", 1, Stamp(7)).is_none(), "the stale entry is gone");
    assert_eq!(fixture.alive_after_drops().await, 0);
}

#[tokio::test]
async fn an_entry_lent_but_not_taken_comes_back() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    insert(&cache, &fixture, "i", 7);
    let lent = cache.lend("i", 1, Stamp(7)).unwrap();
    assert!(cache.lend("i", 1, Stamp(7)).is_none(), "it has one owner");
    drop(lent);
    let taken = cache.lend("i", 1, Stamp(7)).unwrap().take::<LentEntry>().unwrap().into_entry().unwrap();
    assert_eq!(taken.stamp, Stamp(7));
    assert!(cache.instances().is_empty());
}

#[tokio::test]
async fn the_least_recently_used_goes_first() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(2, usize::MAX);
    insert(&cache, &fixture, "a", 1);
    insert(&cache, &fixture, "b", 2);
    drop(cache.lend("a", 1, Stamp(1)));
    insert(&cache, &fixture, "c", 3);
    assert_eq!(cache.instances(), ["a", "c"]);
    assert_eq!(fixture.alive_after_drops().await, 2);
}

#[tokio::test]
async fn weight_is_a_limit_too() {
    let fixture = WarmCacheFixture::new();
    let entry = fixture.entry("a", 1);
    let cache = WarmCache::new(100, entry.weight_bytes() * 2);
    cache.insert("a".into(), entry);
    insert(&cache, &fixture, "b", 2);
    insert(&cache, &fixture, "c", 3);
    assert_eq!(cache.instances(), ["b", "c"]);
    let too_small = WarmCache::new(100, 1);
    insert(&too_small, &fixture, "a", 1);
    assert!(too_small.instances().is_empty());
}

#[tokio::test]
async fn a_limit_of_zero_keeps_nothing() {
    let fixture = WarmCacheFixture::new();
    for cache in [WarmCache::new(0, usize::MAX), WarmCache::new(10, 0)] {
        assert!(!cache.is_enabled());
        insert(&cache, &fixture, "a", 1);
        assert!(cache.instances().is_empty());
    }
    assert_eq!(fixture.alive_after_drops().await, 0);
}

#[tokio::test]
async fn a_closed_cache_is_empty_and_stays_so() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    insert(&cache, &fixture, "a", 1);
    insert(&cache, &fixture, "b", 2);
    let lent = cache.lend("b", 1, Stamp(2)).unwrap();
    cache.close();
    drop(lent);
    insert(&cache, &fixture, "c", 3);
    assert!(cache.instances().is_empty());
    assert_eq!(fixture.alive_after_drops().await, 0);
}

#[tokio::test]
async fn check_in_happens_once_and_not_after_it_was_voided() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    let slot = CheckInSlot::new("i".into(), fixture.entry("i", 1), cache.clone());
    slot.check_in();
    slot.check_in();
    slot.void();
    assert_eq!(cache.instances(), ["i"]);
    let voided = CheckInSlot::new("j".into(), fixture.entry("j", 1), cache.clone());
    voided.void();
    voided.check_in();
    assert_eq!(cache.instances(), ["i"]);
}

#[tokio::test]
async fn an_instance_is_known_by_the_activity_it_waits_for() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    insert(&cache, &fixture, "i", 1);
    assert_eq!(cache.start_of("i", 1, 2).unwrap().name, "N");
    assert!(cache.start_of("i", 1, 3).is_none(), "it asked for no such activity");
    assert!(cache.start_of("i", 2, 2).is_none(), "it is at another execution");
    assert!(cache.start_of("j", 1, 2).is_none());
}

#[tokio::test]
async fn the_key_value_store_weighs_its_keys_and_values() {
    let fixture = WarmCacheFixture::new();
    let mut entry = fixture.entry("a", 1);
    let without = entry.weight_bytes();
    let stored = [("ab", "cdef"), ("g", "")].map(|(key, value)| {
        let value = value.to_owned();
        (key.to_owned(), KvEntry { value, last_updated_at_ms: 0 })
    });
    entry.kv_at_start = Some(HashMap::from(stored));
    assert_eq!(entry.weight_bytes(), without + 7);
}

#[tokio::test]
async fn an_instance_that_weighs_as_much_as_the_limit_is_kept() {
    let fixture = WarmCacheFixture::new();
    let bytes = fixture.entry("a", 1).weight_bytes();
    for (bytes_max, kept) in [(bytes, 1), (bytes - 1, 0)] {
        let cache = WarmCache::new(10, bytes_max);
        insert(&cache, &fixture, "a", 1);
        assert_eq!(cache.len(), kept, "{bytes} bytes, and a limit of {bytes_max}");
    }
}

#[tokio::test]
async fn a_step_takes_the_execution_that_waits_for_its_activity() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    insert(&cache, &fixture, "i", 1);
    let take = |execution_id, ids: &[u64]| cache.take_for_step("i", execution_id, ids.iter().copied());
    assert!(take(2, &[2]).is_none(), "it is at another execution");
    assert!(take(1, &[3]).is_none(), "it asked for no such activity");
    assert!(!cache.is_stepping("i"));
    let taken = take(1, &[3, 2]).expect("it waits for one of them");
    assert!(cache.is_stepping("i") && !cache.is_stepping("j"));
    assert!(take(1, &[2]).is_none() && cache.lend("i", 1, Stamp(1)).is_none(), "the step has it");
    assert_eq!(cache.start_of("i", 1, 3).unwrap().name, "N", "what it waits for cannot be told now");
    assert!(cache.start_of("i", 2, 2).is_none(), "the step is one of another execution");
    drop(taken);
    assert!(!cache.is_stepping("i"));
}

#[tokio::test]
async fn the_end_of_a_step_leaves_the_next_step_under_way() {
    let fixture = WarmCacheFixture::new();
    let cache = WarmCache::new(10, usize::MAX);
    insert(&cache, &fixture, "i", 1);
    let take = || cache.take_for_step("i", 1, [2].into_iter()).expect("the instance is in memory");
    let (entry, first) = take();
    cache.insert("i".to_owned(), entry);
    let (_entry, second) = take();
    drop(first);
    assert!(cache.is_stepping("i"), "the second step is under way");
    drop(second);
    assert!(!cache.is_stepping("i"));
}
