//! `settle_work` ends an activity: it leaves the queue and its completion is enqueued, or it returns to the queue.

use everturn_provider::TagFilter;

use crate::harness::{CaseHarness, PAST_LOCK, expect_lock_lost, expect_permanent_error, secs};
use crate::image::image;
use crate::items::{
    activity, activity_completed, activity_failed, activity_of, cancel, child_completed, continue_as_new,
    queue_message, signal, start, timer,
};
use crate::sample_turn::SampleTurn;

cases! { $ settle_work as settle_work_cases:
    the_completion_is_the_instances_only_message,
    a_failure_is_delivered_too,
    without_a_completion_nothing_is_queued,
    an_unknown_token_is_refused,
    a_token_is_good_for_one_end,
    after_cancellation_it_is_refused,
    after_expiry_it_is_refused_even_without_a_new_fetch,
    after_another_worker_took_over_it_is_refused,
    a_completion_of_another_kind_changes_nothing,
    an_old_token_fails_after_the_instance_was_deleted_and_recreated,
    concurrent_settlements_with_one_token_have_one_success,
    an_abandoned_activity_is_fetchable_right_after,
    an_activity_abandoned_with_a_delay_is_not_fetchable_before,
    the_attempt_of_an_abandoned_activity_is_kept_or_refunded,
    an_unknown_token_abandons_nothing,
    an_expired_token_abandons_nothing,
    a_token_is_good_for_one_abandon,
    an_abandoned_activity_keeps_its_tag_and_session,
    an_abandoned_activity_keeps_its_place,
}

async fn the_completion_is_the_instances_only_message(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await.unwrap();
    assert!(h.next_work().await.is_none());
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [activity_completed("i", 2)]);
    assert_eq!(fetched.attempt_count, 1);
}

async fn a_failure_is_delivered_too(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.end_work(&work.lock_token, Some(activity_failed("i", 2))).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [activity_failed("i", 2)]);
}

async fn without_a_completion_nothing_is_queued(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.end_work(&work.lock_token, None).await.unwrap();
    assert!(h.next_turn().await.is_none());
    h.pass(PAST_LOCK);
    assert!(h.next_work().await.is_none());
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (0, 0));
}

async fn an_unknown_token_is_refused(h: CaseHarness) {
    h.create("i").await;
    expect_lock_lost(h.end_work("no such token", Some(activity_completed("i", 2))).await);
    assert!(h.next_turn().await.is_none());
}

async fn a_token_is_good_for_one_end(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await.unwrap();
    expect_lock_lost(h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await);
    assert_eq!(h.fetched_turn().await.item.messages.len(), 1);
}

async fn after_cancellation_it_is_refused(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.turn("i", SampleTurn::of("i", 1).cancelling(2)).await;
    expect_lock_lost(h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await);
    assert!(h.next_turn().await.is_none());
    h.pass(PAST_LOCK);
    assert!(h.next_work().await.is_none());
}

async fn after_expiry_it_is_refused_even_without_a_new_fetch(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.pass(PAST_LOCK);
    expect_lock_lost(h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await);
    assert!(h.next_turn().await.is_none());
    assert_eq!(h.fetched_work().await.attempt_count, 2);
}

async fn after_another_worker_took_over_it_is_refused(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let first = h.fetched_work().await;
    h.pass(PAST_LOCK);
    let second = h.fetched_work().await;
    expect_lock_lost(h.end_work(&first.lock_token, Some(activity_failed("i", 2))).await);
    h.end_work(&second.lock_token, Some(activity_completed("i", 2))).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [activity_completed("i", 2)]);
}

async fn a_completion_of_another_kind_changes_nothing(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let before = image(&h, &["i"]).await;
    let others = [
        start("i"),
        continue_as_new("i"),
        activity("i", 3),
        timer("i", 2, 0),
        signal("i", "a"),
        child_completed("i"),
        cancel("i"),
        queue_message("i", "d"),
    ];
    for other in others {
        expect_permanent_error(h.end_work(&work.lock_token, Some(other)).await);
        assert_eq!(image(&h, &["i"]).await, before);
    }
    h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await.unwrap();
}

async fn an_old_token_fails_after_the_instance_was_deleted_and_recreated(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let old = h.fetched_work().await;
    h.admin().delete_instance("i", true).await.unwrap();
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    expect_lock_lost(h.end_work(&old.lock_token, Some(activity_completed("i", 2))).await);
    assert!(h.next_turn().await.is_none(), "the new instance sees no stale completion");
    let new = h.fetched_work().await;
    assert_eq!(new.attempt_count, 1);
    h.end_work(&new.lock_token, Some(activity_completed("i", 2))).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages.len(), 1);
}

async fn concurrent_settlements_with_one_token_have_one_success(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let mut settlements = Vec::new();
    for _ in 0..8 {
        let (store, token) = (h.store(), work.lock_token.clone());
        settlements.push(tokio::spawn(async move {
            store.end_work(&token, Some(activity_completed("i", 2))).await.is_ok()
        }));
    }
    let mut successes = 0;
    for settlement in settlements {
        successes += usize::from(settlement.await.unwrap());
    }
    assert_eq!(successes, 1);
    assert_eq!(h.fetched_turn().await.item.messages.len(), 1);
}

async fn an_abandoned_activity_is_fetchable_right_after(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let first = h.fetched_work().await;
    h.release_work(&first.lock_token, None, false).await.unwrap();
    let second = h.fetched_work().await;
    assert_eq!(second.item, first.item);
    assert_ne!(second.lock_token, first.lock_token);
}

async fn an_activity_abandoned_with_a_delay_is_not_fetchable_before(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let first = h.fetched_work().await;
    h.release_work(&first.lock_token, Some(secs(10)), false).await.unwrap();
    assert!(h.next_work().await.is_none());
    h.pass(secs(9));
    assert!(h.next_work().await.is_none());
    h.pass(secs(2));
    assert_eq!(h.fetched_work().await.item, first.item);
}

async fn the_attempt_of_an_abandoned_activity_is_kept_or_refunded(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let mut seen = Vec::new();
    for ignore_attempt in [false, false, true, true, false] {
        let work = h.fetched_work().await;
        seen.push(work.attempt_count);
        h.release_work(&work.lock_token, None, ignore_attempt).await.unwrap();
    }
    assert_eq!(seen, [1, 2, 3, 3, 3]);
    assert_eq!(h.fetched_work().await.attempt_count, 4);
}

async fn an_unknown_token_abandons_nothing(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    expect_lock_lost(h.release_work("no such token", None, true).await);
    assert!(h.next_work().await.is_none());
    h.end_work(&work.lock_token, Some(activity_completed("i", 1))).await.unwrap();
}

async fn an_expired_token_abandons_nothing(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.pass(PAST_LOCK);
    let before = image(&h, &[]).await;
    expect_lock_lost(h.release_work(&work.lock_token, Some(secs(100)), true).await);
    assert_eq!(image(&h, &[]).await, before);
    assert_eq!(h.fetched_work().await.attempt_count, 2, "neither delayed nor refunded");
}

async fn a_token_is_good_for_one_abandon(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.release_work(&work.lock_token, None, true).await.unwrap();
    expect_lock_lost(h.release_work(&work.lock_token, None, true).await);
    expect_lock_lost(h.end_work(&work.lock_token, Some(activity_completed("i", 1))).await);
    assert_eq!(h.fetched_work().await.attempt_count, 1);
}

async fn an_abandoned_activity_keeps_its_tag_and_session(h: CaseHarness) {
    h.queue(activity_of("i", 1, None, Some("gpu"))).await;
    h.queue(activity_of("i", 2, Some("s"), None)).await;
    let gpu = TagFilter::tags(["gpu"]);
    let tagged = h.next_work_tagged(&gpu).await.unwrap();
    h.release_work(&tagged.lock_token, None, false).await.unwrap();
    let bound = h.next_work_as("w", secs(60)).await.unwrap();
    h.release_work(&bound.lock_token, None, false).await.unwrap();
    assert!(h.next_work().await.is_none());
    assert_eq!(h.next_work_tagged(&gpu).await.unwrap().item, tagged.item);
    assert_eq!(h.next_work_as("w", secs(60)).await.unwrap().item, bound.item);
}

async fn an_abandoned_activity_keeps_its_place(h: CaseHarness) {
    for id in 1..=3 {
        h.queue(activity("i", id)).await;
    }
    let first = h.fetched_work().await;
    h.release_work(&first.lock_token, None, false).await.unwrap();
    assert_eq!(h.drain_work().await, [1, 2, 3]);
}
