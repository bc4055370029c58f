//! Locks held by processes that no longer run.

use std::time::{Duration, Instant};

use everturn_core::WorkItem;
use everturn_provider::{Provider, SessionFetchConfig, TagFilter};
use everturn_sqlite::SqliteProvider;
use everturn_sqlite::testing::{self, Environment};

use crate::store::{LOCK, Store, activity, begin, fetch, fetch_work, settings, signal};

/// Within this time the locks of a process that no longer runs are free.
const RELEASED: Duration = Duration::from_secs(1);
/// Several looks for processes that no longer run.
const LOOKS: Duration = Duration::from_millis(700);

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

/// A provider that a test can end as `kill -9` would end its process.
async fn open_to_be_killed(store: &Store) -> SqliteProvider {
    let environment = Environment { writer_in_task: true, ..Environment::default() };
    testing::open(&store.url(), settings(), environment).await.unwrap()
}

/// Takes the lock of a turn, of an activity and of an activity in a session.
async fn take_locks(holder: &SqliteProvider) {
    begin(holder, "a", vec![activity("a", 2)]).await;
    holder.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    assert!(fetch(holder).await.is_some());
    assert!(fetch_work(holder).await.is_some());
    holder.enqueue_for_worker(in_session(3)).await.unwrap();
    let leased = holder.fetch_work_item(LOCK, Duration::ZERO, Some(&owner("holder")), &TagFilter::Any).await;
    assert!(leased.unwrap().is_some());
}

/// The turn, the activity and the activity in a session, as far as they are free within `wait`.
async fn free_locks(other: &SqliteProvider, wait: Duration) -> [bool; 3] {
    let began = Instant::now();
    let left = || wait.saturating_sub(began.elapsed());
    let turn = other.fetch_orchestration_item(LOCK, left(), None).await.unwrap();
    let work = other.fetch_work_item(LOCK, left(), None, &TagFilter::Any).await.unwrap();
    let session = owner("other");
    let in_session = other.fetch_work_item(LOCK, left(), Some(&session), &TagFilter::Any).await.unwrap();
    let attempts = [turn.as_ref().map(|turn| turn.2), work.as_ref().map(|work| work.2)];
    assert!(
        attempts.iter().flatten().all(|attempts| *attempts == 2),
        "the holder's attempt counts: {attempts:?}"
    );
    [turn.is_some(), work.is_some(), in_session.is_some()]
}

#[tokio::test]
async fn locks_of_a_killed_process_are_free_within_a_second_while_others_have_the_file_open() {
    let store = Store::new();
    let holder = open_to_be_killed(&store).await;
    let (worker, _client) = (store.open().await, store.open().await);
    take_locks(&holder).await;
    testing::kill(&holder).await;
    assert_eq!(free_locks(&worker, RELEASED).await, [true; 3], "turn, activity, activity in a session");
}

#[tokio::test]
async fn a_process_that_opens_the_file_beside_a_client_releases_locks_of_killed_processes() {
    let store = Store::new();
    let holder = open_to_be_killed(&store).await;
    let _client = store.open().await;
    take_locks(&holder).await;
    testing::kill(&holder).await;
    let worker = store.open().await;
    assert_eq!(free_locks(&worker, RELEASED).await, [true; 3], "turn, activity, activity in a session");
}

#[tokio::test]
async fn locks_of_a_provider_that_was_closed_are_free() {
    let store = Store::new();
    let (holder, other) = (store.open().await, store.open().await);
    take_locks(&holder).await;
    holder.close().await;
    assert_eq!(free_locks(&other, RELEASED).await, [true; 3], "turn, activity, activity in a session");
}

#[tokio::test]
async fn locks_of_a_process_that_runs_are_kept() {
    let store = Store::new();
    let (holder, other) = (store.open().await, store.open().await);
    take_locks(&holder).await;
    assert_eq!(free_locks(&other, LOOKS).await, [false; 3], "turn, activity, activity in a session");
}

#[tokio::test]
async fn an_owner_whose_file_is_missing_is_not_taken_for_dead() {
    let store = Store::new();
    let holder = open_to_be_killed(&store).await;
    let _client = store.open().await;
    take_locks(&holder).await;
    std::fs::remove_dir_all(store.owners()).unwrap();
    testing::kill(&holder).await;
    let worker = store.open().await;
    assert_eq!(free_locks(&worker, LOOKS).await, [false; 3], "expiry frees them");
}

#[tokio::test]
async fn a_closed_store_leaves_no_owner_behind() {
    let store = Store::new();
    let killed = open_to_be_killed(&store).await;
    testing::kill(&killed).await;
    let provider = store.open().await;
    assert!(fetch(&provider).await.is_none());
    provider.close().await;
    assert!(!store.owners().exists(), "{:?}", std::fs::read_dir(store.owners()).unwrap().collect::<Vec<_>>());
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

#[tokio::test]
async fn a_process_that_finds_no_lock_file_releases_no_locks_of_a_process_that_runs() {
    let store = Store::new();
    let holder = store.open().await;
    take_locks(&holder).await;
    std::fs::remove_file(store.path().with_file_name("store.db-lock")).unwrap();
    let other = store.open().await;
    assert_eq!(free_locks(&other, LOOKS).await, [false; 3], "turn, activity, activity in a session");
}
