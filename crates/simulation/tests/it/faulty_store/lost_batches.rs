//! Lost batches: none of their calls has an effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn_core::OrchestrationStatus;
use everturn_provider::store::{Stamp, Store};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{Provider, SessionFetchConfig, TagFilter};
use everturn_simulation::BatchFate::Lost;
use everturn_simulation::{FaultyStore, LostBatch, Unanswered};
use tokio::time::{Instant, timeout};

use super::batches::{POLL, WINDOW, begin, fetch_warm, provider, status};
use super::turns::{LOCK, activity, commit, create, empty_turn, fetch, first_turn, signal, start};

#[tokio::test(start_paused = true)]
async fn unanswered_calls_are_made_again() {
    let (provider, fates) = provider();
    fates.lose_next(Lost(Unanswered::RunAgain));
    let begun = Instant::now();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    assert_eq!(begun.elapsed(), 2 * WINDOW);
    assert_eq!(provider.memory().unwrap().message_attempts("a"), [0], "queued exactly once");
    assert_eq!(*fates.lost.lock().unwrap(), [LostBatch { operations: 1, early_tokens: Vec::new() }]);
}

#[tokio::test(start_paused = true)]
async fn unanswered_calls_can_fail_with_a_retryable_error() {
    let (provider, fates) = provider();
    fates.lose_next(Lost(Unanswered::Fail));
    let error = provider.enqueue_for_orchestrator(start("a"), None).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(provider.memory().unwrap().message_attempts("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_began_early_cannot_commit() {
    let (provider, fates) = provider();
    create(&*provider, "a", Stamp(5)).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    fates.lose_next(Lost(Unanswered::RunAgain));
    let void = fetch_warm(&provider, Stamp(5)).await;
    assert!(void.warm.is_some());
    let error = commit(&*provider, &empty_turn(&void.lock_token, Stamp(6))).await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
    let lost = LostBatch { operations: 2, early_tokens: vec![void.lock_token.clone()] };
    assert_eq!(*fates.lost.lock().unwrap(), [lost]);

    let again = fetch_warm(&provider, Stamp(5)).await;
    assert_eq!((again.attempt_count, again.item.messages.len()), (1, 1), "as if it had not been fetched");
    assert!(again.warm.is_some(), "the stamp is the one before");
    assert_ne!(again.lock_token, void.lock_token);
    let error = commit(&*provider, &empty_turn(&void.lock_token, Stamp(6))).await.unwrap_err();
    assert!(error.is_lock_lost(), "a void token stays void: {error}");
    commit(&*provider, &empty_turn(&again.lock_token, Stamp(7))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_lost_turn_is_reported() {
    let (provider, fates) = provider();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let token = fetch(&*provider).await;
    let checked_in = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&checked_in);
    let mut turn = first_turn("a", &token, Stamp(5));
    turn.worker_items = vec![activity("a", 2).into()];
    turn.check_in = Some(Arc::new(move || seen.store(true, Ordering::SeqCst)));
    let mut watch = provider.watch("a");
    fates.lose_next(Lost(Unanswered::Fail));
    let committing = Arc::clone(&provider);
    let begun = Instant::now();
    let answer = begin(async move { commit(&*committing, &turn).await }).await;
    let working = Arc::clone(&provider);
    let work = begin(async move { working.fetch_work_item(LOCK, POLL, None, &TagFilter::Any).await }).await;
    let read = status(&*provider, "a").await.unwrap_err();
    assert!(read.is_retryable(), "the read saw uncommitted data: {read}");
    assert!(answer.await.unwrap().unwrap_err().is_retryable());
    assert!(work.await.unwrap().unwrap_err().is_retryable());
    assert_eq!(begun.elapsed(), WINDOW);
    assert!(!checked_in.load(Ordering::SeqCst));
    assert!(timeout(Duration::from_millis(900), watch.changed(POLL)).await.is_err(), "nothing has changed");
    assert_eq!(status(&*provider, "a").await.unwrap(), OrchestrationStatus::NotFound);
    commit(&*provider, &first_turn("a", &token, Stamp(5))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_lost_batch_is_not_returned() {
    let (provider, fates) = provider();
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    let (_, token, _) = provider.fetch_work_item(LOCK, POLL, None, &TagFilter::Any).await.unwrap().unwrap();
    fates.lose_next(Lost(Unanswered::RunAgain));
    // The first ack succeeds and the second is refused. Then both are undone, and the one that is repeated first succeeds.
    let acks = [0, 1].map(|_| {
        let (provider, token) = (Arc::clone(&provider), token.clone());
        tokio::spawn(async move { provider.ack_work_item(&token, None).await.is_ok() })
    });
    let mut succeeded = 0;
    for ack in acks {
        succeeded += usize::from(ack.await.unwrap());
    }
    assert_eq!(succeeded, 1);
    assert!(provider.memory().unwrap().work_item_attempts("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_parked_fetch_gets_the_work_of_a_lost_batch() {
    let (provider, fates) = provider();
    create(&*provider, "a", Stamp(5)).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    fates.lose_next(Lost(Unanswered::RunAgain));
    let void = fetch_warm(&provider, Stamp(5)).await;
    let waiting = Arc::clone(&provider);
    let next = begin(async move { fetch_warm(&waiting, Stamp(5)).await }).await;
    let begun = Instant::now();
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    let next = next.await.unwrap();
    assert_eq!((next.attempt_count, begun.elapsed()), (1, 2 * WINDOW));
    assert_ne!(next.lock_token, void.lock_token);
}

async fn fetch_in_session(
    provider: &FaultyStore,
    owner: &str,
) -> Option<(everturn_core::WorkItem, String, u32)> {
    let session = SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LOCK };
    provider.fetch_work_item(LOCK, Duration::ZERO, Some(&session), &TagFilter::Any).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn work_of_a_dropped_fetch_is_returned_even_in_a_lost_batch() {
    let (provider, fates) = provider();
    let mut item = activity("a", 2);
    if let everturn_core::WorkItem::ActivityExecute { session_id, .. } = &mut item {
        *session_id = Some("s".to_owned());
    }
    provider.enqueue_for_worker(item).await.unwrap();
    // The fetch is dropped after its batch is committed and before it is polled again. The next batch is lost.
    let mut fetch = Box::pin(fetch_in_session(&provider, "gone"));
    assert!(timeout(Duration::ZERO, &mut fetch).await.is_err());
    let sent = provider.enqueue_for_orchestrator(start("b"), None);
    sent.await.unwrap();
    fates.lose_next(Lost(Unanswered::Fail));
    let sending = Arc::clone(&provider);
    let send = begin(async move { sending.enqueue_for_orchestrator(start("c"), None).await }).await;
    drop(fetch);
    assert!(send.await.unwrap().is_err());
    assert_eq!(provider.memory().unwrap().work_item_attempts("a"), [0]);
    let (_, _, attempts) = fetch_in_session(&provider, "other").await.expect("the session is free again");
    assert_eq!(attempts, 1);
}
