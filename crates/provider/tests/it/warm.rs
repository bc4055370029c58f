//! Warm instances: lending cached state to a fetch, and checking it in at the commit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_core::{Event, EventKind};
use everturn_provider::store::{FetchedTurn, LentInstance, Stamp, Store, TurnFetch, WarmView};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{ManualClock, MemoryProvider, Provider};

use crate::turns::{LOCK, commit, create, empty_turn, fetch, first_turn, signal, start};

/// Lends a number for the one state it holds, and records every request.
#[derive(Default)]
struct OneStateCache {
    held: Option<(String, u64, Stamp)>,
    asked: Mutex<Vec<(String, u64, Stamp)>>,
}

impl WarmView for OneStateCache {
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance> {
        let state = (instance.to_owned(), execution_id, stamp);
        self.asked.lock().unwrap().push(state.clone());
        (self.held.as_ref() == Some(&state)).then(|| LentInstance::new(7_u32))
    }
}

fn provider() -> MemoryProvider {
    MemoryProvider::with_clock(Arc::new(ManualClock::new(1_000)))
}

async fn fetch_with(provider: &MemoryProvider, cache: Arc<OneStateCache>) -> FetchedTurn {
    let fetch = TurnFetch::new(LOCK, Duration::ZERO).with_warm(cache);
    provider.fetch_turns(&fetch).await.unwrap().remove(0)
}

#[tokio::test]
async fn an_instance_held_at_its_stamp_comes_without_history() {
    let provider = provider();
    create(&provider, "a", Stamp(5)).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let cache =
        Arc::new(OneStateCache { held: Some(("a".to_owned(), 1, Stamp(5))), ..OneStateCache::default() });
    let turn = fetch_with(&provider, cache).await;
    assert_eq!(turn.warm.unwrap().take::<u32>(), Some(7));
    assert_eq!(turn.stamp, Some(Stamp(5)));
    assert!(turn.item.history.is_empty());
    assert_eq!(turn.item.messages, [signal("a")]);
}

#[tokio::test]
async fn events_appended_by_a_tool_make_the_cached_state_stale() {
    let provider = provider();
    create(&provider, "a", Stamp(5)).await;
    let event = Event::stamped(2, "a", 1, None, 0, EventKind::ExternalSubscribed { name: "go".to_owned() });
    provider.append_with_execution("a", 1, vec![event]).await.unwrap();
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let cache =
        Arc::new(OneStateCache { held: Some(("a".to_owned(), 1, Stamp(5))), ..OneStateCache::default() });
    let turn = fetch_with(&provider, cache).await;
    assert!(turn.warm.is_none());
    assert_eq!(turn.item.history.len(), 2);
}

#[tokio::test]
async fn an_instance_without_execution_is_not_looked_up() {
    let provider = provider();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let cache = Arc::new(OneStateCache::default());
    let turn = fetch_with(&provider, cache.clone()).await;
    assert_eq!(turn.stamp, None);
    assert!(cache.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_commit_on_another_stamp_is_refused_and_keeps_the_lock() {
    let provider = provider();
    create(&provider, "a", Stamp(5)).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let token = fetch(&provider).await;
    let mut turn = empty_turn(&token, Stamp(6));
    turn.base = Some(Stamp(4));
    let error = commit(&provider, &turn).await.unwrap_err();
    assert!(error.is_history_moved());
    turn.base = Some(Stamp(5));
    commit(&provider, &turn).await.unwrap();
}

#[tokio::test]
async fn an_instance_is_checked_in_before_watchers_are_woken() {
    let provider = Arc::new(provider());
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let token = fetch(&*provider).await;
    let checked_in = Arc::new(AtomicBool::new(false));
    let (seen, mut watch) = (Arc::clone(&checked_in), provider.watch("a"));
    let watcher = tokio::spawn(async move {
        watch.changed(Duration::from_secs(10)).await;
        seen.load(Ordering::SeqCst)
    });
    let inside = Arc::clone(&provider);
    let mut turn = first_turn("a", &token, Stamp(5));
    let done = Arc::clone(&checked_in);
    turn.check_in = Some(Arc::new(move || {
        // A check-in may call the store: the store is not locked here.
        assert!(inside.message_attempts("a").is_empty());
        done.store(true, Ordering::SeqCst);
    }));
    commit(&*provider, &turn).await.unwrap();
    assert!(watcher.await.unwrap());
}

#[tokio::test]
async fn a_refused_commit_checks_nothing_in() {
    let provider = provider();
    let mut turn = first_turn("a", "no such token", Stamp(5));
    turn.check_in = Some(Arc::new(|| panic!("checked in without a commit")));
    assert!(commit(&provider, &turn).await.unwrap_err().is_lock_lost());
}
