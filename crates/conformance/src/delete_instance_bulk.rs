//! Deleting ended roots by filter.

use everturn_provider::management::InstanceFilter;

use crate::harness::{CaseHarness, secs};
use crate::sample_turn::SampleTurn;

cases! { $ delete_instance_bulk as delete_instance_bulk_cases:
    by_ids,
    an_empty_id_list_deletes_nothing,
    unknown_ids_delete_nothing,
    by_time_with_a_strict_cut_off,
    by_ids_and_time,
    without_a_filter_every_ended_root_goes,
    running_instances_are_skipped,
    an_instance_that_waits_for_its_successor_is_skipped,
    children_are_skipped_by_themselves_and_counted_with_their_root,
    several_roots_go_with_their_children,
    a_limit_makes_batches,
}

fn of_ids(ids: &[&str]) -> InstanceFilter {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    InstanceFilter { instance_ids: Some(ids), ..InstanceFilter::default() }
}

async fn bulk(h: &CaseHarness, filter: InstanceFilter) -> u64 {
    h.admin().delete_instance_bulk(filter).await.unwrap().instances_deleted
}

async fn listed(h: &CaseHarness) -> Vec<String> {
    let mut ids = h.admin().list_instances().await.unwrap();
    ids.sort();
    ids
}

async fn by_ids(h: CaseHarness) {
    for instance in ["a", "b", "c"] {
        h.create_completed(instance).await;
    }
    let deleted = h.admin().delete_instance_bulk(of_ids(&["a", "c"])).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted), (2, 2, 4));
    assert_eq!(listed(&h).await, ["b"]);
}

async fn an_empty_id_list_deletes_nothing(h: CaseHarness) {
    h.create_completed("a").await;
    assert_eq!(bulk(&h, of_ids(&[])).await, 0);
    assert_eq!(listed(&h).await, ["a"]);
}

async fn unknown_ids_delete_nothing(h: CaseHarness) {
    h.create_completed("a").await;
    assert_eq!(bulk(&h, of_ids(&["unknown", "unknown too"])).await, 0);
    assert_eq!(bulk(&h, of_ids(&["unknown", "a"])).await, 1);
}

async fn by_time_with_a_strict_cut_off(h: CaseHarness) {
    h.create_completed("early").await;
    h.pass(secs(10));
    let cut_off = h.now_ms();
    h.create_completed("late").await;
    let before = |completed_before| InstanceFilter {
        completed_before: Some(completed_before),
        ..InstanceFilter::default()
    };
    assert_eq!(bulk(&h, before(cut_off)).await, 1);
    assert_eq!(listed(&h).await, ["late"]);
    assert_eq!(bulk(&h, before(cut_off + 1)).await, 1);
}

async fn by_ids_and_time(h: CaseHarness) {
    h.create_completed("early").await;
    h.create_completed("early too").await;
    h.pass(secs(10));
    let cut_off = h.now_ms();
    h.create_completed("late").await;
    let filter = InstanceFilter { completed_before: Some(cut_off), ..of_ids(&["early", "late"]) };
    assert_eq!(bulk(&h, filter).await, 1);
    assert_eq!(listed(&h).await, ["early too", "late"]);
}

async fn without_a_filter_every_ended_root_goes(h: CaseHarness) {
    h.create_completed("a").await;
    h.begin("b", SampleTurn::beginning("b", 1).failing(2, "boom")).await;
    h.create("running").await;
    assert_eq!(bulk(&h, InstanceFilter::default()).await, 2);
    assert_eq!(listed(&h).await, ["running"]);
}

async fn running_instances_are_skipped(h: CaseHarness) {
    h.create("running").await;
    h.create_completed("done").await;
    assert_eq!(bulk(&h, of_ids(&["running", "done"])).await, 1);
    assert_eq!(listed(&h).await, ["running"]);
}

async fn an_instance_that_waits_for_its_successor_is_skipped(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    h.pass(secs(1));
    let filter = InstanceFilter { completed_before: Some(h.now_ms()), ..InstanceFilter::default() };
    assert_eq!(bulk(&h, filter).await, 0);
    h.take_turn("i", SampleTurn::beginning("i", 2)).await;
}

async fn children_are_skipped_by_themselves_and_counted_with_their_root(h: CaseHarness) {
    h.create_completed("root").await;
    h.create_completed_child("child", "root").await;
    h.create_completed_child("grandchild", "child").await;
    assert_eq!(bulk(&h, of_ids(&["child", "grandchild"])).await, 0);
    let deleted = h.admin().delete_instance_bulk(of_ids(&["root"])).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted), (3, 3, 6));
    assert!(listed(&h).await.is_empty());
}

async fn several_roots_go_with_their_children(h: CaseHarness) {
    for root in ["a", "b"] {
        h.create_completed(root).await;
        h.create_completed_child(&format!("{root} child"), root).await;
    }
    h.create_completed("c").await;
    assert_eq!(bulk(&h, of_ids(&["a", "b"])).await, 4);
    assert_eq!(listed(&h).await, ["c"]);
}

async fn a_limit_makes_batches(h: CaseHarness) {
    for n in 0..5 {
        h.create_completed(&format!("i{n}")).await;
    }
    let two = InstanceFilter { limit: Some(2), ..InstanceFilter::default() };
    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(bulk(&h, two.clone()).await);
    }
    assert_eq!(batches, [2, 2, 1, 0]);
}
