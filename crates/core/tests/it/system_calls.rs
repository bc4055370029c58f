//! System calls: random ids and the current time.

use std::time::{Duration, UNIX_EPOCH};

use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, activity_completed, summarize, timer_fired};

#[test]
fn guid_is_an_activity_with_empty_input() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.new_guid().await });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1], "2 activity __everturn_syscall:new_guid ");
    let guid = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    assert_eq!(
        harness.turn([activity_completed(2, guid)]).outcome,
        TurnOutcome::Completed { output: guid.into() }
    );
}

#[test]
fn time_is_an_activity_with_empty_input_and_millisecond_precision() {
    let mut harness = Harness::new(|ctx, _| async move {
        let now = ctx.utc_now().await?;
        Ok((now == UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)).to_string())
    });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1], "2 activity __everturn_syscall:utc_now_ms ");
    let outcome = harness.turn([activity_completed(2, "1700000000123")]).outcome;
    assert_eq!(outcome, TurnOutcome::Completed { output: "true".into() });
}

#[test]
fn unreadable_time_is_an_error() {
    for text in ["soon", "18446744073709551615"] {
        let mut harness = Harness::new(|ctx, _| async move {
            let read = ctx.utc_now().await;
            Ok(read.map_or("error".to_owned(), |time| {
                format!("{:?}", time.duration_since(UNIX_EPOCH).unwrap().as_millis())
            }))
        });
        harness.turn([]);
        let TurnOutcome::Completed { output } = harness.turn([activity_completed(2, text)]).outcome else {
            panic!()
        };
        assert!(output == "error" || output == text, "{output}");
    }
}

#[test]
fn system_calls_can_be_raced_and_dropping_them_cancels() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.select2(ctx.new_guid(), ctx.schedule_timer(Duration::ZERO)).await;
        drop(ctx.utc_now());
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(3)]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "4<3 fired",
            "5 activity __everturn_syscall:utc_now_ms ",
            "6 wait w",
            "7<2 activity-cancelled dropped_future",
            "8<5 activity-cancelled dropped_future"
        ]
    );
    assert_eq!(turn.cancelled_activities, [2, 5]);
}
