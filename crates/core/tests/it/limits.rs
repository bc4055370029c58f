//! Limits on custom status, tags and the key-value store.

use everturn_core::limits::{
    DEFAULT_PAYLOAD_BYTES_MAX, MAX_CARRIED_BYTES, MAX_CUSTOM_STATUS_BYTES, MAX_DECISIONS_PER_TURN,
    MAX_KV_KEYS, MAX_KV_VALUE_BYTES, MAX_TAG_NAME_BYTES, MAX_WORKER_TAGS, MIN_LOCK_TIMEOUT_MS,
};
use everturn_core::turn::TurnOutcome;
use everturn_core::{ErrorDetails, OrchestrationContext};

use crate::harness::{Harness, activity_completed, outcome_of, sent, summarize};

fn broken(text: &str) -> TurnOutcome {
    TurnOutcome::Failed { details: ErrorDetails::orchestration_failed(text) }
}

fn ok() -> TurnOutcome {
    TurnOutcome::Completed { output: String::new() }
}

/// The outcome of an orchestration that runs `act` and returns.
fn after(act: impl Fn(&OrchestrationContext) + Send + Sync + Clone + 'static) -> TurnOutcome {
    outcome_of(move |ctx, _| {
        let act = act.clone();
        async move {
            act(&ctx);
            Ok(String::new())
        }
    })
}

#[test]
fn limits_have_their_documented_values() {
    assert_eq!(MAX_CUSTOM_STATUS_BYTES, 262_144);
    assert_eq!(MAX_WORKER_TAGS, 5);
    assert_eq!(MAX_TAG_NAME_BYTES, 256);
    assert_eq!(MAX_KV_KEYS, 150);
    assert_eq!(MAX_KV_VALUE_BYTES, 65_536);
    assert_eq!(MAX_DECISIONS_PER_TURN, 100_000);
    assert_eq!(MAX_CARRIED_BYTES, 67_108_864);
    assert_eq!(DEFAULT_PAYLOAD_BYTES_MAX, 8_388_608);
    assert_eq!(MIN_LOCK_TIMEOUT_MS, 200);
}

#[test]
fn custom_status_may_be_as_long_as_the_limit_but_not_longer() {
    assert_eq!(after(|ctx| ctx.set_custom_status("s".repeat(262_144))), ok());
    assert_eq!(
        after(|ctx| ctx.set_custom_status("s".repeat(262_145))),
        broken("Custom status size (262145 bytes) exceeds limit (262144 bytes)")
    );
}

#[test]
fn only_the_last_custom_status_of_a_turn_is_measured() {
    let replaced = after(|ctx| {
        ctx.set_custom_status("s".repeat(262_145));
        ctx.set_custom_status("short");
    });
    assert_eq!(replaced, ok());
    let cleared = after(|ctx| {
        ctx.set_custom_status("s".repeat(262_145));
        ctx.reset_custom_status();
    });
    assert_eq!(cleared, broken("Custom status size (262145 bytes) exceeds limit (262144 bytes)"));
}

#[test]
fn tag_may_be_as_long_as_the_limit_but_not_longer() {
    let tagged = |bytes: usize| {
        outcome_of(move |ctx, _| async move {
            let _call = ctx.schedule_activity("A", "").with_tag("t".repeat(bytes));
            Ok(String::new())
        })
    };
    assert_eq!(tagged(256), ok());
    assert_eq!(tagged(257), broken("Activity 'A' tag size (257 bytes) exceeds limit (256 bytes)"));
}

#[test]
fn kv_value_may_be_as_long_as_the_limit_but_not_longer() {
    assert_eq!(after(|ctx| ctx.set_kv_value("k", "v".repeat(65_536))), ok());
    let text = "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)";
    assert_eq!(after(|ctx| ctx.set_kv_value("k", "v".repeat(65_537))), broken(text));
    let overwritten = after(|ctx| {
        ctx.set_kv_value("k", "v".repeat(65_537));
        ctx.set_kv_value("k", "short");
    });
    assert_eq!(overwritten, broken(text));
}

fn fill(ctx: &OrchestrationContext, keys: usize) {
    for n in 0..keys {
        ctx.set_kv_value(format!("k{n}"), "");
    }
}

#[test]
fn instance_may_have_150_keys_but_not_more() {
    assert_eq!(after(|ctx| fill(ctx, 150)), ok());
    assert_eq!(after(|ctx| fill(ctx, 151)), broken("KV key count (151) exceeds limit (150)"));
}

#[test]
fn keys_are_counted_after_the_turn() {
    let cleared_in_time = after(|ctx| {
        fill(ctx, 151);
        ctx.clear_kv_value("k0");
    });
    assert_eq!(cleared_in_time, ok());
}

#[test]
fn keys_of_earlier_turns_and_executions_count() {
    let mut harness = Harness::new(|ctx, _| async move {
        fill(&ctx, 149);
        ctx.schedule_activity("A", "").await?;
        ctx.set_kv_value("one more", "");
        Ok(String::new())
    })
    .kv([("inherited", "", 1)]);
    let scheduled = harness.turn([]).history_delta.last().unwrap().event_id;
    assert_eq!(
        harness.turn([activity_completed(scheduled, "")]).outcome,
        broken("KV key count (151) exceeds limit (150)")
    );
}

#[test]
fn limits_are_checked_in_their_documented_order() {
    let everything = |with_status: bool, with_tag: bool, with_value: bool| {
        outcome_of(move |ctx, _| async move {
            fill(&ctx, 151);
            if with_value {
                ctx.set_kv_value("big", "v".repeat(65_537));
            }
            let tag = if with_tag { "t".repeat(257) } else { "t".to_owned() };
            let _call = ctx.schedule_activity("A", "").with_tag(tag);
            if with_status {
                ctx.set_custom_status("s".repeat(262_145));
            }
            Ok(String::new())
        })
    };
    let text = |outcome: TurnOutcome| match outcome {
        TurnOutcome::Failed { details } => details.display_message(),
        other => panic!("{other:?}"),
    };
    assert!(text(everything(true, true, true)).starts_with("Custom status size"));
    assert!(text(everything(false, true, true)).starts_with("Activity 'A' tag size"));
    assert!(text(everything(false, false, true)).starts_with("KV value for key 'big'"));
    assert!(text(everything(false, false, false)).starts_with("KV key count"));
}

#[test]
fn violation_discards_the_turns_work_notifies_the_parent_and_cancels_children() {
    let mut harness = Harness::new(|ctx, _| async move {
        let child = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_activity("A", "").await?;
        ctx.schedule_orchestration("D", "d", "");
        let second = ctx.schedule_activity("B", "");
        ctx.set_kv_value("k", "v".repeat(65_537));
        let (_, second) = ctx.join2(child, second).await;
        second
    })
    .child_of("parent", 5, Some(2));
    harness.turn([]);
    let turn = harness.turn([activity_completed(3, "")]);
    let text = "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)";
    assert_eq!(turn.outcome, broken(text));
    assert_eq!(
        summarize(&turn.history_delta),
        ["4<3 activity-completed ".to_owned(), format!("5 failed {text}")]
    );
    assert_eq!(
        sent(&turn),
        [format!("notify parent 5 failed {text}"), "cancel order::sub::2: parent failed".to_owned()]
    );
}
