//! Tags route activities to the workers that ask for them.

use everturn_core::limits::MAX_WORKER_TAGS;
use everturn_provider::TagFilter;

use crate::harness::{ActivityId, CaseHarness, PAST_LOCK, secs};
use crate::items::{activity, activity_of, activity_tagged};
use crate::sample_turn::SampleTurn;

cases! { $ tags as tags_cases:
    default_only_takes_untagged_activities,
    tags_takes_members_and_nothing_untagged,
    default_and_takes_the_union,
    any_takes_everything_in_order,
    none_takes_nothing,
    a_filter_may_name_as_many_tags_as_allowed,
    a_tag_comes_back_unchanged_and_survives_abandon,
    a_tag_survives_expiry,
    a_tag_is_kept_by_a_commit,
    disjoint_filters_split_the_queue,
    overlapping_and_superset_filters_take_what_is_left,
    odd_tags_match_exactly,
    a_tagged_activity_in_a_session_needs_both,
}

/// Untagged 1, "gpu" 2, "tpu" 3, untagged 4, "gpu" 5.
async fn mixed_queue(h: &CaseHarness) {
    h.queue(activity("i", 1)).await;
    h.queue(activity_tagged("i", 2, "gpu")).await;
    h.queue(activity_tagged("i", 3, "tpu")).await;
    h.queue(activity("i", 4)).await;
    h.queue(activity_tagged("i", 5, "gpu")).await;
}

async fn drain(h: &CaseHarness, filter: &TagFilter) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Some(work) = h.next_work_tagged(filter).await {
        ids.push(work.activity_id());
    }
    ids
}

async fn default_only_takes_untagged_activities(h: CaseHarness) {
    mixed_queue(&h).await;
    assert_eq!(drain(&h, &TagFilter::DefaultOnly).await, [1, 4]);
}

async fn tags_takes_members_and_nothing_untagged(h: CaseHarness) {
    mixed_queue(&h).await;
    assert_eq!(drain(&h, &TagFilter::tags(["gpu"])).await, [2, 5]);
    assert_eq!(drain(&h, &TagFilter::tags(["unknown", "tpu"])).await, [3]);
    assert!(drain(&h, &TagFilter::tags(["unknown"])).await.is_empty());
}

async fn default_and_takes_the_union(h: CaseHarness) {
    mixed_queue(&h).await;
    assert_eq!(drain(&h, &TagFilter::default_and(["gpu"])).await, [1, 2, 4, 5]);
    assert_eq!(drain(&h, &TagFilter::Any).await, [3]);
}

async fn any_takes_everything_in_order(h: CaseHarness) {
    mixed_queue(&h).await;
    assert_eq!(drain(&h, &TagFilter::Any).await, [1, 2, 3, 4, 5]);
}

async fn none_takes_nothing(h: CaseHarness) {
    mixed_queue(&h).await;
    assert!(drain(&h, &TagFilter::None).await.is_empty());
    assert_eq!(h.activities_waiting().await, 5);
}

async fn a_filter_may_name_as_many_tags_as_allowed(h: CaseHarness) {
    let tags: Vec<String> = (0..MAX_WORKER_TAGS).map(|n| format!("tag {n}")).collect();
    for (tag, id) in tags.iter().zip(1..) {
        h.queue(activity_tagged("i", id, tag)).await;
    }
    h.queue(activity_tagged("i", 99, "tag")).await;
    let expected: Vec<u64> = (1..).take(MAX_WORKER_TAGS).collect();
    assert_eq!(drain(&h, &TagFilter::tags(tags)).await, expected);
}

async fn a_tag_comes_back_unchanged_and_survives_abandon(h: CaseHarness) {
    h.queue(activity_tagged("i", 1, "gpu")).await;
    let filter = TagFilter::tags(["gpu"]);
    let work = h.next_work_tagged(&filter).await.unwrap();
    assert_eq!(work.item, activity_tagged("i", 1, "gpu"));
    h.release_work(&work.lock_token, None, false).await.unwrap();
    assert!(h.next_work().await.is_none());
    let again = h.next_work_tagged(&filter).await.unwrap();
    assert_eq!(again.item, activity_tagged("i", 1, "gpu"));
    assert_eq!(again.attempt_count, 2);
}

async fn a_tag_survives_expiry(h: CaseHarness) {
    h.queue(activity_tagged("i", 1, "gpu")).await;
    h.next_work_tagged(&TagFilter::Any).await.unwrap();
    h.pass(PAST_LOCK);
    assert!(h.next_work().await.is_none());
    assert!(h.next_work_tagged(&TagFilter::tags(["gpu"])).await.is_some());
}

async fn a_tag_is_kept_by_a_commit(h: CaseHarness) {
    let turn =
        SampleTurn::beginning("i", 1).activity(activity_tagged("i", 2, "gpu")).activity(activity("i", 3));
    h.begin("i", turn).await;
    assert_eq!(drain(&h, &TagFilter::DefaultOnly).await, [3]);
    let work = h.next_work_tagged(&TagFilter::tags(["gpu"])).await.unwrap();
    assert_eq!(work.item, activity_tagged("i", 2, "gpu"));
}

async fn disjoint_filters_split_the_queue(h: CaseHarness) {
    mixed_queue(&h).await;
    assert_eq!(drain(&h, &TagFilter::tags(["tpu"])).await, [3]);
    assert_eq!(drain(&h, &TagFilter::tags(["gpu"])).await, [2, 5]);
    assert_eq!(drain(&h, &TagFilter::DefaultOnly).await, [1, 4]);
    assert!(drain(&h, &TagFilter::Any).await.is_empty());
}

async fn overlapping_and_superset_filters_take_what_is_left(h: CaseHarness) {
    mixed_queue(&h).await;
    let first = h.next_work_tagged(&TagFilter::tags(["gpu", "tpu"])).await.unwrap();
    assert_eq!(first.activity_id(), 2);
    assert_eq!(drain(&h, &TagFilter::default_and(["tpu"])).await, [1, 3, 4]);
    assert_eq!(drain(&h, &TagFilter::default_and(["gpu", "tpu"])).await, [5]);
}

async fn odd_tags_match_exactly(h: CaseHarness) {
    for (tag, id) in ["GPU", "gpu ", "g%u", "ünï🦀", "'; --"].into_iter().zip(1..) {
        h.queue(activity_tagged("i", id, tag)).await;
    }
    assert!(drain(&h, &TagFilter::tags(["gpu"])).await.is_empty());
    assert_eq!(drain(&h, &TagFilter::tags(["g%u", "ünï🦀"])).await, [3, 4]);
    assert_eq!(drain(&h, &TagFilter::tags(["'; --", "GPU", "gpu "])).await, [1, 2, 5]);
}

async fn a_tagged_activity_in_a_session_needs_both(h: CaseHarness) {
    h.queue(activity_of("i", 1, Some("s"), Some("gpu"))).await;
    assert!(h.next_work_tagged(&TagFilter::Any).await.is_none());
    assert!(h.next_work_as("w", secs(60)).await.is_none());
    assert_eq!(h.activities_waiting().await, 1);
}
