//! A worker fetch locks the oldest activity the worker may take.

use std::collections::BTreeSet;
use std::time::Duration;

use everturn_provider::TagFilter;

use crate::harness::{Harness, LOCK, PAST_LOCK, secs};
use crate::items::{activity, activity_completed, activity_of};
use crate::turn::Turn;

cases! { $ fetch_work_item as fetch_work_item_cases:
    an_empty_queue_gives_none,
    five_activities_come_in_order_then_nothing,
    an_activity_is_fetchable_at_once_and_as_it_was_sent,
    a_delayed_activity_does_not_hide_the_next,
    a_fetched_activity_is_invisible_until_its_ack,
    an_unacked_activity_comes_again_after_expiry,
    a_redelivered_activity_comes_before_younger_ones,
    an_activity_is_fetchable_while_its_instance_runs,
    an_activity_is_fetchable_after_its_instance_ended,
    an_activity_is_fetchable_without_any_instance,
    a_leftover_of_a_deleted_instance_does_no_harm,
    concurrent_fetches_get_no_activity_twice,
    one_activity_has_one_winner,
}

async fn an_empty_queue_gives_none(h: Harness) {
    assert!(h.fetch_work().await.is_none());
}

async fn five_activities_come_in_order_then_nothing(h: Harness) {
    for id in 1..=5 {
        h.queue(activity("i", id)).await;
    }
    assert_eq!(h.drain_work().await, [1, 2, 3, 4, 5]);
    assert!(h.fetch_work().await.is_none());
}

async fn an_activity_is_fetchable_at_once_and_as_it_was_sent(h: Harness) {
    let sent = activity_of("i", 7, None, None);
    h.queue(sent.clone()).await;
    let work = h.fetched_work().await;
    assert_eq!(work.item, sent);
    assert_eq!(work.attempts, 1);
    assert!(!work.token.is_empty());
}

async fn a_delayed_activity_does_not_hide_the_next(h: Harness) {
    h.queue(activity("i", 1)).await;
    h.queue(activity("i", 2)).await;
    let first = h.fetched_work().await;
    h.abandon_work_item(&first.token, Some(secs(10)), false).await.unwrap();
    assert_eq!(h.drain_work().await, [2]);
}

async fn a_fetched_activity_is_invisible_until_its_ack(h: Harness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    assert!(h.fetch_work().await.is_none());
    assert_eq!(h.activities_waiting().await, 0);
    h.pass(secs(29));
    assert!(h.fetch_work().await.is_none());
    h.ack_work_item(&work.token, Some(activity_completed("i", 1))).await.unwrap();
    h.pass(PAST_LOCK);
    assert!(h.fetch_work().await.is_none());
}

async fn an_unacked_activity_comes_again_after_expiry(h: Harness) {
    h.queue(activity("i", 1)).await;
    let first = h.fetched_work().await;
    h.pass(PAST_LOCK);
    assert_eq!(h.activities_waiting().await, 1);
    let second = h.fetched_work().await;
    assert_eq!(second.item, activity("i", 1));
    assert_ne!(second.token, first.token);
    assert_eq!(second.attempts, 2);
}

async fn a_redelivered_activity_comes_before_younger_ones(h: Harness) {
    h.queue(activity("i", 1)).await;
    h.fetched_work().await;
    h.queue(activity("i", 2)).await;
    h.pass(PAST_LOCK);
    assert_eq!(h.drain_work().await, [1, 2]);
}

async fn an_activity_is_fetchable_while_its_instance_runs(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    assert_eq!(h.drain_work().await, [2]);
}

async fn an_activity_is_fetchable_after_its_instance_ended(h: Harness) {
    let beginnings = [
        ("a", Turn::beginning("a", 1).activity(activity("a", 1)).completing(2, "ok")),
        ("b", Turn::beginning("b", 1).activity(activity("b", 2)).failing(2, "boom")),
        ("c", Turn::beginning("c", 1).activity(activity("c", 3)).continuing_as_new(2)),
    ];
    for (instance, turn) in beginnings {
        h.begin(instance, turn).await;
    }
    for id in 1..=3 {
        let work = h.fetched_work().await;
        assert_eq!(work.id(), id);
        let completion = activity_completed(work.item.instance(), id);
        h.ack_work_item(&work.token, Some(completion)).await.unwrap();
    }
}

async fn an_activity_is_fetchable_without_any_instance(h: Harness) {
    h.queue(activity("ghost", 1)).await;
    let work = h.fetched_work().await;
    h.ack_work_item(&work.token, Some(activity_completed("ghost", 1))).await.unwrap();
}

async fn a_leftover_of_a_deleted_instance_does_no_harm(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).activity(activity("i", 2))).await;
    h.admin().delete_instance("i", true).await.unwrap();
    if let Some(work) = h.fetch_work().await {
        h.ack_work_item(&work.token, Some(activity_completed("i", 2))).await.unwrap();
    }
    assert!(h.fetch_work().await.is_none());
}

async fn concurrent_fetches_get_no_activity_twice(h: Harness) {
    for id in 1..=20 {
        h.queue(activity("i", id)).await;
    }
    let mut tasks = Vec::new();
    for _ in 0..40 {
        let provider = h.provider();
        tasks.push(tokio::spawn(async move {
            provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await
        }));
    }
    let (mut ids, mut tokens, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
    for task in tasks {
        if let Some((item, token, _)) = task.await.unwrap().unwrap() {
            ids.insert(crate::items::activity_id(&item));
            tokens.insert(token);
            count += 1;
        }
    }
    assert_eq!((ids.len(), tokens.len(), count), (20, 20, 20));
}

async fn one_activity_has_one_winner(h: Harness) {
    h.queue(activity("i", 1)).await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let provider = h.provider();
        tasks.push(tokio::spawn(async move {
            provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await
        }));
    }
    let mut winners = 0;
    for task in tasks {
        winners += usize::from(task.await.unwrap().unwrap().is_some());
    }
    assert_eq!(winners, 1);
}
