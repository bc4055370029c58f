//! An abandoned activity comes again.

use everturn_provider::TagFilter;

use crate::harness::{Harness, PAST_LOCK, lock_lost, secs};
use crate::image::image;
use crate::items::{activity, activity_completed, activity_of};

cases! { $ abandon_work_item as abandon_work_item_cases:
    the_activity_is_fetchable_right_after,
    with_a_delay_it_is_not_fetchable_before,
    the_attempt_is_kept_or_refunded,
    an_unknown_token_changes_nothing,
    an_expired_token_changes_nothing,
    a_used_token_is_refused,
    tag_and_session_are_kept,
    an_abandoned_activity_keeps_its_place,
}

async fn the_activity_is_fetchable_right_after(h: Harness) {
    h.queue(activity("i", 1)).await;
    let first = h.fetched_work().await;
    h.abandon_work_item(&first.token, None, false).await.unwrap();
    let second = h.fetched_work().await;
    assert_eq!(second.item, first.item);
    assert_ne!(second.token, first.token);
}

async fn with_a_delay_it_is_not_fetchable_before(h: Harness) {
    h.queue(activity("i", 1)).await;
    let first = h.fetched_work().await;
    h.abandon_work_item(&first.token, Some(secs(10)), false).await.unwrap();
    assert!(h.fetch_work().await.is_none());
    h.pass(secs(9));
    assert!(h.fetch_work().await.is_none());
    h.pass(secs(2));
    assert_eq!(h.fetched_work().await.item, first.item);
}

async fn the_attempt_is_kept_or_refunded(h: Harness) {
    h.queue(activity("i", 1)).await;
    let mut seen = Vec::new();
    for ignore_attempt in [false, false, true, true, false] {
        let work = h.fetched_work().await;
        seen.push(work.attempts);
        h.abandon_work_item(&work.token, None, ignore_attempt).await.unwrap();
    }
    assert_eq!(seen, [1, 2, 3, 3, 3]);
    assert_eq!(h.fetched_work().await.attempts, 4);
}

async fn an_unknown_token_changes_nothing(h: Harness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    lock_lost(h.abandon_work_item("no such token", None, true).await);
    assert!(h.fetch_work().await.is_none());
    h.ack_work_item(&work.token, Some(activity_completed("i", 1))).await.unwrap();
}

async fn an_expired_token_changes_nothing(h: Harness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.pass(PAST_LOCK);
    let before = image(&h, &[]).await;
    lock_lost(h.abandon_work_item(&work.token, Some(secs(100)), true).await);
    assert_eq!(image(&h, &[]).await, before);
    assert_eq!(h.fetched_work().await.attempts, 2, "neither delayed nor refunded");
}

async fn a_used_token_is_refused(h: Harness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.abandon_work_item(&work.token, None, true).await.unwrap();
    lock_lost(h.abandon_work_item(&work.token, None, true).await);
    lock_lost(h.ack_work_item(&work.token, Some(activity_completed("i", 1))).await);
    assert_eq!(h.fetched_work().await.attempts, 1);
}

async fn tag_and_session_are_kept(h: Harness) {
    h.queue(activity_of("i", 1, None, Some("gpu"))).await;
    h.queue(activity_of("i", 2, Some("s"), None)).await;
    let gpu = TagFilter::tags(["gpu"]);
    let tagged = h.fetch_work_tagged(&gpu).await.unwrap();
    h.abandon_work_item(&tagged.token, None, false).await.unwrap();
    let bound = h.fetch_work_as("w", secs(60)).await.unwrap();
    h.abandon_work_item(&bound.token, None, false).await.unwrap();
    assert!(h.fetch_work().await.is_none());
    assert_eq!(h.fetch_work_tagged(&gpu).await.unwrap().item, tagged.item);
    assert_eq!(h.fetch_work_as("w", secs(60)).await.unwrap().item, bound.item);
}

async fn an_abandoned_activity_keeps_its_place(h: Harness) {
    for id in 1..=3 {
        h.queue(activity("i", id)).await;
    }
    let first = h.fetched_work().await;
    h.abandon_work_item(&first.token, None, false).await.unwrap();
    assert_eq!(h.drain_work().await, [1, 2, 3]);
}
