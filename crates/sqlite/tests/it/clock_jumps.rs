//! Clocks that jump.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::{ManualClock, Provider};

use crate::store::{LOCK, Store, activity, begin, completion, fetch, fetch_work, signal};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const NOW_MS: u64 = 1_700_000_000_000;

#[tokio::test]
async fn a_clock_set_forward_takes_no_lock_from_a_living_holder() {
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
async fn a_clock_set_back_does_not_keep_a_dead_neighbours_locks_alive() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let neighbour = store.open_at(&clock).await;
    let own_clock = Arc::new(ManualClock::seeded(NOW_MS - DAY_MS, 7));
    let provider = store.open_at(&own_clock).await;
    begin(&neighbour, "a", vec![activity("a", 2)]).await;
    neighbour.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    assert!(fetch(&neighbour).await.is_some() && fetch_work(&neighbour).await.is_some());

    assert!(fetch(&provider).await.is_none() && fetch_work(&provider).await.is_none());
    own_clock.advance(LOCK - Duration::from_secs(1));
    assert!(fetch(&provider).await.is_none() && fetch_work(&provider).await.is_none());
    own_clock.advance(Duration::from_secs(2));
    assert!(fetch(&provider).await.is_some() && fetch_work(&provider).await.is_some());
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
