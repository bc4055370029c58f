//! Several providers on one file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_provider::store::Store as _;
use everturn_provider::{ManualClock, Provider, TagFilter};

use crate::store::{
    LOCK, Store, activity, begin, completion, fetch, fetch_work, named, signal, start, started, until,
};

/// Providers of one process wake each other. Well below the interval at which a writer looks for other processes' commits.
const SOON: Duration = Duration::from_millis(50);
/// The quickest of this many rounds counts: the machine may be busy.
const ROUNDS: usize = 10;

#[tokio::test]
async fn a_parked_fetch_is_woken_by_another_provider_of_the_process() {
    let store = Store::new();
    let (one, other) = (store.open().await, Arc::new(store.open().await));
    let mut quickest = Duration::MAX;
    for round in 0..ROUNDS {
        let waiting = tokio::spawn({
            let other = Arc::clone(&other);
            async move { other.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap() }
        });
        // The first look of the parked fetch must be over, or this tests nothing; a look of our own comes after it.
        tokio::task::yield_now().await;
        assert!(fetch_work(&other).await.is_none());
        let instance = format!("i{round}");
        one.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        let began = Instant::now();
        let (item, ..) = waiting.await.unwrap().expect("the other's work");
        assert_eq!(item.instance, instance);
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < SOON, "the quickest of {ROUNDS} wake-ups took {quickest:?}");
}

#[tokio::test]
async fn a_watch_ends_when_another_provider_of_the_process_changes_the_instance() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let mut quickest = Duration::MAX;
    for round in 0..ROUNDS {
        let instance = format!("i{round}");
        let mut watch = other.watch(&instance);
        begin(&one, &instance, vec![]).await;
        let began = Instant::now();
        let changed = watch.changed(Duration::from_secs(20));
        tokio::time::timeout(Duration::from_secs(10), changed).await.expect("the commit is noticed");
        quickest = quickest.min(began.elapsed());
        assert_eq!(other.read(&instance).await.unwrap(), one.read(&instance).await.unwrap());
    }
    assert!(quickest < SOON, "the quickest of {ROUNDS} watches took {quickest:?}");
}

#[tokio::test]
async fn commits_of_others_fire_no_watch_on_an_instance_that_they_do_not_change() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    begin(&one, "still", vec![]).await;
    let (mut still, mut changed) = (other.watch("still"), other.watch("changed"));
    // The first commit after the watch began may fire it: what the instance was before is not known.
    one.enqueue_for_orchestrator(start("changed"), None).await.unwrap();
    still.changed(Duration::from_secs(20)).await;
    let (_, token, _) = fetch(&one).await.expect("the start");
    let ack =
        one.ack_orchestration_item(&token, 1, vec![started("changed")], vec![], vec![], named(), vec![]);
    ack.await.unwrap();
    let moved = tokio::time::timeout(Duration::from_secs(10), changed.changed(Duration::from_secs(20)));
    moved.await.expect("the commit is noticed");
    // Watches are checked together, so that this one would have fired by now.
    let unmoved = tokio::time::timeout(Duration::from_millis(300), still.changed(Duration::MAX)).await;
    assert!(unmoved.is_err(), "the watch of an unchanged instance fired");
}

#[tokio::test]
async fn a_holder_that_lost_its_lock_to_another_provider_cannot_commit() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(1_000_000));
    // Each process has tokens of its own.
    let other_clock = Arc::new(ManualClock::seeded(1_000_000, 7));
    let (one, other) = (store.open_at(&clock).await, store.open_at(&other_clock).await);
    begin(&one, "a", vec![activity("a", 2)]).await;
    one.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (_, stale_turn, _) = fetch(&one).await.unwrap();
    let (_, stale_work, _) = fetch_work(&one).await.unwrap();
    assert!(fetch(&other).await.is_none() && fetch_work(&other).await.is_none());

    clock.advance(LOCK);
    other_clock.advance(LOCK);
    let (_, turn, attempts) = fetch(&other).await.expect("the lock has expired");
    assert_eq!(attempts, 2);
    let (_, work, _) = fetch_work(&other).await.expect("the lock has expired");

    let refused = one.ack_work_item(&stale_work, Some(completion("a", 2))).await.unwrap_err();
    assert!(refused.is_lock_lost());
    let refused = one
        .ack_orchestration_item(
            &stale_turn,
            1,
            vec![started("a")],
            vec![],
            vec![],
            Default::default(),
            vec![],
        )
        .await
        .unwrap_err();
    assert!(refused.is_lock_lost());
    other.ack_work_item(&work, Some(completion("a", 2))).await.unwrap();
    other.ack_orchestration_item(&turn, 1, vec![], vec![], vec![], Default::default(), vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_busy_providers_share_the_queue_and_lose_nothing() {
    let store = Store::new();
    let providers = [Arc::new(store.open().await), Arc::new(store.open().await)];
    let mut tasks = Vec::new();
    for (number, provider) in providers.iter().enumerate() {
        let producer = Arc::clone(provider);
        tasks.push(tokio::spawn(async move {
            for id in 1..=150 {
                producer.enqueue_for_worker(activity(&format!("i{number}"), id)).await.unwrap();
            }
            Vec::new()
        }));
        let consumer = Arc::clone(provider);
        tasks.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            let wait = Duration::from_millis(1_500);
            while let Some((item, token, _)) =
                consumer.fetch_work_item(LOCK, wait, None, &TagFilter::Any).await.unwrap()
            {
                consumer.ack_work_item(&token, None).await.unwrap();
                taken.push(serde_json::to_string(&item).unwrap());
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.unwrap());
    }
    taken.sort();
    let before = taken.len();
    taken.dedup();
    assert_eq!((before, taken.len()), (300, 300), "each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_in_a_transaction_delays_and_breaks_nothing() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    let sql = store.sql();
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    let calling = tokio::spawn({
        let provider = Arc::clone(&provider);
        async move { provider.enqueue_for_worker(activity("a", 1)).await }
    });
    // Reads do not wait for the writer.
    assert!(provider.read("a").await.unwrap().is_empty());
    assert!(!calling.is_finished());
    sql.execute_batch("COMMIT").unwrap();
    calling.await.unwrap().unwrap();
    until(async || fetch_work(&provider).await.is_some()).await;
}

#[tokio::test]
async fn a_file_that_stays_locked_is_a_retryable_error() {
    let store = Store::new();
    let options = everturn_sqlite::SqliteOptions {
        busy_timeout: Duration::from_millis(50),
        ..everturn_sqlite::SqliteOptions::default()
    };
    let provider = everturn_sqlite::SqliteProvider::new(&store.url(), Some(options)).await.unwrap();
    let sql = store.sql();
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = provider.enqueue_for_worker(activity("a", 1)).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let refused = provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    sql.execute_batch("COMMIT").unwrap();
    provider.enqueue_for_worker(activity("a", 1)).await.unwrap();
}
