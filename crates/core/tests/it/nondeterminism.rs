//! The texts of nondeterminism and corruption, and which fields replay compares.

use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{ConfigErrorKind, ErrorDetails, EventKind, OrchestrationContext};

use crate::harness::{Harness, activity_completed, history, timer_fired};

/// Replays a history with code that makes one call and then waits for `end`.
fn replay<const N: usize>(
    recorded: [(Option<u64>, EventKind); N],
    call: impl Fn(&OrchestrationContext) + Send + Sync + Clone + 'static,
) -> Result<(), String> {
    let mut harness = Harness::resumed(history(recorded), move |ctx, _| {
        let call = call.clone();
        async move {
            call(&ctx);
            Ok(ctx.schedule_wait("end").await)
        }
    });
    match harness.turn([]).outcome {
        TurnOutcome::Continue => Ok(()),
        TurnOutcome::Failed {
            details:
                ErrorDetails::Configuration {
                    kind: ConfigErrorKind::Nondeterminism,
                    resource,
                    message: Some(message),
                },
        } if resource.is_empty() => Err(message),
        other => panic!("{other:?}"),
    }
}

fn activity(name: &str, input: &str, session: Option<&str>, tag: Option<&str>) -> EventKind {
    EventKind::ActivityScheduled {
        name: name.into(),
        input: input.into(),
        session_id: session.map(Into::into),
        tag: tag.map(Into::into),
    }
}

fn keep<T>(future: T) {
    std::mem::forget(future);
}

#[track_caller]
fn says(result: Result<(), String>, fragment: &str) {
    let message = result.expect_err("nothing was noticed");
    assert!(message.contains(fragment), "{message}");
}

const MISMATCH: &str = "schedule mismatch: action=";

#[test]
fn history_schedules_something_the_code_did_not_ask_for() {
    let recorded = history([
        (None, EventKind::ExternalSubscribed { name: "w".into() }),
        (None, activity("A", "", None, None)),
    ]);
    let mut harness = Harness::resumed(recorded, |ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    assert!(
        details.display_message().starts_with("nondeterministic: history schedule but no emitted action")
    );
}

#[test]
fn history_starts_something_detached_that_the_code_did_not_ask_for() {
    let chained =
        EventKind::OrchestrationChained { name: "D".into(), instance: "d".into(), input: "".into() };
    let recorded = history([(None, EventKind::ExternalSubscribed { name: "w".into() }), (None, chained)]);
    let mut harness = Harness::resumed(recorded, |ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    let text = details.display_message();
    assert!(text.contains("history OrchestrationChained but no emitted action"), "{text}");
}

#[test]
fn activity_is_compared_by_name_input_session_and_tag() {
    let call =
        |ctx: &OrchestrationContext| keep(ctx.schedule_activity_on_session("A", "x", "s").with_tag("t"));
    let same = activity("A", "x", Some("s"), Some("t"));
    assert!(replay([(None, same)], call).is_ok());
    let others = [
        activity("B", "x", Some("s"), Some("t")),
        activity("A", "y", Some("s"), Some("t")),
        activity("A", "x", Some("z"), Some("t")),
        activity("A", "x", None, Some("t")),
        activity("A", "x", Some("s"), Some("z")),
        activity("A", "x", Some("s"), None),
    ];
    for other in others {
        says(replay([(None, other)], call), MISMATCH);
    }
}

#[test]
fn adding_a_session_or_a_tag_is_noticed() {
    let plain = || activity("A", "x", None, None);
    says(replay([(None, plain())], |ctx| keep(ctx.schedule_activity_on_session("A", "x", "s"))), MISMATCH);
    says(replay([(None, plain())], |ctx| keep(ctx.schedule_activity("A", "x").with_tag("t"))), MISMATCH);
}

#[test]
fn mismatch_shows_the_action_the_event_and_the_line_of_code() {
    let error = replay([(None, activity("A", "x", None, None))], |ctx| keep(ctx.schedule_activity("B", "x")))
        .unwrap_err();
    let event = format!("vs event={:?}", activity("A", "x", None, None));
    assert!(error.contains(&event), "{error}");
    assert!(error.contains("nondeterminism.rs"), "{error}");
}

#[test]
fn kinds_are_compared() {
    let timer = EventKind::TimerCreated { fire_at_ms: 1 };
    says(replay([(None, timer)], |ctx| keep(ctx.schedule_activity("A", ""))), MISMATCH);
    let wait = EventKind::ExternalSubscribed { name: "n".into() };
    says(replay([(None, wait)], |ctx| keep(ctx.dequeue_event("n"))), MISMATCH);
    let read = EventKind::QueueSubscribed { name: "n".into() };
    says(replay([(None, read)], |ctx| keep(ctx.schedule_wait("n"))), MISMATCH);
    says(
        replay([(None, activity("A", "", None, None))], |ctx| keep(ctx.schedule_sub_orchestration("A", ""))),
        MISMATCH,
    );
    says(replay([(None, activity("A", "", None, None))], |ctx| ctx.set_kv_value("k", "v")), MISMATCH);
}

#[test]
fn timers_match_by_position_only() {
    let timer = EventKind::TimerCreated { fire_at_ms: 1 };
    assert!(replay([(None, timer)], |ctx| keep(ctx.schedule_timer(Duration::from_secs(99)))).is_ok());
}

#[test]
fn waits_and_queues_are_compared_by_name() {
    let wait = || EventKind::ExternalSubscribed { name: "n".into() };
    assert!(replay([(None, wait())], |ctx| keep(ctx.schedule_wait("n"))).is_ok());
    says(replay([(None, wait())], |ctx| keep(ctx.schedule_wait("m"))), MISMATCH);
    let read = || EventKind::QueueSubscribed { name: "n".into() };
    assert!(
        replay([(None, read()), (None, EventKind::ExternalSubscribed { name: "end".into() })], |ctx| keep(
            ctx.dequeue_event("n")
        ))
        .is_ok()
    );
    says(replay([(None, read())], |ctx| keep(ctx.dequeue_event("m"))), MISMATCH);
}

#[test]
fn child_is_compared_by_name_and_input() {
    let child = || EventKind::SubOrchestrationScheduled {
        name: "C".into(),
        instance: "recorded".into(),
        input: "x".into(),
    };
    assert!(replay([(None, child())], |ctx| keep(ctx.schedule_sub_orchestration("C", "x"))).is_ok());
    assert!(
        replay([(None, child())], |ctx| keep(ctx.schedule_sub_orchestration_with_id("C", "other", "x")))
            .is_ok()
    );
    says(replay([(None, child())], |ctx| keep(ctx.schedule_sub_orchestration("D", "x"))), MISMATCH);
    says(replay([(None, child())], |ctx| keep(ctx.schedule_sub_orchestration("C", "y"))), MISMATCH);
}

#[test]
fn detached_start_is_compared_by_name_instance_and_input() {
    let detached =
        || EventKind::OrchestrationChained { name: "D".into(), instance: "d".into(), input: "x".into() };
    assert!(replay([(None, detached())], |ctx| ctx.schedule_orchestration("D", "d", "x")).is_ok());
    assert!(
        replay([(None, detached())], |ctx| {
            ctx.schedule_orchestration_versioned("D", Some("9.0.0".into()), "d", "x");
        })
        .is_ok()
    );
    says(replay([(None, detached())], |ctx| ctx.schedule_orchestration("E", "d", "x")), MISMATCH);
    says(replay([(None, detached())], |ctx| ctx.schedule_orchestration("D", "e", "x")), MISMATCH);
    says(replay([(None, detached())], |ctx| ctx.schedule_orchestration("D", "d", "y")), MISMATCH);
}

#[test]
fn custom_status_is_compared_by_kind_only() {
    let status = || EventKind::CustomStatusUpdated { status: Some("s".into()) };
    assert!(replay([(None, status())], |ctx| ctx.set_custom_status("other")).is_ok());
    assert!(replay([(None, status())], |ctx| ctx.reset_custom_status()).is_ok());
    says(replay([(None, status())], |ctx| ctx.set_kv_value("k", "v")), "custom status mismatch: action=");
}

#[test]
fn key_value_events_are_compared_by_key_and_value() {
    let set = || EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 12345 };
    assert!(replay([(None, set())], |ctx| ctx.set_kv_value("k", "v")).is_ok());
    says(replay([(None, set())], |ctx| ctx.set_kv_value("k", "w")), "kv set mismatch: action=");
    says(replay([(None, set())], |ctx| ctx.set_kv_value("l", "v")), "kv set mismatch: action=");
    says(replay([(None, set())], |ctx| ctx.clear_kv_value("k")), "kv set mismatch: action=");
    let clear = || EventKind::KeyValueCleared { key: "k".into() };
    assert!(replay([(None, clear())], |ctx| ctx.clear_kv_value("k")).is_ok());
    says(replay([(None, clear())], |ctx| ctx.clear_kv_value("l")), "kv clear mismatch: action=");
    says(replay([(None, clear())], |ctx| ctx.clear_all_kv_values()), "kv clear mismatch: action=");
    let clear_all = || EventKind::KeyValuesCleared;
    assert!(replay([(None, clear_all())], |ctx| ctx.clear_all_kv_values()).is_ok());
    says(replay([(None, clear_all())], |ctx| ctx.clear_kv_value("k")), "kv clear_all mismatch: action=");
}

#[test]
fn completion_event_without_an_open_schedule_is_noticed() {
    let wait = || (None, EventKind::ExternalSubscribed { name: "end".into() });
    let completions = [
        EventKind::ActivityCompleted { result: String::new() },
        EventKind::ActivityFailed { details: ErrorDetails::activity_failed("") },
        EventKind::TimerFired { fire_at_ms: 0 },
        EventKind::SubOrchestrationCompleted { result: String::new() },
        EventKind::SubOrchestrationFailed { details: ErrorDetails::orchestration_failed("") },
    ];
    for completion in completions {
        says(replay([wait(), (Some(77), completion)], |_| {}), "completion without open schedule");
    }
    let completion = || (Some(2), EventKind::ActivityCompleted { result: String::new() });
    let twice = replay([(None, activity("A", "", None, None)), wait(), completion(), completion()], |ctx| {
        keep(ctx.schedule_activity("A", ""));
    });
    says(twice, "completion without open schedule");
}

#[test]
fn activity_completion_event_of_another_kind_of_schedule_is_noticed() {
    let mismatched = replay(
        [
            (None, EventKind::TimerCreated { fire_at_ms: 1 }),
            (None, EventKind::ExternalSubscribed { name: "end".into() }),
            (Some(2), EventKind::ActivityCompleted { result: String::new() }),
        ],
        |ctx| keep(ctx.schedule_timer(Duration::ZERO)),
    );
    says(mismatched, "completion kind mismatch: expected activity");
}

#[test]
fn swapped_order_is_noticed() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        ctx.schedule_activity("B", "").await
    });
    harness.turn([]);
    harness.turn([activity_completed(2, "")]);
    harness.deploy(|ctx, _| async move {
        ctx.schedule_activity("B", "").await?;
        ctx.schedule_activity("A", "").await
    });
    let TurnOutcome::Failed { details } = harness.turn([activity_completed(4, "")]).outcome else { panic!() };
    assert!(details.display_message().contains(MISMATCH));
}

/// Drops one thing of each kind in the second turn; the new code keeps the one that is named.
fn drops(kept: &'static str) -> impl Fn(OrchestrationContext, String) -> KeepFuture + Send + Sync + 'static {
    move |ctx, _| {
        Box::pin(async move {
            let activity = ctx.schedule_activity("A", "");
            let child = ctx.schedule_sub_orchestration("C", "");
            let wait = ctx.schedule_wait("s");
            let read = ctx.dequeue_event("q");
            ctx.schedule_timer(Duration::ZERO).await;
            let mut all: [Option<Box<dyn std::any::Any + Send>>; 4] =
                [Some(Box::new(activity)), Some(Box::new(child)), Some(Box::new(wait)), Some(Box::new(read))];
            let index = ["activity", "child", "wait", "read"].iter().position(|kind| *kind == kept);
            let _held = index.and_then(|index| all[index].take());
            drop(all);
            Ok(ctx.schedule_wait("end").await)
        })
    }
}

type KeepFuture = std::pin::Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

#[test]
fn drop_that_is_no_longer_reproduced_is_noticed() {
    let kinds = [
        (
            "activity",
            "cancellation mismatch (activities): baseline_dropped_future_cancel_requests={2} ctx_cancelled_in_replayed_segment={",
        ),
        (
            "child",
            "cancellation mismatch (sub-orchestrations): baseline_dropped_future_cancel_requests={3} ctx_cancelled_in_replayed_segment={",
        ),
        (
            "wait",
            "cancellation mismatch (external waits): baseline_dropped_future_cancel_requests={4} ctx_cancelled_in_replayed_segment={",
        ),
        (
            "read",
            "cancellation mismatch (persistent waits): baseline_dropped_future_cancel_requests={5} ctx_cancelled_in_replayed_segment={",
        ),
    ];
    for (kept, text) in kinds {
        let mut harness = Harness::new(drops("nothing"));
        harness.turn([]);
        harness.turn([timer_fired(6)]);
        harness.deploy(drops(kept));
        let TurnOutcome::Failed { details } = harness.turn([]).outcome else {
            panic!("{kept} was not noticed")
        };
        let said = details.display_message();
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn further_drops_are_fine() {
    let mut harness = Harness::new(drops("activity"));
    harness.turn([]);
    harness.turn([timer_fired(6)]);
    harness.deploy(drops("nothing"));
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert_eq!(turn.cancelled_activities, [2]);
}
