//! The locks of the dead.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::{Provider, SessionFetchConfig, TagFilter};

use crate::store::{LOCK, Store, activity, begin, fetch, fetch_work, signal};

fn in_session(id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "a".to_owned(),
        execution_id: 1,
        id,
        name: "pay".to_owned(),
        input: String::new(),
        session_id: Some("session".to_owned()),
        tag: None,
    }
}

fn owner(id: &str) -> SessionFetchConfig {
    SessionFetchConfig { owner_id: id.to_owned(), lock_timeout: LOCK }
}

#[tokio::test]
async fn whoever_opens_the_file_alone_frees_them_at_once() {
    let store = Store::new();
    let dead = store.open().await;
    begin(&dead, "a", vec![activity("a", 2)]).await;
    dead.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    dead.enqueue_for_worker(in_session(3)).await.unwrap();
    assert!(fetch(&dead).await.is_some());
    assert!(fetch_work(&dead).await.is_some());
    let claimed = dead.fetch_work_item(LOCK, Duration::ZERO, Some(&owner("dead")), &TagFilter::Any).await;
    assert!(claimed.unwrap().is_some());
    dead.close().await;

    let alone = store.open().await;
    let (_, _, attempts) = fetch(&alone).await.expect("the instance is free");
    assert_eq!(attempts, 2, "the attempt of the dead counts");
    let (item, _, attempts) = fetch_work(&alone).await.expect("the activity is free");
    assert_eq!((item, attempts), (activity("a", 2), 2));
    let claimed = alone.fetch_work_item(LOCK, Duration::ZERO, Some(&owner("alive")), &TagFilter::Any).await;
    assert_eq!(claimed.unwrap().expect("the session is free").0, in_session(3));
}

#[tokio::test]
async fn whoever_is_not_alone_waits_for_them() {
    let store = Store::new();
    let holder = store.open().await;
    begin(&holder, "a", vec![activity("a", 2)]).await;
    holder.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (_, turn, _) = fetch(&holder).await.unwrap();
    let (_, work, _) = fetch_work(&holder).await.unwrap();

    let other = store.open().await;
    assert!(fetch(&other).await.is_none());
    assert!(fetch_work(&other).await.is_none());
    holder.ack_work_item(&work, None).await.unwrap();
    holder.abandon_orchestration_item(&turn, None, true).await.unwrap();
    assert!(fetch(&other).await.is_some());
}

#[tokio::test]
async fn a_hidden_start_stays_hidden_and_its_messages_too() {
    let store = Store::new();
    let dead = store.open().await;
    dead.enqueue_for_orchestrator(crate::store::start("b"), None).await.unwrap();
    let (_, token, _) = fetch(&dead).await.unwrap();
    dead.abandon_orchestration_item(&token, Some(Duration::from_secs(600)), false).await.unwrap();
    dead.enqueue_for_orchestrator(
        WorkItem::QueueMessage { instance: "b".to_owned(), name: "q".to_owned(), data: "d".to_owned() },
        None,
    )
    .await
    .unwrap();
    dead.close().await;

    let alone = store.open().await;
    assert!(fetch(&alone).await.is_none());
    let depths = alone.as_management_capability().unwrap().get_queue_depths().await.unwrap();
    assert_eq!(depths.orchestrator_queue, 2);
}
