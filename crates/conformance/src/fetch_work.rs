//! `fetch_work` locks the oldest activities that the worker may take.

use std::collections::BTreeSet;
use std::time::Duration;

use everturn_provider::TagFilter;
use everturn_provider::store::{FetchedWork, WorkFetch};

use crate::harness::{ActivityId, CaseHarness, LOCK, PAST_LOCK, secs, session};
use crate::items::{activity, activity_completed, activity_in_session, activity_of, activity_tagged};
use crate::sample_turn::SampleTurn;

cases! { $ fetch_work as fetch_work_cases:
    an_empty_queue_gives_none,
    five_activities_come_in_order_then_nothing,
    an_activity_is_fetchable_at_once_and_as_it_was_sent,
    a_delayed_activity_does_not_hide_the_next,
    a_fetched_activity_is_invisible_until_it_is_settled,
    an_unsettled_activity_comes_again_after_expiry,
    a_redelivered_activity_comes_before_younger_ones,
    an_activity_is_fetchable_while_its_instance_runs,
    an_activity_is_fetchable_after_its_instance_ended,
    an_activity_is_fetchable_without_any_instance,
    a_leftover_of_a_deleted_instance_does_no_harm,
    concurrent_fetches_get_no_activity_twice,
    one_activity_has_one_winner,
    never_more_activities_come_than_were_asked_for,
    one_ready_activity_is_enough_for_a_fetch_of_many,
    a_fetch_of_many_takes_only_what_the_worker_may_take,
    activities_of_a_batch_are_settled_one_by_one,
    lock_left_is_at_most_the_lock_timeout_and_not_zero,
    the_orchestration_of_an_activity_is_the_stored_one,
}

async fn an_empty_queue_gives_none(h: CaseHarness) {
    assert!(h.next_work().await.is_none());
}

async fn five_activities_come_in_order_then_nothing(h: CaseHarness) {
    for id in 1..=5 {
        h.queue(activity("i", id)).await;
    }
    assert_eq!(h.drain_work().await, [1, 2, 3, 4, 5]);
    assert!(h.next_work().await.is_none());
}

async fn an_activity_is_fetchable_at_once_and_as_it_was_sent(h: CaseHarness) {
    let sent = activity_of("i", 7, None, None);
    h.queue(sent.clone()).await;
    let work = h.fetched_work().await;
    assert_eq!(work.item, sent);
    assert_eq!(work.attempt_count, 1);
    assert!(!work.lock_token.is_empty());
}

async fn a_delayed_activity_does_not_hide_the_next(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    h.queue(activity("i", 2)).await;
    let first = h.fetched_work().await;
    h.release_work(&first.lock_token, Some(secs(10)), false).await.unwrap();
    assert_eq!(h.drain_work().await, [2]);
}

async fn a_fetched_activity_is_invisible_until_it_is_settled(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    assert!(h.next_work().await.is_none());
    assert_eq!(h.activities_waiting().await, 0);
    h.pass(secs(29));
    assert!(h.next_work().await.is_none());
    h.end_work(&work.lock_token, Some(activity_completed("i", 1))).await.unwrap();
    h.pass(PAST_LOCK);
    assert!(h.next_work().await.is_none());
}

async fn an_unsettled_activity_comes_again_after_expiry(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let first = h.fetched_work().await;
    h.pass(PAST_LOCK);
    assert_eq!(h.activities_waiting().await, 1);
    let second = h.fetched_work().await;
    assert_eq!(second.item, activity("i", 1));
    assert_ne!(second.lock_token, first.lock_token);
    assert_eq!(second.attempt_count, 2);
}

async fn a_redelivered_activity_comes_before_younger_ones(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    h.fetched_work().await;
    h.queue(activity("i", 2)).await;
    h.pass(PAST_LOCK);
    assert_eq!(h.drain_work().await, [1, 2]);
}

async fn an_activity_is_fetchable_while_its_instance_runs(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    assert_eq!(h.drain_work().await, [2]);
}

async fn an_activity_is_fetchable_after_its_instance_ended(h: CaseHarness) {
    let beginnings = [
        ("a", SampleTurn::beginning("a", 1).activity(activity("a", 1)).completing(2, "ok")),
        ("b", SampleTurn::beginning("b", 1).activity(activity("b", 2)).failing(2, "boom")),
        ("c", SampleTurn::beginning("c", 1).activity(activity("c", 3)).continuing_as_new(2)),
    ];
    for (instance, turn) in beginnings {
        h.begin(instance, turn).await;
    }
    for id in 1..=3 {
        let work = h.fetched_work().await;
        assert_eq!(work.activity_id(), id);
        let completion = activity_completed(work.item.instance(), id);
        h.end_work(&work.lock_token, Some(completion)).await.unwrap();
    }
}

async fn an_activity_is_fetchable_without_any_instance(h: CaseHarness) {
    h.queue(activity("ghost", 1)).await;
    let work = h.fetched_work().await;
    h.end_work(&work.lock_token, Some(activity_completed("ghost", 1))).await.unwrap();
}

async fn a_leftover_of_a_deleted_instance_does_no_harm(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    h.admin().delete_instance("i", true).await.unwrap();
    if let Some(work) = h.next_work().await {
        h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await.unwrap();
    }
    assert!(h.next_work().await.is_none());
}

async fn concurrent_fetches_get_no_activity_twice(h: CaseHarness) {
    for id in 1..=20 {
        h.queue(activity("i", id)).await;
    }
    let mut tasks = Vec::new();
    for _ in 0..40 {
        let store = h.store();
        tasks.push(tokio::spawn(async move { store.next_work_within(Duration::ZERO).await }));
    }
    let (mut ids, mut tokens, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
    for task in tasks {
        if let Some(work) = task.await.unwrap().unwrap() {
            ids.insert(work.activity_id());
            tokens.insert(work.lock_token);
            count += 1;
        }
    }
    assert_eq!((ids.len(), tokens.len(), count), (20, 20, 20));
}

async fn one_activity_has_one_winner(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let store = h.store();
        tasks.push(tokio::spawn(async move { store.next_work_within(Duration::ZERO).await }));
    }
    let mut winners = 0;
    for task in tasks {
        winners += usize::from(task.await.unwrap().unwrap().is_some());
    }
    assert_eq!(winners, 1);
}

/// Asks for up to so many activities.
async fn fetch_batch(h: &CaseHarness, fetch: WorkFetch, work_max: usize) -> Vec<FetchedWork> {
    let batch = h.fetch_work(&fetch.with_work_max(work_max)).await.unwrap();
    assert!(batch.len() <= work_max, "{} activities came although {work_max} were asked for", batch.len());
    batch
}

/// Fetches in batches until nothing comes.
async fn drain_in_batches(h: &CaseHarness, fetch: &WorkFetch, work_max: usize) -> Vec<FetchedWork> {
    let mut all = Vec::new();
    loop {
        let batch = fetch_batch(h, fetch.clone(), work_max).await;
        if batch.is_empty() {
            return all;
        }
        all.extend(batch);
    }
}

fn one_look() -> WorkFetch {
    WorkFetch::new(LOCK, Duration::ZERO)
}

async fn never_more_activities_come_than_were_asked_for(h: CaseHarness) {
    for id in 1..=10 {
        h.queue(activity("i", id)).await;
    }
    let work = drain_in_batches(&h, &one_look(), 3).await;
    let ids: Vec<_> = work.iter().map(ActivityId::activity_id).collect();
    let tokens: BTreeSet<_> = work.iter().map(|work| work.lock_token.clone()).collect();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>(), "each once, the oldest first");
    assert_eq!(tokens.len(), 10, "each with its own token");
}

async fn one_ready_activity_is_enough_for_a_fetch_of_many(h: CaseHarness) {
    assert!(fetch_batch(&h, one_look(), 50).await.is_empty());
    for id in 1..=3 {
        h.queue(activity("i", id)).await;
    }
    h.fetched_work().await;
    let delayed = h.fetched_work().await;
    h.release_work(&delayed.lock_token, Some(secs(5)), false).await.unwrap();
    let batch = fetch_batch(&h, one_look(), 50).await;
    assert_eq!(batch.iter().map(ActivityId::activity_id).collect::<Vec<_>>(), [3]);
}

async fn a_fetch_of_many_takes_only_what_the_worker_may_take(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "of another")).await;
    assert_eq!(h.next_work_as("another", secs(600)).await.unwrap().activity_id(), 1);
    h.queue(activity("i", 2)).await;
    h.queue(activity_tagged("i", 3, "gpu")).await;
    h.queue(activity_in_session("i", 4, "of another")).await;
    h.queue(activity_in_session("i", 5, "free")).await;
    h.queue(activity("i", 6)).await;
    h.queue(activity_in_session("i", 7, "free")).await;
    let fetches = [
        (one_look(), vec![2, 6]),
        (one_look().with_session(session("worker", LOCK)), vec![5, 7]),
        (one_look().with_tags(TagFilter::Any), vec![3]),
    ];
    for (fetch, expected) in fetches {
        let work = drain_in_batches(&h, &fetch, 4).await;
        assert_eq!(work.iter().map(ActivityId::activity_id).collect::<Vec<_>>(), expected);
    }
}

async fn activities_of_a_batch_are_settled_one_by_one(h: CaseHarness) {
    h.create("i").await;
    for id in 1..=3 {
        h.queue(activity("i", id)).await;
    }
    let work = drain_in_batches(&h, &one_look(), 3).await;
    h.end_work(&work[2].lock_token, Some(activity_completed("i", 3))).await.unwrap();
    h.release_work(&work[0].lock_token, None, false).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [activity_completed("i", 3)]);
    let again = h.fetched_work().await;
    assert_eq!((again.activity_id(), again.attempt_count), (1, 2), "only the first was released");
    h.pass(PAST_LOCK);
    assert_eq!(h.drain_work().await, [1, 2]);
}

async fn lock_left_is_at_most_the_lock_timeout_and_not_zero(h: CaseHarness) {
    for id in 1..=5 {
        h.queue(activity("i", id)).await;
    }
    for lock in [secs(30), secs(7)] {
        for work in fetch_batch(&h, WorkFetch::new(lock, secs(1)), 2).await {
            assert!(!work.lock_left.is_zero() && work.lock_left <= lock, "{:?} of {lock:?}", work.lock_left);
        }
    }
}

async fn the_orchestration_of_an_activity_is_the_stored_one(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let stored = h.read_orchestration_name("i").await.unwrap();
    assert!(work.orchestration.is_none() || work.orchestration == stored, "{work:?} of {stored:?}");
}
