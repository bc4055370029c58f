//! Turns with thousands of activities.

use std::time::{Duration, Instant};

use everturn_provider::{ExecutionMetadata, Provider, ScheduledActivityIdentifier};

use crate::store::{Store, activity, begin, completion, fetch, scheduled, signal};

const MANY: u64 = 10_000;

#[tokio::test]
async fn ten_thousand_activities_are_scheduled_and_cancelled_in_one_turn_each() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (_, token, _) = fetch(&provider).await.unwrap();
    let events = (2..2 + MANY).map(|id| scheduled("a", id)).collect();
    let activities = (2..2 + MANY).map(|id| activity("a", id)).collect();
    let began = Instant::now();
    provider
        .ack_orchestration_item(&token, 1, events, activities, vec![], ExecutionMetadata::default(), vec![])
        .await
        .unwrap();
    let admin = provider.as_management_capability().unwrap();
    assert_eq!(admin.get_queue_depths().await.unwrap().worker_queue, 10_000);

    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (item, token, _) = fetch(&provider).await.unwrap();
    assert_eq!(item.history.len(), 10_001);
    let cancelled = (2..2 + MANY)
        .map(|activity_id| ScheduledActivityIdentifier {
            instance: "a".to_owned(),
            execution_id: 1,
            activity_id,
        })
        .collect();
    provider
        .ack_orchestration_item(&token, 1, vec![], vec![], vec![], ExecutionMetadata::default(), cancelled)
        .await
        .unwrap();
    assert_eq!(admin.get_queue_depths().await.unwrap().worker_queue, 0);
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn ten_thousand_messages_are_delivered_in_one_turn_in_order() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.enqueue_for_orchestrator(signal("b"), None).await.unwrap();
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (_, token, _) = fetch(&provider).await.unwrap();
    let messages: Vec<_> = (1..=MANY).map(|id| completion("a", id)).collect();
    provider
        .ack_orchestration_item(
            &token,
            1,
            vec![],
            vec![],
            messages.clone(),
            ExecutionMetadata::default(),
            vec![],
        )
        .await
        .unwrap();
    let (item, _, _) = fetch(&provider).await.unwrap();
    assert_eq!(item.messages, messages);
}
