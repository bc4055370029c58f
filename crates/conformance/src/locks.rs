//! How long a lock lasts, and what it keeps from other callers.

use std::collections::BTreeSet;
use std::time::Duration;

use everturn_provider::store::{TurnFetch, WorkFetch};

use crate::harness::{CaseHarness, PAST_LOCK, secs};
use crate::items::{activity, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ locks as locks_cases:
    the_time_of_the_store_is_that_of_the_clock,
    a_second_fetch_gives_none_until_expiry,
    five_fetches_have_five_tokens,
    a_lock_lasts_as_long_as_was_asked,
    an_instance_is_fetchable_right_after_a_commit,
    concurrent_fetchers_get_nothing_before_expiry,
    a_crashed_holder_blocks_until_expiry,
}

async fn the_time_of_the_store_is_that_of_the_clock(h: CaseHarness) {
    let before = h.now_ms();
    h.pass(secs(5));
    assert_eq!(h.now_ms(), before + 5_000);
}

async fn a_second_fetch_gives_none_until_expiry(h: CaseHarness) {
    h.send(start("i")).await;
    let first = h.fetched_turn().await;
    assert!(h.next_turn().await.is_none());
    h.pass(secs(29));
    assert!(h.next_turn().await.is_none());
    h.pass(secs(2));
    let second = h.fetched_turn().await;
    assert_ne!(second.lock_token, first.lock_token);
    assert_eq!(second.item.messages, [start("i")]);
}

async fn five_fetches_have_five_tokens(h: CaseHarness) {
    let mut tokens = BTreeSet::new();
    for n in 0..5 {
        h.send(start(&format!("i{n}"))).await;
        h.queue(activity("i", n)).await;
        tokens.insert(h.fetched_turn().await.lock_token);
        tokens.insert(h.fetched_work().await.lock_token);
    }
    assert_eq!(tokens.len(), 10);
}

async fn a_lock_lasts_as_long_as_was_asked(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    h.fetch_turn(&TurnFetch::new(secs(5), Duration::ZERO)).await.unwrap().unwrap();
    h.fetch_one_work(&WorkFetch::new(secs(7), Duration::ZERO)).await.unwrap().unwrap();
    h.pass(Duration::from_millis(4_900));
    assert!(h.next_turn().await.is_none());
    h.pass(Duration::from_millis(200));
    assert!(h.next_turn().await.is_some());
    h.pass(Duration::from_millis(1_800));
    assert!(h.next_work().await.is_none());
    h.pass(Duration::from_millis(200));
    assert!(h.next_work().await.is_some());
}

async fn an_instance_is_fetchable_right_after_a_commit(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "new")).await;
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "new")]);
}

async fn concurrent_fetchers_get_nothing_before_expiry(h: CaseHarness) {
    h.send(start("i")).await;
    h.fetched_turn().await;
    h.pass(secs(15));
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let store = h.store();
        tasks.push(tokio::spawn(async move { store.next_turn_within(Duration::ZERO).await }));
    }
    for task in tasks {
        assert!(task.await.unwrap().unwrap().is_none());
    }
}

async fn a_crashed_holder_blocks_until_expiry(h: CaseHarness) {
    h.send(start("i")).await;
    let store = h.store();
    let holder = tokio::spawn(async move {
        store.next_turn().await.unwrap();
        panic!("the holder crashes");
    });
    assert!(holder.await.unwrap_err().is_panic());
    assert!(h.next_turn().await.is_none());
    h.pass(PAST_LOCK);
    assert_eq!(h.fetched_turn().await.attempt_count, 2);
}
