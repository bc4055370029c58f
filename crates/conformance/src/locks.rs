//! Locks: who holds them, how long, and how they are renewed.

use std::collections::BTreeSet;
use std::time::Duration;

use everturn_provider::{LockKind, LockRenewal, TagFilter};

use crate::events;
use crate::harness::{Harness, LOCK, PAST_LOCK, lock_lost, secs};
use crate::items::{activity, activity_completed, signal, start};
use crate::turn::Turn;

cases! { $ locks as locks_cases:
    the_provider_tells_the_clocks_time,
    a_second_fetch_gives_none_until_expiry,
    five_fetches_have_five_tokens,
    a_lock_lasts_as_long_as_was_asked,
    an_instance_is_fetchable_right_after_an_ack,
    concurrent_fetchers_get_nothing_before_expiry,
    a_crashed_holder_blocks_until_expiry,
    a_renewed_turn_stays_locked_past_its_first_deadline,
    renewing_a_turn_counts_from_now,
    a_turn_renewed_after_expiry_is_refused,
    a_turn_renewed_after_ack_or_abandon_is_refused,
    a_renewed_activity_stays_locked_past_its_first_deadline,
    a_renewed_activity_can_be_acked_past_its_first_deadline,
    unknown_expired_and_acked_activities_cannot_be_renewed,
    a_cancelled_activity_cannot_be_renewed,
    an_activity_is_renewable_whatever_its_instance_does,
    many_locks_are_renewed_in_one_call,
}

async fn the_provider_tells_the_clocks_time(h: Harness) {
    let before = h.now_ms();
    h.pass(secs(5));
    assert_eq!(h.now_ms(), before + 5_000);
}

async fn a_second_fetch_gives_none_until_expiry(h: Harness) {
    h.send(start("i")).await;
    let first = h.fetched().await;
    assert!(h.fetch().await.is_none());
    h.pass(secs(29));
    assert!(h.fetch().await.is_none());
    h.pass(secs(2));
    let second = h.fetched().await;
    assert_ne!(second.token, first.token);
    assert_eq!(second.item.messages, [start("i")]);
}

async fn five_fetches_have_five_tokens(h: Harness) {
    let mut tokens = BTreeSet::new();
    for n in 0..5 {
        h.send(start(&format!("i{n}"))).await;
        h.queue(activity("i", n)).await;
        tokens.insert(h.fetched().await.token);
        tokens.insert(h.fetched_work().await.token);
    }
    assert_eq!(tokens.len(), 10);
}

async fn a_lock_lasts_as_long_as_was_asked(h: Harness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    h.fetch_orchestration_item(secs(5), Duration::ZERO, None).await.unwrap().unwrap();
    h.fetch_work_item(secs(7), Duration::ZERO, None, &TagFilter::Any).await.unwrap().unwrap();
    h.pass(Duration::from_millis(4_900));
    assert!(h.fetch().await.is_none());
    h.pass(Duration::from_millis(200));
    assert!(h.fetch().await.is_some());
    h.pass(Duration::from_millis(1_800));
    assert!(h.fetch_work().await.is_none());
    h.pass(Duration::from_millis(200));
    assert!(h.fetch_work().await.is_some());
}

async fn an_instance_is_fetchable_right_after_an_ack(h: Harness) {
    h.send(start("i")).await;
    let fetched = h.fetched().await;
    h.send(signal("i", "new")).await;
    Turn::beginning("i", 1).ack(&*h, &fetched.token).await.unwrap();
    assert_eq!(h.fetched().await.item.messages, [signal("i", "new")]);
}

async fn concurrent_fetchers_get_nothing_before_expiry(h: Harness) {
    h.send(start("i")).await;
    h.fetched().await;
    h.pass(secs(15));
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let provider = h.provider();
        tasks.push(tokio::spawn(async move {
            provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await
        }));
    }
    for task in tasks {
        assert!(task.await.unwrap().unwrap().is_none());
    }
}

async fn a_crashed_holder_blocks_until_expiry(h: Harness) {
    h.send(start("i")).await;
    let provider = h.provider();
    let holder = tokio::spawn(async move {
        provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().unwrap();
        panic!("the holder crashes");
    });
    assert!(holder.await.unwrap_err().is_panic());
    assert!(h.fetch().await.is_none());
    h.pass(PAST_LOCK);
    assert_eq!(h.fetched().await.attempts, 2);
}

async fn a_renewed_turn_stays_locked_past_its_first_deadline(h: Harness) {
    h.send(start("i")).await;
    let fetched = h.fetched().await;
    h.pass(secs(20));
    h.renew_orchestration_item_lock(&fetched.token, LOCK).await.unwrap();
    h.pass(secs(20));
    assert!(h.fetch().await.is_none());
    Turn::beginning("i", 1).ack(&*h, &fetched.token).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1]);
}

async fn renewing_a_turn_counts_from_now(h: Harness) {
    h.send(start("i")).await;
    let fetched = h.fetched().await;
    h.renew_orchestration_item_lock(&fetched.token, secs(40)).await.unwrap();
    h.pass(secs(39));
    assert!(h.fetch().await.is_none());
    h.pass(secs(2));
    assert!(h.fetch().await.is_some(), "40 s from the renewal, not from the old deadline");
}

async fn a_turn_renewed_after_expiry_is_refused(h: Harness) {
    h.send(start("i")).await;
    let fetched = h.fetched().await;
    h.pass(PAST_LOCK);
    lock_lost(h.renew_orchestration_item_lock(&fetched.token, LOCK).await);
    assert!(h.fetch().await.is_some(), "the lock was not revived");
}

async fn a_turn_renewed_after_ack_or_abandon_is_refused(h: Harness) {
    h.send(start("i")).await;
    let fetched = h.fetched().await;
    h.abandon_orchestration_item(&fetched.token, None, false).await.unwrap();
    lock_lost(h.renew_orchestration_item_lock(&fetched.token, LOCK).await);
    let fetched = h.fetched().await;
    Turn::beginning("i", 1).ack(&*h, &fetched.token).await.unwrap();
    lock_lost(h.renew_orchestration_item_lock(&fetched.token, LOCK).await);
    lock_lost(h.renew_orchestration_item_lock("no such token", LOCK).await);
}

async fn a_renewed_activity_stays_locked_past_its_first_deadline(h: Harness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.pass(secs(20));
    h.renew_work_item_lock(&work.token, LOCK).await.unwrap();
    h.pass(secs(20));
    assert!(h.fetch_work().await.is_none());
    h.pass(secs(11));
    assert_eq!(h.fetched_work().await.attempts, 2);
}

async fn a_renewed_activity_can_be_acked_past_its_first_deadline(h: Harness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    for _ in 0..5 {
        h.pass(secs(20));
        h.renew_work_item_lock(&work.token, LOCK).await.unwrap();
    }
    h.ack_work_item(&work.token, Some(activity_completed("i", 1))).await.unwrap();
}

async fn unknown_expired_and_acked_activities_cannot_be_renewed(h: Harness) {
    lock_lost(h.renew_work_item_lock("no such token", LOCK).await);
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.pass(PAST_LOCK);
    lock_lost(h.renew_work_item_lock(&work.token, LOCK).await);
    let work = h.fetched_work().await;
    h.ack_work_item(&work.token, None).await.unwrap();
    lock_lost(h.renew_work_item_lock(&work.token, LOCK).await);
}

async fn a_cancelled_activity_cannot_be_renewed(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2)).activity(activity("i", 3))).await;
    let cancelled = h.fetched_work().await;
    let other = h.fetched_work().await;
    h.turn("i", Turn::of("i", 1).cancelling(2)).await;
    lock_lost(h.renew_work_item_lock(&cancelled.token, LOCK).await);
    h.renew_work_item_lock(&other.token, LOCK).await.unwrap();
}

async fn an_activity_is_renewable_whatever_its_instance_does(h: Harness) {
    h.queue(activity("missing", 1)).await;
    let missing = h.fetched_work().await;
    h.renew_work_item_lock(&missing.token, LOCK).await.unwrap();
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.renew_work_item_lock(&work.token, LOCK).await.unwrap();
    h.turn("i", Turn::of("i", 1).completing(3, "ok")).await;
    h.renew_work_item_lock(&work.token, LOCK).await.unwrap();
}

async fn many_locks_are_renewed_in_one_call(h: Harness) {
    assert!(h.renew_locks(&[]).await.is_empty());
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    let (turn, work) = (h.fetched().await, h.fetched_work().await);
    h.pass(secs(20));
    let renewal = |kind, token: &str| LockRenewal { kind, token: token.to_owned(), extend_for: LOCK };
    let answers = h
        .renew_locks(&[
            renewal(LockKind::WorkItem, "no such token"),
            renewal(LockKind::Orchestration, &turn.token),
            renewal(LockKind::Orchestration, &work.token),
            renewal(LockKind::WorkItem, &work.token),
        ])
        .await;
    let renewed: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(renewed, [false, true, false, true]);
    for answer in answers.into_iter().filter(Result::is_err) {
        lock_lost(answer);
    }
    h.pass(secs(20));
    assert!(h.fetch().await.is_none());
    assert!(h.fetch_work().await.is_none());
    Turn::beginning("i", 1).event(2, events::scheduled()).ack(&*h, &turn.token).await.unwrap();
    h.ack_work_item(&work.token, None).await.unwrap();
}
