//! Records that can no longer be read.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::Stamp;
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{MemoryProvider, Provider, TagFilter};

use crate::turns::{LOCK, activity, create, signal};

#[tokio::test]
async fn a_damaged_event_fails_reads_and_is_reported_by_a_fetch() {
    let provider = MemoryProvider::new();
    create(&provider, "a", Stamp(1)).await;
    assert!(provider.damage_event("a", 1, 1));
    assert!(!provider.damage_event("a", 1, 2));
    assert!(provider.read("a").await.unwrap_err().is_damaged());
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (item, _, attempts) =
        provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().unwrap();
    assert!(item.history_error.unwrap().contains("event 1"));
    assert_eq!((item.history.len(), item.messages.len(), attempts), (0, 1, 1));
}

#[tokio::test]
async fn a_damaged_message_is_named_and_removed_by_the_ack() {
    let provider = MemoryProvider::new();
    create(&provider, "a", Stamp(1)).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    assert_eq!(provider.damage_messages("a"), 1);
    let (item, token, _) =
        provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().unwrap();
    assert!(item.history_error.unwrap().contains("message"));
    let nothing = everturn_provider::ExecutionMetadata::default();
    provider.ack_orchestration_item(&token, 1, vec![], vec![], vec![], nothing, vec![]).await.unwrap();
    assert!(provider.message_attempts("a").is_empty());
}

#[tokio::test]
async fn a_damaged_activity_fails_its_instance_and_blocks_no_other() {
    let provider = MemoryProvider::new();
    create(&provider, "a", Stamp(1)).await;
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    provider.enqueue_for_worker(activity("b", 3)).await.unwrap();
    assert_eq!(provider.damage_work_items("a", false), 1);
    let work = provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    assert_eq!(work.unwrap().0, activity("b", 3));
    let (item, _, _) = provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().unwrap();
    assert!(matches!(item.messages[..], [WorkItem::ActivityFailed { id: 2, .. }]), "{:?}", item.messages);
}

#[tokio::test]
async fn a_damaged_activity_without_an_instance_is_dead_lettered() {
    let provider = MemoryProvider::new();
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    assert_eq!(provider.damage_work_items("a", true), 1);
    let work = provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    assert!(work.is_none());
    assert_eq!(provider.dead_letters(), 1);
    assert!(provider.message_attempts("a").is_empty());
}
