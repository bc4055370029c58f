//! The event that each call of the context records.

use std::time::Duration;

use everturn_core::OrchestrationContext;

use crate::harness::{Harness, summarize};

/// What one call adds to the first turn's history, the start event and the final wait apart.
fn records(call: fn(&OrchestrationContext)) -> Vec<String> {
    let mut harness = Harness::new(move |ctx, _| async move {
        call(&ctx);
        Ok(ctx.schedule_wait("end").await)
    })
    .kv([("old", "", 1), ("older", "", 0)]);
    let lines = summarize(&harness.turn([]).history_delta);
    lines.into_iter().filter(|line| !line.ends_with("started") && !line.ends_with("wait end")).collect()
}

#[test]
fn calls_with_a_result_record_their_schedule() {
    assert_eq!(records(|ctx| std::mem::forget(ctx.schedule_activity("A", "x"))), ["2 activity A x"]);
    assert_eq!(records(|ctx| std::mem::forget(ctx.new_guid())), ["2 activity __everturn_syscall:new_guid "]);
    assert_eq!(
        records(|ctx| std::mem::forget(ctx.get_kv_value_from_instance("o", "k"))),
        [r#"2 activity __everturn_syscall:get_kv_value {"instance_id":"o","key":"k"}"#]
    );
    assert_eq!(
        records(|ctx| std::mem::forget(ctx.schedule_timer(Duration::from_millis(1)))),
        ["2 timer 1000001"]
    );
    assert_eq!(records(|ctx| std::mem::forget(ctx.schedule_wait("w"))), ["2 wait w"]);
    assert_eq!(records(|ctx| std::mem::forget(ctx.dequeue_event("q"))), ["2 dequeue q"]);
    assert_eq!(
        records(|ctx| std::mem::forget(ctx.schedule_sub_orchestration("C", "x"))),
        ["2 child C sub::2 x"]
    );
}

#[test]
fn calls_without_a_result_record_themselves() {
    assert_eq!(records(|ctx| ctx.schedule_orchestration("D", "d", "x")), ["2 detached D d x"]);
    assert_eq!(records(|ctx| ctx.set_custom_status("s")), ["2 status Some(\"s\")"]);
    assert_eq!(records(|ctx| ctx.reset_custom_status()), ["2 status None"]);
    assert_eq!(records(|ctx| ctx.set_kv_value("k", "v")), ["2 set k=v"]);
    assert_eq!(records(|ctx| ctx.clear_kv_value("k")), ["2 clear k"]);
    assert_eq!(records(|ctx| ctx.clear_all_kv_values()), ["2 clear-all"]);
}

#[test]
fn prune_records_each_key_it_clears() {
    let prune: fn(&OrchestrationContext) = |ctx| {
        ctx.prune_kv_values_updated_before(5);
    };
    assert_eq!(records(prune), ["2 clear old", "3 clear older"]);
}

#[test]
fn reads_record_nothing() {
    let read: fn(&OrchestrationContext) = |ctx| {
        ctx.get_kv_value("old");
        ctx.get_kv_all_values();
        ctx.get_kv_all_keys();
        ctx.get_kv_length();
        ctx.get_custom_status();
        ctx.trace_info("nothing");
    };
    assert!(records(read).is_empty());
}

#[test]
fn continue_as_new_records_only_the_terminal_event() {
    let records = records(|ctx| drop(ctx.continue_as_new("x")));
    assert_eq!(records, ["4<3 wait-cancelled orchestration_terminal", "5 continued x"]);
}
