//! Deleting instances with everything that belongs to them.

use crate::events;
use crate::harness::{CaseHarness, PAST_LOCK, expect_error, expect_lock_lost, expect_permanent_error, secs};
use crate::image::image;
use crate::items::{activity, activity_completed, queue_message, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ delete as delete_cases:
    a_completed_instance_is_removed_with_right_counts,
    a_failed_instance_is_removed,
    a_running_instance_needs_force,
    an_unknown_instance_is_not_found,
    queue_rows_are_counted_and_removed,
    nothing_of_it_can_be_read_any_more,
    the_id_is_reusable_with_fresh_data,
    a_child_cannot_be_deleted_directly,
    the_root_cascades_through_three_levels,
    a_turn_in_flight_fails_after_a_forced_delete,
    an_activity_in_flight_fails_after_a_forced_delete,
    a_locked_instance_is_fetchable_when_recreated,
    several_ids_go_in_one_call,
    one_running_id_blocks_all_unless_forced,
    a_parent_without_its_child_fails_and_rolls_back,
    an_empty_list_deletes_nothing,
    other_instances_are_untouched,
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

async fn a_completed_instance_is_removed_with_right_counts(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    h.turn("i", SampleTurn::of("i", 3).completing(2, "ok")).await;
    let deleted = h.admin().delete_instance("i", false).await.unwrap();
    assert_eq!(deleted.instances_deleted, 1);
    assert_eq!(deleted.executions_deleted, 3);
    assert_eq!(deleted.events_deleted, 6);
    assert_eq!(deleted.queue_messages_deleted, 0);
    assert!(h.admin().list_instances().await.unwrap().is_empty());
}

async fn a_failed_instance_is_removed(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).failing(2, "boom")).await;
    let deleted = h.admin().delete_instance("i", false).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted), (1, 1, 2));
}

async fn a_running_instance_needs_force(h: CaseHarness) {
    h.create("i").await;
    let before = image(&h, &["i"]).await;
    let error = expect_permanent_error(h.admin().delete_instance("i", false).await);
    assert!(error.to_string().to_lowercase().contains("still running"), "{error}");
    assert_eq!(image(&h, &["i"]).await, before);
    assert_eq!(h.admin().delete_instance("i", true).await.unwrap().instances_deleted, 1);
}

async fn an_unknown_instance_is_not_found(h: CaseHarness) {
    for force in [false, true] {
        let error = expect_permanent_error(h.admin().delete_instance("unknown", force).await);
        assert!(error.to_string().to_lowercase().contains("not found"), "{error}");
    }
}

async fn queue_rows_are_counted_and_removed(h: CaseHarness) {
    h.create("i").await;
    h.create("other").await;
    h.send(signal("i", "a")).await;
    h.send_later(signal("i", "later"), secs(10)).await;
    h.queue(activity("i", 2)).await;
    h.send(signal("other", "a")).await;
    h.queue(activity("other", 2)).await;
    let deleted = h.admin().delete_instance("i", true).await.unwrap();
    assert_eq!(deleted.queue_messages_deleted, 3);
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (1, 1));
    assert_eq!(h.fetched_turn().await.item.instance, "other");
    assert_eq!(h.fetched_work().await.item, activity("other", 2));
}

async fn nothing_of_it_can_be_read_any_more(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, events::custom_status(Some("status")))
        .event(3, events::kv_set("k", "v"))
        .completing(4, "ok");
    h.begin("i", turn).await;
    h.admin().delete_instance("i", false).await.unwrap();
    assert_eq!(h.history("i").await.unwrap(), []);
    assert_eq!(h.history_of("i", 1).await.unwrap(), []);
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
    assert_eq!(h.read_kv_value("i", "k").await.unwrap(), None);
    assert_eq!(h.read_stats("i").await.unwrap(), None);
    assert!(h.admin().list_executions("i").await.unwrap().is_empty());
    expect_error(h.admin().get_instance_info("i").await);
    let metrics = h.admin().get_system_metrics().await.unwrap();
    assert_eq!((metrics.total_instances, metrics.total_executions, metrics.total_events), (0, 0, 0));
}

async fn the_id_is_reusable_with_fresh_data(h: CaseHarness) {
    h.begin(
        "i",
        SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("old"))).completing(3, "old"),
    )
    .await;
    h.admin().delete_instance("i", false).await.unwrap();
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!((fetched.item.execution_id, fetched.item.history.len()), (1, 0));
    SampleTurn::beginning("i", 1).completing(2, "new").commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().output.as_deref(), Some("new"));
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
    assert_eq!(h.event_ids("i").await, [1, 2]);
}

async fn a_child_cannot_be_deleted_directly(h: CaseHarness) {
    h.create_completed("root").await;
    h.create_completed_child("child", "root").await;
    for force in [false, true] {
        let error = expect_permanent_error(h.admin().delete_instance("child", force).await);
        assert!(error.to_string().to_lowercase().contains("sub-orchestration"), "{error}");
    }
    assert_eq!(h.event_ids("child").await, [1, 2]);
}

async fn the_root_cascades_through_three_levels(h: CaseHarness) {
    h.create_completed("root").await;
    h.create_completed_child("child a", "root").await;
    h.create_completed_child("child b", "root").await;
    h.create_completed_child("grandchild", "child a").await;
    h.queue(activity("grandchild", 2)).await;
    let deleted = h.admin().delete_instance("root", false).await.unwrap();
    assert_eq!(deleted.instances_deleted, 4);
    assert_eq!(deleted.executions_deleted, 4);
    assert_eq!(deleted.events_deleted, 8);
    assert_eq!(deleted.queue_messages_deleted, 1);
    assert!(h.admin().list_instances().await.unwrap().is_empty());
}

async fn a_turn_in_flight_fails_after_a_forced_delete(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.admin().delete_instance("i", true).await.unwrap();
    let turn = SampleTurn::of("i", 1)
        .event(2, events::kv_set("k", "v"))
        .activity(activity("i", 2))
        .message(signal("i", "b"));
    expect_lock_lost(turn.commit(&h, &fetched.lock_token).await);
    expect_lock_lost(h.renew_turn(&fetched.lock_token, secs(30)).await);
    assert!(h.admin().list_instances().await.unwrap().is_empty());
    assert_eq!(h.history("i").await.unwrap(), []);
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (0, 0));
    h.pass(PAST_LOCK);
    assert!(h.next_turn().await.is_none(), "nothing reappears");
}

async fn an_activity_in_flight_fails_after_a_forced_delete(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let deleted = h.admin().delete_instance("i", true).await.unwrap();
    assert_eq!(deleted.queue_messages_deleted, 1);
    expect_lock_lost(h.renew_work(&work.lock_token, secs(30)).await);
    expect_lock_lost(h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await);
    assert_eq!(h.messages_waiting().await, 0);
}

async fn a_locked_instance_is_fetchable_when_recreated(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    h.fetched_turn().await;
    h.admin().delete_instance("i", true).await.unwrap();
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [start("i")], "the old lock is gone");
}

async fn several_ids_go_in_one_call(h: CaseHarness) {
    for instance in ["a", "b", "c"] {
        h.create_completed(instance).await;
    }
    let deleted = h.admin().delete_instances_atomic(&ids(&["a", "c"]), false).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted), (2, 2, 4));
    assert_eq!(h.admin().list_instances().await.unwrap(), ["b"]);
}

async fn one_running_id_blocks_all_unless_forced(h: CaseHarness) {
    h.create_completed("a").await;
    h.create("b").await;
    let before = image(&h, &["a", "b"]).await;
    let error = expect_permanent_error(h.admin().delete_instances_atomic(&ids(&["a", "b"]), false).await);
    assert!(error.to_string().to_lowercase().contains("still running"), "{error}");
    assert_eq!(image(&h, &["a", "b"]).await, before);
    let deleted = h.admin().delete_instances_atomic(&ids(&["a", "b"]), true).await.unwrap();
    assert_eq!(deleted.instances_deleted, 2);
}

async fn a_parent_without_its_child_fails_and_rolls_back(h: CaseHarness) {
    h.create_completed("root").await;
    h.create_completed_child("child", "root").await;
    h.send(queue_message("root", "kept")).await;
    let before = image(&h, &["root", "child"]).await;
    for force in [false, true] {
        let error = expect_permanent_error(h.admin().delete_instances_atomic(&ids(&["root"]), force).await);
        let text = error.to_string().to_lowercase();
        assert!(text.contains("child") || text.contains("tree traversal"), "{error}");
        assert_eq!(image(&h, &["root", "child"]).await, before);
    }
    let both = h.admin().delete_instances_atomic(&ids(&["root", "child"]), false).await.unwrap();
    assert_eq!(both.instances_deleted, 2);
}

async fn an_empty_list_deletes_nothing(h: CaseHarness) {
    h.create_completed("a").await;
    let deleted = h.admin().delete_instances_atomic(&[], true).await.unwrap();
    assert_eq!(deleted.instances_deleted, 0);
    assert_eq!(deleted.executions_deleted, 0);
    assert_eq!(deleted.events_deleted, 0);
    assert_eq!(deleted.queue_messages_deleted, 0);
    assert_eq!(h.admin().list_instances().await.unwrap(), ["a"]);
}

async fn other_instances_are_untouched(h: CaseHarness) {
    h.create_completed("a").await;
    h.begin("b", SampleTurn::beginning("b", 1).event(2, events::kv_set("k", "v")).activity(activity("b", 2)))
        .await;
    h.send(signal("b", "waits")).await;
    let fetched = h.fetched_turn().await;
    h.admin().delete_instance("a", false).await.unwrap();
    assert_eq!(h.read_kv_value("b", "k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(h.drain_work().await, [2]);
    SampleTurn::of("b", 1).event(3, events::scheduled()).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.event_ids("b").await, [1, 2, 3]);
}
