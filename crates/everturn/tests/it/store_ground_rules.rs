//! Ground rules of the provider contract, on every store that comes with Everturn.
//!
//! Isolation of damaged rows is tested in `damaged_file` and in the cases named `damage` of the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::{
    Clock, ExecutionMetadata, OrchestrationItem, Provider, ScheduledActivityIdentifier, WorkItem,
};
use everturn::{Client, EventKind, TagFilter};

use crate::stores::{TestStore, on_every_store};
use crate::turn_by_hand::{commit, continued, kv_set};

on_every_store!(
    an_instance_exists_from_its_first_ack_on,
    a_timer_is_a_delayed_message,
    a_cancelled_activity_is_deleted_by_the_ack,
    the_snapshot_holds_what_earlier_executions_left_and_clients_see_all,
    an_abandon_delays_the_instance_and_refunds_the_fetched_messages,
    a_dropped_fetch_takes_nothing,
    visibility_and_locks_follow_the_clock_of_the_store,
);

const LOCK: Duration = Duration::from_secs(30);

async fn fetch(store: &dyn Provider) -> Option<(OrchestrationItem, String, u32)> {
    store.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap()
}

async fn ack(store: &dyn Provider, token: &str, worker_items: Vec<WorkItem>, items: Vec<WorkItem>) {
    let metadata = ExecutionMetadata::default();
    store.ack_orchestration_item(token, 1, vec![], worker_items, items, metadata, vec![]).await.unwrap();
}

/// A client, and an instance `i` whose first turn is committed.
async fn begun(store: &TestStore) -> (Arc<dyn Provider>, Client) {
    let provider = store.provider();
    let client = Client::new(Arc::clone(&provider));
    client.start_orchestration("i", "order", "").await.unwrap();
    commit(&*provider, vec![]).await;
    (provider, client)
}

async fn an_instance_exists_from_its_first_ack_on(store: TestStore) {
    let provider = store.provider();
    let client = Client::new(Arc::clone(&provider));
    client.start_orchestration("i", "order", "").await.unwrap();
    assert!(client.list_all_instances().await.unwrap().is_empty());
    let (_, token, _) = fetch(&*provider).await.unwrap();
    assert!(client.list_all_instances().await.unwrap().is_empty());
    provider.abandon_orchestration_item(&token, None, true).await.unwrap();
    commit(&*provider, vec![]).await;
    assert_eq!(client.list_all_instances().await.unwrap(), ["i"]);
}

async fn a_timer_is_a_delayed_message(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let (provider, client) = begun(&store).await;
    client.raise_event("i", "go", "").await.unwrap();
    let (_, token, _) = fetch(&*provider).await.unwrap();
    let fire_at_ms = provider.now_ms() + 5_000;
    let timer = WorkItem::TimerFired { instance: "i".into(), execution_id: 1, id: 2, fire_at_ms };
    ack(&*provider, &token, vec![], vec![timer.clone()]).await;
    let depths = client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.timer_queue), (1, 0));
    clock.advance(Duration::from_millis(4_999));
    assert!(fetch(&*provider).await.is_none());
    clock.advance(Duration::from_millis(1));
    assert_eq!(fetch(&*provider).await.expect("the timer is due").0.messages, [timer]);
}

async fn a_cancelled_activity_is_deleted_by_the_ack(store: TestStore) {
    let (provider, client) = begun(&store).await;
    let activity = |id| WorkItem::ActivityExecute {
        instance: "i".into(),
        execution_id: 1,
        id,
        name: "pay".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    client.raise_event("i", "go", "").await.unwrap();
    let (_, token, _) = fetch(&*provider).await.unwrap();
    ack(&*provider, &token, vec![activity(2), activity(3)], vec![]).await;
    client.raise_event("i", "go", "").await.unwrap();
    let (_, token, _) = fetch(&*provider).await.unwrap();
    let unwanted = ScheduledActivityIdentifier { instance: "i".into(), execution_id: 1, activity_id: 2 };
    provider
        .ack_orchestration_item(&token, 1, vec![], vec![], vec![], Default::default(), vec![unwanted])
        .await
        .unwrap();
    let work = async || provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    assert_eq!(work().await.expect("the other one").0, activity(3));
    assert!(work().await.is_none());
}

async fn the_snapshot_holds_what_earlier_executions_left_and_clients_see_all(store: TestStore) {
    let (provider, client) = begun(&store).await;
    let snapshot = async || {
        client.raise_event("i", "go", "").await.unwrap();
        let (item, token, _) = fetch(&*provider).await.unwrap();
        provider.abandon_orchestration_item(&token, None, true).await.unwrap();
        item.kv_snapshot.into_iter().map(|(key, entry)| (key, entry.value)).collect::<Vec<_>>()
    };
    let seen = async || client.get_kv_value("i", "key").await.unwrap();
    let kept = || vec![("key".to_owned(), "value".to_owned())];
    client.raise_event("i", "go", "").await.unwrap();
    commit(&*provider, vec![kv_set("key", "value")]).await;
    assert_eq!((snapshot().await, seen().await.as_deref()), (vec![], Some("value")));
    commit(&*provider, continued("second")).await;
    commit(&*provider, vec![]).await;
    assert_eq!((snapshot().await, seen().await.as_deref()), (kept(), Some("value")));
    commit(&*provider, vec![EventKind::KeyValueCleared { key: "key".into() }]).await;
    assert_eq!((snapshot().await, seen().await), (kept(), None), "the base is as it was");
    commit(&*provider, continued("third")).await;
    commit(&*provider, vec![]).await;
    assert_eq!((snapshot().await, seen().await), (vec![], None));
}

async fn an_abandon_delays_the_instance_and_refunds_the_fetched_messages(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let (provider, client) = begun(&store).await;
    client.raise_event("i", "fetched", "").await.unwrap();
    let (_, token, attempts) = fetch(&*provider).await.unwrap();
    assert_eq!(attempts, 1);
    client.raise_event("i", "later", "").await.unwrap();
    provider.abandon_orchestration_item(&token, Some(LOCK), true).await.unwrap();
    assert!(fetch(&*provider).await.is_none(), "the delay applies to later messages, too");
    clock.advance(LOCK);
    let (item, _, attempts) = fetch(&*provider).await.expect("the delay is over");
    assert_eq!(attempts, 1, "the attempt was taken back");
    assert_eq!(item.messages.len(), 2);
}

async fn a_dropped_fetch_takes_nothing(store: TestStore) {
    let (provider, client) = begun(&store).await;
    for round in 0..20 {
        let waiting = tokio::spawn({
            let provider = Arc::clone(&provider);
            async move { provider.fetch_orchestration_item(LOCK, LOCK, None).await }
        });
        tokio::task::yield_now().await;
        let raised = client.raise_event("i", round.to_string(), "");
        waiting.abort();
        raised.await.unwrap();
        // The fetch may have completed before the abort. Then it holds the lock.
        let taken = match waiting.await {
            Ok(taken) => taken,
            Err(_) => provider.fetch_orchestration_item(LOCK, LOCK / 2, None).await,
        };
        let (item, token, attempts) = taken.unwrap().expect("the message is available");
        assert_eq!((item.messages.len(), attempts), (1, 1));
        ack(&*provider, &token, vec![], vec![]).await;
    }
}

async fn visibility_and_locks_follow_the_clock_of_the_store(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let (provider, client) = begun(&store).await;
    assert_eq!(provider.now_ms(), clock.wall_ms());
    client.raise_event("i", "go", "").await.unwrap();
    let (_, token, _) = fetch(&*provider).await.unwrap();
    clock.advance(LOCK - Duration::from_millis(1));
    assert!(fetch(&*provider).await.is_none());
    clock.advance(Duration::from_millis(1));
    assert_eq!(provider.now_ms(), clock.wall_ms());
    let refused = provider.renew_orchestration_item_lock(&token, LOCK).await.unwrap_err();
    assert!(!refused.is_retryable(), "{refused}");
    assert_eq!(fetch(&*provider).await.expect("the lock has ended").2, 2);
}
