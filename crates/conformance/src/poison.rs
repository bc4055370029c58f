//! Attempts are counted, so that the engine can stop trying a message that crashes its process.

use crate::harness::{CaseHarness, PAST_LOCK, secs};
use crate::items::{activity, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ poison as poison_cases:
    the_first_fetch_is_attempt_one,
    each_abandon_and_refetch_adds_one,
    each_expiry_and_refetch_adds_one,
    the_count_belongs_to_the_message,
    a_batch_reports_the_highest_count,
    every_message_of_a_batch_is_counted,
    refunds_stop_at_zero,
    the_stored_count_is_that_of_each_message,
    a_second_activity_starts_at_one,
}

async fn the_first_fetch_is_attempt_one(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    assert_eq!(h.fetched_turn().await.attempt_count, 1);
    assert_eq!(h.fetched_work().await.attempt_count, 1);
}

async fn each_abandon_and_refetch_adds_one(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    for attempt in 1..=12 {
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.attempt_count, attempt);
        h.release_turn(&fetched.lock_token, None, false).await.unwrap();
        let work = h.fetched_work().await;
        assert_eq!(work.attempt_count, attempt);
        h.release_work(&work.lock_token, None, false).await.unwrap();
    }
}

async fn each_expiry_and_refetch_adds_one(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    for attempt in 1..=4 {
        assert_eq!(h.fetched_turn().await.attempt_count, attempt);
        assert_eq!(h.fetched_work().await.attempt_count, attempt);
        h.pass(PAST_LOCK);
    }
}

async fn the_count_belongs_to_the_message(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    for _ in 0..3 {
        let fetched = h.fetched_turn().await;
        h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    }
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.attempt_count, 4);
    SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    h.send(signal("i", "b")).await;
    assert_eq!(h.fetched_turn().await.attempt_count, 1);
}

async fn a_batch_reports_the_highest_count(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "old")).await;
    for _ in 0..2 {
        let fetched = h.fetched_turn().await;
        h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    }
    h.send(signal("i", "new")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages.len(), 2);
    assert_eq!(fetched.attempt_count, 3);
}

async fn every_message_of_a_batch_is_counted(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    h.send_later(signal("i", "b"), secs(5)).await;
    h.pass(secs(6));
    let both = h.fetched_turn().await;
    assert_eq!(both.item.messages.len(), 2);
    h.release_turn(&both.lock_token, None, false).await.unwrap();
    let both = h.fetched_turn().await;
    assert_eq!(both.attempt_count, 2);
    h.release_turn(&both.lock_token, None, true).await.unwrap();
    assert_eq!(h.fetched_turn().await.attempt_count, 2, "the refund was for both");
}

async fn refunds_stop_at_zero(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    for _ in 0..3 {
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.attempt_count, 1);
        h.release_turn(&fetched.lock_token, None, true).await.unwrap();
        let work = h.fetched_work().await;
        assert_eq!(work.attempt_count, 1);
        h.release_work(&work.lock_token, None, true).await.unwrap();
    }
}

async fn the_stored_count_is_that_of_each_message(h: CaseHarness) {
    let Some(none) = h.message_attempts("i").await else { return };
    assert!(none.is_empty(), "nothing waits: {none:?}");
    let counts = async || h.message_attempts("i").await.unwrap();
    h.send(start("i")).await;
    assert_eq!(counts().await, [0], "it was not fetched");
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "late")).await;
    assert_eq!(counts().await, [1, 0]);
    h.release_turn(&fetched.lock_token, None, true).await.unwrap();
    assert_eq!(counts().await, [0, 0], "taken back, from what was fetched only");
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    h.send_later(signal("i", "later"), secs(5)).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(counts().await, [2, 2, 0]);
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(counts().await, [0], "the commit removed what was fetched, and that only");
}

async fn a_second_activity_starts_at_one(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.release_work(&work.lock_token, None, false).await.unwrap();
    h.queue(activity("i", 2)).await;
    assert_eq!(h.fetched_work().await.attempt_count, 2);
    assert_eq!(h.fetched_work().await.attempt_count, 1);
}
