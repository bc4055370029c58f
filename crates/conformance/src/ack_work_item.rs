//! A worker ack removes the activity and enqueues its completion, or does neither.

use crate::harness::{Harness, PAST_LOCK, lock_lost, permanent_refusal};
use crate::image::image;
use crate::items::{
    activity, activity_completed, activity_failed, cancel, child_completed, continue_as_new, queue_message,
    signal, start, timer,
};
use crate::turn::Turn;

cases! { $ ack_work_item as ack_work_item_cases:
    the_completion_is_the_instances_only_message,
    a_failure_is_delivered_too,
    without_a_completion_nothing_is_queued,
    an_unknown_token_is_refused,
    a_token_is_good_for_one_ack,
    after_cancellation_it_is_refused,
    after_expiry_it_is_refused_even_if_nobody_refetched,
    after_another_worker_took_over_it_is_refused,
    a_completion_of_another_kind_changes_nothing,
    an_old_ack_fails_after_the_instance_was_deleted_and_recreated,
    concurrent_acks_with_one_token_have_one_success,
}

async fn the_completion_is_the_instances_only_message(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await.unwrap();
    assert!(h.fetch_work().await.is_none());
    let fetched = h.fetched().await;
    assert_eq!(fetched.item.messages, [activity_completed("i", 2)]);
    assert_eq!(fetched.attempts, 1);
}

async fn a_failure_is_delivered_too(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.ack_work_item(&work.token, Some(activity_failed("i", 2))).await.unwrap();
    assert_eq!(h.fetched().await.item.messages, [activity_failed("i", 2)]);
}

async fn without_a_completion_nothing_is_queued(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.ack_work_item(&work.token, None).await.unwrap();
    assert!(h.fetch().await.is_none());
    h.pass(PAST_LOCK);
    assert!(h.fetch_work().await.is_none());
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (0, 0));
}

async fn an_unknown_token_is_refused(h: Harness) {
    h.create("i").await;
    lock_lost(h.ack_work_item("no such token", Some(activity_completed("i", 2))).await);
    assert!(h.fetch().await.is_none());
}

async fn a_token_is_good_for_one_ack(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await.unwrap();
    lock_lost(h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await);
    assert_eq!(h.fetched().await.item.messages.len(), 1);
}

async fn after_cancellation_it_is_refused(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.turn("i", Turn::of("i", 1).cancelling(2)).await;
    lock_lost(h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await);
    assert!(h.fetch().await.is_none());
    h.pass(PAST_LOCK);
    assert!(h.fetch_work().await.is_none());
}

async fn after_expiry_it_is_refused_even_if_nobody_refetched(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.pass(PAST_LOCK);
    lock_lost(h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await);
    assert!(h.fetch().await.is_none());
    assert_eq!(h.fetched_work().await.attempts, 2);
}

async fn after_another_worker_took_over_it_is_refused(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let first = h.fetched_work().await;
    h.pass(PAST_LOCK);
    let second = h.fetched_work().await;
    lock_lost(h.ack_work_item(&first.token, Some(activity_failed("i", 2))).await);
    h.ack_work_item(&second.token, Some(activity_completed("i", 2))).await.unwrap();
    assert_eq!(h.fetched().await.item.messages, [activity_completed("i", 2)]);
}

async fn a_completion_of_another_kind_changes_nothing(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
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
        permanent_refusal(h.ack_work_item(&work.token, Some(other)).await);
        assert_eq!(image(&h, &["i"]).await, before);
    }
    h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await.unwrap();
}

async fn an_old_ack_fails_after_the_instance_was_deleted_and_recreated(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let old = h.fetched_work().await;
    h.admin().delete_instance("i", true).await.unwrap();
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    lock_lost(h.ack_work_item(&old.token, Some(activity_completed("i", 2))).await);
    assert!(h.fetch().await.is_none(), "the new instance sees no stale completion");
    let new = h.fetched_work().await;
    assert_eq!(new.attempts, 1);
    h.ack_work_item(&new.token, Some(activity_completed("i", 2))).await.unwrap();
    assert_eq!(h.fetched().await.item.messages.len(), 1);
}

async fn concurrent_acks_with_one_token_have_one_success(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let mut acks = Vec::new();
    for _ in 0..8 {
        let (provider, token) = (h.provider(), work.token.clone());
        acks.push(tokio::spawn(async move {
            provider.ack_work_item(&token, Some(activity_completed("i", 2))).await.is_ok()
        }));
    }
    let mut successes = 0;
    for ack in acks {
        successes += usize::from(ack.await.unwrap());
    }
    assert_eq!(successes, 1);
    assert_eq!(h.fetched().await.item.messages.len(), 1);
}
