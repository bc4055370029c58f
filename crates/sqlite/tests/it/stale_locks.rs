//! Locks held by processes that no longer run.

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
async fn a_process_that_opens_the_file_alone_releases_them_at_once() {
    let store = Store::new();
    let stopped = store.open().await;
    begin(&stopped, "a", vec![activity("a", 2)]).await;
    stopped.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    stopped.enqueue_for_worker(in_session(3)).await.unwrap();
    assert!(fetch(&stopped).await.is_some());
    assert!(fetch_work(&stopped).await.is_some());
    let leased =
        stopped.fetch_work_item(LOCK, Duration::ZERO, Some(&owner("stopped")), &TagFilter::Any).await;
    assert!(leased.unwrap().is_some());
    stopped.close().await;

    let alone = store.open().await;
    let (_, _, attempts) = fetch(&alone).await.expect("the instance is free");
    assert_eq!(attempts, 2, "the attempt of the stopped process counts");
    let (item, _, attempts) = fetch_work(&alone).await.expect("the activity is free");
    assert_eq!((item, attempts), (activity("a", 2), 2));
    let leased = alone.fetch_work_item(LOCK, Duration::ZERO, Some(&owner("running")), &TagFilter::Any).await;
    assert_eq!(leased.unwrap().expect("the session is free").0, in_session(3));
}

#[tokio::test]
async fn a_process_that_is_not_alone_releases_none() {
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
    let stopped = store.open().await;
    stopped.enqueue_for_orchestrator(crate::store::start("b"), None).await.unwrap();
    let (_, token, _) = fetch(&stopped).await.unwrap();
    stopped.abandon_orchestration_item(&token, Some(Duration::from_secs(600)), false).await.unwrap();
    stopped
        .enqueue_for_orchestrator(
            WorkItem::QueueMessage { instance: "b".to_owned(), name: "q".to_owned(), data: "d".to_owned() },
            None,
        )
        .await
        .unwrap();
    stopped.close().await;

    let alone = store.open().await;
    assert!(fetch(&alone).await.is_none());
    let depths = alone.as_management_capability().unwrap().get_queue_depths().await.unwrap();
    assert_eq!(depths.orchestrator_queue, 2);
}
