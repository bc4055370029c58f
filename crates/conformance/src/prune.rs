//! Pruning removes old executions and nothing else.

use everturn_provider::management::{InstanceFilter, PruneOptions, PruneResult};

use crate::events;
use crate::harness::{CaseHarness, custom_status, expect_permanent_error, secs};
use crate::items::{activity, signal};
use crate::sample_turn::SampleTurn;

cases! { $ prune as prune_cases:
    keep_last_two_of_four,
    none_zero_and_one_leave_only_the_current_execution,
    keeping_more_than_there_are_removes_nothing,
    the_current_execution_is_never_removed,
    an_unknown_instance_is_not_found,
    by_time_only_what_ended_before,
    by_number_and_time_both_must_hold,
    the_running_execution_and_its_work_are_untouched,
    bulk_touches_only_filtered_instances_and_counts_them,
    bulk_prunes_running_instances_too,
}

fn keep(keep_last: u32) -> PruneOptions {
    PruneOptions { keep_last: Some(keep_last), completed_before: None }
}

async fn prune(h: &CaseHarness, instance: &str, options: PruneOptions) -> PruneResult {
    h.admin().prune_executions(instance, options).await.unwrap()
}

async fn executions(h: &CaseHarness, instance: &str) -> Vec<u64> {
    h.admin().list_executions(instance).await.unwrap()
}

async fn keep_last_two_of_four(h: CaseHarness) {
    h.create_with_executions("i", 4).await;
    let pruned = prune(&h, "i", keep(2)).await;
    assert_eq!((pruned.instances_processed, pruned.executions_deleted, pruned.events_deleted), (1, 2, 4));
    assert_eq!(executions(&h, "i").await, [3, 4]);
    assert_eq!(h.history_of("i", 1).await.unwrap(), []);
    assert_eq!(h.history_of("i", 3).await.unwrap().len(), 2);
    assert_eq!(h.event_ids("i").await, [1]);
}

async fn none_zero_and_one_leave_only_the_current_execution(h: CaseHarness) {
    for (instance, options) in [("a", PruneOptions::default()), ("b", keep(0)), ("c", keep(1))] {
        h.create_with_executions(instance, 3).await;
        let pruned = prune(&h, instance, options).await;
        assert_eq!((pruned.executions_deleted, pruned.events_deleted), (2, 4));
        assert_eq!(executions(&h, instance).await, [3]);
    }
}

async fn keeping_more_than_there_are_removes_nothing(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    let pruned = prune(&h, "i", keep(10)).await;
    assert_eq!((pruned.instances_processed, pruned.executions_deleted, pruned.events_deleted), (1, 0, 0));
    assert_eq!(executions(&h, "i").await, [1, 2, 3]);
}

async fn the_current_execution_is_never_removed(h: CaseHarness) {
    h.create_completed("i").await;
    h.pass(secs(10));
    let options = PruneOptions { keep_last: Some(0), completed_before: Some(h.now_ms()) };
    let pruned = prune(&h, "i", options).await;
    assert_eq!((pruned.instances_processed, pruned.executions_deleted), (1, 0));
    assert_eq!(executions(&h, "i").await, [1]);
    assert_eq!(h.event_ids("i").await, [1, 2]);
}

async fn an_unknown_instance_is_not_found(h: CaseHarness) {
    let error = expect_permanent_error(h.admin().prune_executions("unknown", keep(1)).await);
    assert!(error.to_string().to_lowercase().contains("not found"), "{error}");
}

/// Executions 1 to 4; 1 and 2 ended ten seconds before 3, and at the returned moment 3 had not ended.
async fn spread_over_time(h: &CaseHarness) -> u64 {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).continuing_as_new(2)).await;
    h.pass(secs(5));
    let between = h.now_ms();
    h.pass(secs(5));
    h.take_turn("i", SampleTurn::beginning("i", 3).continuing_as_new(2)).await;
    h.take_turn("i", SampleTurn::beginning("i", 4)).await;
    between
}

async fn by_time_only_what_ended_before(h: CaseHarness) {
    let between = spread_over_time(&h).await;
    let pruned = prune(&h, "i", PruneOptions { keep_last: None, completed_before: Some(between) }).await;
    assert_eq!(pruned.executions_deleted, 2);
    assert_eq!(executions(&h, "i").await, [3, 4]);
}

async fn by_number_and_time_both_must_hold(h: CaseHarness) {
    let between = spread_over_time(&h).await;
    let pruned = prune(&h, "i", PruneOptions { keep_last: Some(3), completed_before: Some(between) }).await;
    assert_eq!(pruned.executions_deleted, 1);
    assert_eq!(executions(&h, "i").await, [2, 3, 4]);
}

async fn the_running_execution_and_its_work_are_untouched(h: CaseHarness) {
    h.create_with_executions("i", 2).await;
    let turn =
        SampleTurn::of("i", 2).event(2, events::custom_status(Some("kept"))).activity(activity("i", 2));
    h.turn("i", turn).await;
    h.send(signal("i", "waits")).await;
    let fetched = h.fetched_turn().await;
    prune(&h, "i", PruneOptions::default()).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("kept", 1));
    assert_eq!(h.drain_work().await, [2]);
    SampleTurn::of("i", 2).event(3, events::scheduled()).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1, 2, 3]);
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().current_execution_id, 2);
}

async fn bulk_touches_only_filtered_instances_and_counts_them(h: CaseHarness) {
    for instance in ["a", "b", "c"] {
        h.create_with_executions(instance, 3).await;
    }
    let filter = InstanceFilter {
        instance_ids: Some(vec!["a".to_owned(), "c".to_owned(), "unknown".to_owned()]),
        ..InstanceFilter::default()
    };
    let pruned = h.admin().prune_executions_bulk(filter, keep(1)).await.unwrap();
    assert_eq!((pruned.instances_processed, pruned.executions_deleted, pruned.events_deleted), (2, 4, 8));
    assert_eq!(executions(&h, "a").await, [3]);
    assert_eq!(executions(&h, "b").await, [1, 2, 3]);
    assert_eq!(executions(&h, "c").await, [3]);
}

async fn bulk_prunes_running_instances_too(h: CaseHarness) {
    h.create_with_executions("running", 3).await;
    h.create_with_executions("ended", 2).await;
    h.turn("ended", SampleTurn::of("ended", 2).completing(2, "ok")).await;
    let pruned = h.admin().prune_executions_bulk(InstanceFilter::default(), keep(1)).await.unwrap();
    assert_eq!((pruned.instances_processed, pruned.executions_deleted), (2, 3));
    assert_eq!(executions(&h, "running").await, [3]);
    assert_eq!(executions(&h, "ended").await, [2]);
}
