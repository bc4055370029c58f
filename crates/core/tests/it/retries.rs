//! Retries of activities.

use std::panic::catch_unwind;
use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{BackoffStrategy, RetryPolicy};

use crate::harness::{
    Harness, activity_completed, activity_failed, activity_failed_with, infrastructure, summarize,
    timer_fired,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn failed(text: &str) -> TurnOutcome {
    TurnOutcome::Failed { details: everturn_core::ErrorDetails::orchestration_failed(text) }
}

#[test]
fn default_policy_is_three_attempts_without_timeout() {
    let policy = RetryPolicy::default();
    assert_eq!((policy.max_attempts, policy.timeout), (3, None));
    assert_eq!(policy.delay_for_attempt(1), ms(100));
}

#[test]
fn default_backoff_doubles_from_100_ms_up_to_30_s() {
    let BackoffStrategy::Exponential { base, multiplier, max } = BackoffStrategy::default() else {
        panic!("not exponential")
    };
    assert_eq!((base, multiplier, max), (ms(100), 2.0, ms(30_000)));
    let delays: Vec<_> = (1..=4).map(|n| BackoffStrategy::default().delay_for_attempt(n)).collect();
    assert_eq!(delays, [ms(100), ms(200), ms(400), ms(800)]);
}

#[test]
fn zero_attempts_are_refused() {
    let panic = catch_unwind(|| RetryPolicy::new(0)).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("max_attempts must be at least 1"));
}

#[test]
fn both_names_of_the_timeout_set_the_same_field() {
    assert_eq!(RetryPolicy::new(1).with_timeout(ms(5)).timeout, Some(ms(5)));
    assert_eq!(RetryPolicy::new(1).with_total_timeout(ms(6)).timeout, Some(ms(6)));
}

#[test]
fn no_backoff_is_no_delay_and_fixed_is_always_the_same() {
    assert_eq!(BackoffStrategy::None.delay_for_attempt(9), Duration::ZERO);
    assert_eq!(BackoffStrategy::Fixed { delay: ms(7) }.delay_for_attempt(1), ms(7));
    assert_eq!(BackoffStrategy::Fixed { delay: ms(7) }.delay_for_attempt(99), ms(7));
}

#[test]
fn linear_is_base_times_attempt_up_to_max_and_never_overflows() {
    let linear = BackoffStrategy::Linear { base: ms(10), max: ms(25) };
    assert_eq!([1, 2, 3, u32::MAX].map(|n| linear.delay_for_attempt(n)), [ms(10), ms(20), ms(25), ms(25)]);
    let huge = BackoffStrategy::Linear { base: Duration::MAX, max: Duration::MAX };
    assert_eq!(huge.delay_for_attempt(u32::MAX), Duration::MAX);
}

#[test]
fn exponential_is_capped_and_never_overflows() {
    let grows = BackoffStrategy::Exponential { base: ms(10), multiplier: 3.0, max: ms(80) };
    assert_eq!([1, 2, 3, u32::MAX].map(|n| grows.delay_for_attempt(n)), [ms(10), ms(30), ms(80), ms(80)]);
    let unbounded = BackoffStrategy::Exponential { base: ms(10), multiplier: 3.0, max: Duration::MAX };
    assert_eq!(unbounded.delay_for_attempt(u32::MAX), Duration::from_nanos(u64::MAX));
}

fn retrying(policy: RetryPolicy) -> Harness {
    Harness::new(move |ctx, _| {
        let policy = policy.clone();
        async move { ctx.schedule_activity_with_retry("A", "x", policy).await }
    })
}

#[test]
fn success_at_once_needs_no_timer() {
    let mut harness = retrying(RetryPolicy::default());
    assert_eq!(summarize(&harness.turn([]).history_delta), ["1 started", "2 activity A x"]);
    assert_eq!(
        harness.turn([activity_completed(2, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn failure_is_followed_by_a_durable_wait_and_the_next_attempt() {
    let mut harness = retrying(RetryPolicy::new(2).with_backoff(BackoffStrategy::Fixed { delay: ms(50) }));
    harness.turn([]);
    assert_eq!(
        summarize(&harness.turn([activity_failed(2, "one")]).history_delta),
        ["3<2 activity-failed one", "4 timer 2000050"]
    );
    assert_eq!(summarize(&harness.turn([timer_fired(4)]).history_delta), ["5<4 fired", "6 activity A x"]);
    assert_eq!(harness.turn([activity_failed(6, "two")]).outcome, failed("two"));
}

#[test]
fn zero_delay_goes_straight_to_the_next_attempt() {
    let mut harness = retrying(RetryPolicy::new(3).with_backoff(BackoffStrategy::None));
    harness.turn([]);
    assert_eq!(
        summarize(&harness.turn([activity_failed(2, "one")]).history_delta),
        ["3<2 activity-failed one", "4 activity A x"]
    );
    assert_eq!(
        summarize(&harness.turn([activity_failed(4, "two")]).history_delta),
        ["5<4 activity-failed two", "6 activity A x"]
    );
    assert_eq!(harness.turn([activity_failed(6, "three")]).outcome, failed("three"));
}

#[test]
fn with_a_timeout_the_activity_is_recorded_before_its_timer() {
    let mut harness = retrying(RetryPolicy::new(3).with_timeout(ms(5)));
    assert_eq!(
        summarize(&harness.turn([]).history_delta),
        ["1 started", "2 activity A x", "3 timer 1000005"]
    );
    assert_eq!(
        harness.turn([activity_completed(2, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn the_deadline_of_the_first_attempt_begins_with_the_call() {
    let mut harness = Harness::new(|ctx, _| async move {
        let policy = RetryPolicy::new(3).with_timeout(ms(5));
        let retried = ctx.schedule_activity_with_retry("A", "x", policy);
        ctx.schedule_timer(ms(9)).await;
        retried.await
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta),
        ["1 started", "2 activity A x", "3 timer 1000005", "4 timer 1000009"]
    );
    harness.turn([timer_fired(3)]);
    assert_eq!(harness.turn([timer_fired(4)]).outcome, failed("timeout: activity timed out"));
}

#[test]
fn timeout_ends_the_retries_at_once() {
    let mut harness = retrying(RetryPolicy::new(3).with_timeout(ms(5)));
    harness.turn([]);
    let turn = harness.turn([timer_fired(3)]);
    assert_eq!(turn.outcome, failed("timeout: activity timed out"));
    assert_eq!(turn.cancelled_activities, [2]);
}

#[test]
fn error_within_the_timeout_is_retried() {
    let policy = RetryPolicy::new(2).with_timeout(ms(5)).with_backoff(BackoffStrategy::None);
    let mut harness = retrying(policy);
    harness.turn([]);
    assert_eq!(
        summarize(&harness.turn([activity_failed(2, "one")]).history_delta),
        ["4<2 activity-failed one", "5 activity A x", "6 timer 2000005"]
    );
}

#[test]
fn other_failures_never_reach_the_loop() {
    let mut harness = retrying(RetryPolicy::new(3));
    harness.turn([]);
    let turn = harness.turn([activity_failed_with(2, infrastructure("gone"))]);
    assert_eq!(turn.outcome, TurnOutcome::Failed { details: infrastructure("gone") });
}

#[test]
fn first_attempt_is_asked_for_when_the_retry_is_made() {
    let mut harness = Harness::new(|ctx, _| async move {
        let retry = ctx.schedule_activity_with_retry("A", "x", RetryPolicy::new(1));
        ctx.schedule_wait("go").await;
        retry.await
    });
    assert_eq!(summarize(&harness.turn([]).history_delta), ["1 started", "2 activity A x", "3 wait go"]);
}

#[test]
fn retries_made_before_the_first_await_run_at_the_same_time() {
    let mut harness = Harness::new(|ctx, _| async move {
        let policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
        let first = ctx.schedule_activity_with_retry("A", "x", policy.clone());
        let second = ctx.schedule_activity_with_retry_typed::<_, u8>("B", &7, policy.clone());
        let third = ctx.schedule_activity_with_retry_on_session("C", "y", policy.clone(), "s");
        let fourth = ctx.schedule_activity_with_retry_on_session_typed::<_, u8>("D", &8, policy, "s");
        Ok(format!("{} {} {} {}", first.await?, second.await?, third.await?, fourth.await?))
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta)[1..],
        ["2 activity A x", "3 activity B 7", "4 activity C y @s", "5 activity D 8 @s"]
    );
    let answers = [(5, "4"), (4, "3"), (3, "2"), (2, "1")].map(|(id, text)| activity_completed(id, text));
    assert_eq!(harness.turn(answers).outcome, TurnOutcome::Completed { output: "1 2 3 4".into() });
}

#[test]
fn timer_of_a_retry_follows_its_activity() {
    let mut harness = Harness::new(|ctx, _| async move {
        let policy = RetryPolicy::new(2).with_timeout(ms(5));
        let first = ctx.schedule_activity_with_retry("A", "x", policy.clone());
        let second = ctx.schedule_activity_with_retry("B", "y", policy);
        let (first, second) = ctx.join2(first, second).await;
        Ok(format!("{} {}", first?, second?))
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta)[1..],
        ["2 activity A x", "3 timer 1000005", "4 activity B y", "5 timer 1000005"]
    );
}

#[test]
fn dropping_a_retry_that_was_never_polled_cancels_its_activity() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_activity_with_retry("A", "x", RetryPolicy::new(3)));
        Ok(ctx.schedule_wait("w").await)
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta)[1..],
        ["2 activity A x", "3 wait w", "4<2 activity-cancelled dropped_future"]
    );
}

#[test]
fn retries_stay_on_their_session() {
    let mut harness = Harness::new(|ctx, _| async move {
        let policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
        let n: u8 = ctx.schedule_activity_with_retry_on_session_typed("A", &1, policy.clone(), "s").await?;
        ctx.schedule_activity_with_retry_on_session("B", n.to_string(), policy, "s").await
    });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1], "2 activity A 1 @s");
    assert_eq!(summarize(&harness.turn([activity_failed(2, "no")]).history_delta)[1], "4 activity A 1 @s");
    assert_eq!(summarize(&harness.turn([activity_completed(4, "5")]).history_delta)[1], "6 activity B 5 @s");
    assert_eq!(
        harness.turn([activity_completed(6, "end")]).outcome,
        TurnOutcome::Completed { output: "end".into() }
    );
}
