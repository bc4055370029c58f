//! Activity calls.

use everturn_core::turn::TurnOutcome;
use everturn_core::{AppErrorKind, ErrorDetails, WorkItem};

use crate::harness::{Harness, activity_completed, activity_failed, activity_failed_with, summarize};

#[test]
fn activity_is_recorded_and_handed_to_a_worker() {
    let mut harness = Harness::new(|ctx, input| async move { ctx.schedule_activity("A", input).await });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 activity A in"]);
    assert_eq!(
        turn.worker_items,
        [WorkItem::ActivityExecute {
            instance: "order".into(),
            execution_id: 1,
            id: 2,
            name: "A".into(),
            input: "in".into(),
            session_id: None,
            tag: None,
        }]
    );
    assert_eq!(
        harness.turn([activity_completed(2, "out")]).outcome,
        TurnOutcome::Completed { output: "out".into() }
    );
}

#[test]
fn activity_error_arrives_as_its_raw_text() {
    let mut harness =
        Harness::new(|ctx, _| async move { Ok(ctx.schedule_activity("A", "").await.unwrap_err()) });
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_failed(2, "boom")]).outcome,
        TurnOutcome::Completed { output: "boom".into() }
    );
}

#[test]
fn other_application_errors_arrive_as_their_display_message() {
    let mut harness =
        Harness::new(|ctx, _| async move { Ok(ctx.schedule_activity("A", "").await.unwrap_err()) });
    harness.turn([]);
    let details =
        ErrorDetails::Application { kind: AppErrorKind::Panicked, message: "oh".into(), retryable: false };
    let outcome = harness.turn([activity_failed_with(2, details)]).outcome;
    assert_eq!(outcome, TurnOutcome::Completed { output: "orchestration panicked: oh".into() });
}

#[test]
fn equal_calls_are_distinct_and_matched_by_position() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (first, second) = (ctx.schedule_activity("A", "x"), ctx.schedule_activity("A", "x"));
        let (first, second) = ctx.join2(first, second).await;
        Ok(format!("{} {}", first?, second?))
    });
    harness.turn([]);
    harness.turn([activity_completed(3, "second")]);
    let outcome = harness.turn([activity_completed(2, "first")]).outcome;
    assert_eq!(outcome, TurnOutcome::Completed { output: "first second".into() });
}

#[test]
fn session_is_in_the_event_and_in_the_work_item() {
    let mut harness = Harness::new(|ctx, _| async move {
        let typed = ctx.schedule_activity_on_session_typed::<_, u8>("B", &1, "s2").with_tag("t");
        ctx.schedule_activity_on_session("A", "x", "s1").await?;
        typed.await.map(|n| n.to_string())
    });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 activity B 1 @s2 #t", "3 activity A x @s1"]);
    let sessions: Vec<_> = turn
        .worker_items
        .iter()
        .map(|item| match item {
            WorkItem::ActivityExecute { session_id, tag, .. } => (session_id.as_deref(), tag.as_deref()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sessions, [(Some("s2"), Some("t")), (Some("s1"), None)]);
}

#[test]
fn activity_dropped_in_the_turn_that_completes_never_runs() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _unawaited = ctx.schedule_activity("A", "");
        Ok("done".to_owned())
    });
    let turn = harness.turn([]);
    assert!(turn.worker_items.is_empty());
    assert_eq!(
        summarize(&turn.history_delta),
        ["1 started", "2 activity A ", "3<2 activity-cancelled dropped_future", "4 completed done"]
    );
}
