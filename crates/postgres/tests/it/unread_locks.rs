//! Locks whose holders never heard of them.

use std::time::Duration;

use everturn_postgres::PostgresProvider;
use everturn_provider::store::{Store as _, Submission, TurnFetch, WorkFetch};

use crate::proxy::Proxy;
use crate::store::{LOCK, TestSchema, activity, begin, fetch_work, next_of, start, step};

/// Much shorter than a lock.
const POLL: Duration = Duration::from_secs(10);

async fn opened(schema: &TestSchema) -> (Proxy, PostgresProvider) {
    let proxy = Proxy::open().await;
    let provider = PostgresProvider::connect(&proxy.url(), schema.options()).await.unwrap();
    (proxy, provider)
}

#[tokio::test]
async fn a_worker_goes_on_after_a_step_whose_commit_was_not_answered() {
    let schema = TestSchema::new();
    let (proxy, provider) = opened(&schema).await;
    begin(&provider, "i", &[2]).await;
    let work = fetch_work(&provider).await.expect("the activity");
    proxy.lose_next_commit();
    let next = next_of(provider.commit_step(&step(&work, 4, 1)).await.unwrap()).expect("the next activity");
    assert!(proxy.has_lost_it());
    assert_eq!((&next.item, next.attempt_count), (&activity("i", 4), 1));
    assert!(!next.lock_left.is_zero() && next.lock_left <= LOCK);
    assert!(fetch_work(&provider).await.is_none(), "it is locked for this worker");
}

#[tokio::test]
async fn a_repeated_step_gives_what_the_first_one_locked() {
    let schema = TestSchema::new();
    let provider = schema.open().await;
    begin(&provider, "i", &[2]).await;
    let work = fetch_work(&provider).await.expect("the activity");
    let step = step(&work, 4, 1);
    let first = next_of(provider.commit_step(&step).await.unwrap()).expect("the next activity");
    let again = next_of(provider.commit_step(&step).await.unwrap()).expect("the next activity");
    assert_eq!((&again.item, &again.lock_token, again.attempt_count), (&first.item, &first.lock_token, 1));
}

#[tokio::test]
async fn the_next_activity_of_a_step_whose_caller_left_returns() {
    let schema = TestSchema::new();
    let provider = schema.open().await;
    begin(&provider, "i", &[2]).await;
    let work = fetch_work(&provider).await.expect("the activity");
    let step = step(&work, 4, 1);
    let mut sql = schema.sql().await;
    let blocking = sql.transaction().await.unwrap();
    blocking.execute("SELECT 1 FROM everturn_instances FOR UPDATE", &[]).await.unwrap();
    tokio::select! {
        biased;
        stepped = provider.commit_step(&step) => panic!("it is blocked: {stepped:?}"),
        () = schema.until_blocked() => {}
    }
    blocking.commit().await.unwrap();
    let next = provider.fetch_work(&WorkFetch::new(LOCK, POLL)).await.unwrap().pop();
    assert_eq!(next.map(|work| (work.item, work.attempt_count)), Some((activity("i", 4), 1)));
}

#[tokio::test]
async fn activities_of_a_fetch_whose_commit_was_not_answered_return() {
    let schema = TestSchema::new();
    let (proxy, provider) = opened(&schema).await;
    begin(&provider, "i", &[2, 3]).await;
    proxy.lose_next_commit();
    let fetch = WorkFetch::new(LOCK, Duration::ZERO).with_work_max(2);
    assert!(provider.fetch_work(&fetch).await.unwrap_err().is_retryable());
    assert!(proxy.has_lost_it());
    for id in [2, 3] {
        let work = provider.fetch_work(&WorkFetch::new(LOCK, POLL)).await.unwrap().pop();
        assert_eq!(work.map(|work| (work.item, work.attempt_count)), Some((activity("i", id), 1)));
    }
}

#[tokio::test]
async fn an_instance_of_a_fetch_whose_commit_was_not_answered_returns() {
    let schema = TestSchema::new();
    let (proxy, provider) = opened(&schema).await;
    provider.submit(&Submission::of(start("i"))).await.unwrap();
    proxy.lose_next_commit();
    assert!(provider.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap_err().is_retryable());
    assert!(proxy.has_lost_it());
    let turn = provider.fetch_turns(&TurnFetch::new(LOCK, POLL)).await.unwrap().pop();
    assert_eq!(turn.map(|turn| (turn.item.instance, turn.attempt_count)), Some(("i".to_owned(), 1)));
}
