//! Wall clock jumps: how long a lock lasts does not depend on the wall clock.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::{ManualClock, MemoryProvider, OrchestrationItem, Provider, TagFilter};

use crate::turns::{LOCK, activity, signal, start};

const NOW_MS: u64 = 1_700_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

fn store() -> (MemoryProvider, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    (MemoryProvider::with_clock(Arc::clone(&clock) as _), clock)
}

async fn fetch(provider: &MemoryProvider) -> Option<(OrchestrationItem, String, u32)> {
    provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap()
}

async fn fetch_work(provider: &MemoryProvider) -> Option<String> {
    let fetched = provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    fetched.map(|(_, token, _)| token)
}

#[tokio::test]
async fn a_clock_set_forward_expires_no_lock() {
    let (provider, clock) = store();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    provider.enqueue_for_worker(activity("b", 2)).await.unwrap();
    let (_, turn, _) = fetch(&provider).await.unwrap();
    let work = fetch_work(&provider).await.unwrap();

    clock.set_wall_ms(NOW_MS + DAY_MS);
    assert!(fetch(&provider).await.is_none() && fetch_work(&provider).await.is_none());
    provider.abandon_orchestration_item(&turn, None, false).await.unwrap();
    provider.ack_work_item(&work, None).await.unwrap();
}

#[tokio::test]
async fn a_clock_set_back_makes_no_lock_last_longer() {
    let (provider, clock) = store();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    provider.enqueue_for_worker(activity("b", 2)).await.unwrap();
    assert!(fetch(&provider).await.is_some() && fetch_work(&provider).await.is_some());

    clock.set_wall_ms(NOW_MS - DAY_MS);
    clock.advance(LOCK);
    assert!(fetch(&provider).await.is_some() && fetch_work(&provider).await.is_some());
}

#[tokio::test]
async fn a_clock_set_back_hides_nothing_that_was_visible_and_keeps_the_order() {
    let (provider, clock) = store();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    provider.enqueue_for_worker(activity("b", 2)).await.unwrap();

    clock.set_wall_ms(NOW_MS - DAY_MS);
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (item, ..) = fetch(&provider).await.unwrap();
    assert!(matches!(
        item.messages[..],
        [WorkItem::StartOrchestration { .. }, WorkItem::ExternalRaised { .. }]
    ));
    assert!(fetch_work(&provider).await.is_some());
}
