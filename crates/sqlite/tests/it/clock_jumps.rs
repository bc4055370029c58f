//! Clocks that jump.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::{ManualClock, Provider};

use crate::store::{LOCK, Store, activity, begin, completion, fetch, fetch_work, signal};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const NOW_MS: u64 = 1_700_000_000_000;

#[tokio::test]
async fn a_clock_set_forward_takes_no_lock_from_its_holder() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let provider = store.open_at(&clock).await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (_, turn, _) = fetch(&provider).await.unwrap();
    let (_, work, _) = fetch_work(&provider).await.unwrap();

    clock.set_wall_ms(NOW_MS + DAY_MS);
    assert!(fetch(&provider).await.is_none(), "the turn is still held");
    assert!(fetch_work(&provider).await.is_none(), "the activity is still held");
    provider.ack_work_item(&work, Some(completion("a", 2))).await.unwrap();
    provider.abandon_orchestration_item(&turn, None, false).await.unwrap();
    assert!(fetch(&provider).await.is_some());
}

#[tokio::test]
async fn a_clock_set_back_makes_no_lock_last_longer() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let provider = store.open_at(&clock).await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (_, turn, _) = fetch(&provider).await.unwrap();
    assert!(fetch_work(&provider).await.is_some());

    clock.set_wall_ms(NOW_MS - DAY_MS);
    clock.advance(LOCK - Duration::from_secs(1));
    assert!(fetch(&provider).await.is_none() && fetch_work(&provider).await.is_none());
    clock.advance(Duration::from_secs(2));
    assert!(fetch(&provider).await.is_some() && fetch_work(&provider).await.is_some());
    assert!(provider.abandon_orchestration_item(&turn, None, false).await.unwrap_err().is_lock_lost());
}

#[tokio::test]
async fn a_clock_set_back_does_not_extend_the_locks_of_a_process_that_no_longer_runs() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let other_process = store.open_at(&clock).await;
    let own_clock = Arc::new(ManualClock::seeded(NOW_MS - DAY_MS, 7));
    let provider = store.open_at(&own_clock).await;
    begin(&other_process, "a", vec![activity("a", 2)]).await;
    other_process.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    assert!(fetch(&other_process).await.is_some() && fetch_work(&other_process).await.is_some());

    assert!(fetch(&provider).await.is_none() && fetch_work(&provider).await.is_none());
    own_clock.advance(LOCK - Duration::from_secs(1));
    assert!(fetch(&provider).await.is_none() && fetch_work(&provider).await.is_none());
    own_clock.advance(Duration::from_secs(2));
    assert!(fetch(&provider).await.is_some() && fetch_work(&provider).await.is_some());
}

#[tokio::test]
async fn a_holder_whose_lock_has_expired_cannot_commit_after_the_clock_was_set_back() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let provider = store.open_at(&clock).await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let (_, work, _) = fetch_work(&provider).await.unwrap();
    clock.set_wall_ms(NOW_MS - DAY_MS);
    clock.advance(LOCK + Duration::from_secs(1));
    // A worker with other tags looks: the lock expires, and no worker takes over.
    let other = everturn_provider::TagFilter::tags(["gpu"]);
    assert!(provider.fetch_work_item(LOCK, Duration::ZERO, None, &other).await.unwrap().is_none());
    assert!(provider.ack_work_item(&work, None).await.unwrap_err().is_lock_lost());
}

#[tokio::test]
async fn a_clock_set_back_revives_no_expired_lock() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let provider = store.open_at(&clock).await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let (_, work, _) = fetch_work(&provider).await.unwrap();
    clock.advance(LOCK + Duration::from_secs(1));
    // A worker with other tags looks: the lock expires, and no worker takes over.
    let other = everturn_provider::TagFilter::tags(["gpu"]);
    assert!(provider.fetch_work_item(LOCK, Duration::ZERO, None, &other).await.unwrap().is_none());
    clock.set_wall_ms(NOW_MS - DAY_MS);
    assert!(provider.renew_work_item_lock(&work, LOCK).await.unwrap_err().is_lock_lost());
    assert!(provider.ack_work_item(&work, None).await.unwrap_err().is_lock_lost());
}

#[tokio::test]
async fn a_clock_set_back_does_not_extend_the_session_of_a_process_that_no_longer_runs() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let other_process = store.open_at(&clock).await;
    let own_clock = Arc::new(ManualClock::seeded(NOW_MS - DAY_MS, 7));
    let provider = store.open_at(&own_clock).await;
    let in_session = |id| everturn_core::WorkItem::ActivityExecute {
        instance: "a".to_owned(),
        execution_id: 1,
        id,
        name: "pay".to_owned(),
        input: String::new(),
        session_id: Some("session".to_owned()),
        tag: None,
    };
    other_process.enqueue_for_worker(in_session(1)).await.unwrap();
    other_process.enqueue_for_worker(in_session(2)).await.unwrap();
    let any = everturn_provider::TagFilter::Any;
    let look = async |provider: &everturn_sqlite::SqliteProvider, owner: &str| {
        let owner_id = owner.to_owned();
        let session = everturn_provider::SessionFetchConfig { owner_id, lock_timeout: LOCK };
        provider.fetch_work_item(LOCK, Duration::ZERO, Some(&session), &any).await.unwrap().is_some()
    };
    assert!(look(&other_process, "stopped").await);
    assert!(!look(&provider, "running").await);
    own_clock.advance(LOCK + Duration::from_secs(1));
    assert!(look(&provider, "running").await);
}

#[tokio::test]
async fn a_clock_set_back_hides_nothing_that_was_visible() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let provider = store.open_at(&clock).await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    clock.set_wall_ms(NOW_MS - DAY_MS);
    assert!(fetch(&provider).await.is_some() && fetch_work(&provider).await.is_some());
}
