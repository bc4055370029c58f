//! Applying one event, and whether the code is polled after it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{ErrorDetails, EventKind};

use crate::harness::{
    Harness, activity_completed, activity_failed, child_completed, child_failed, history, queue_message,
    signal, summarize, timer_fired,
};

/// Code that asks for one of each kind and then only counts its polls. The ids are those of [`SCHEDULED`].
fn counting() -> (Harness, Arc<AtomicUsize>) {
    let polls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&polls);
    let harness = Harness::new(move |ctx, _| {
        let polls = Arc::clone(&shared);
        async move {
            let _held = (
                ctx.schedule_activity("A", ""),
                ctx.schedule_timer(Duration::ZERO),
                ctx.schedule_wait("s"),
                ctx.schedule_sub_orchestration("C", ""),
                ctx.schedule_activity("B", ""),
                ctx.schedule_sub_orchestration("D", ""),
            );
            ctx.schedule_orchestration("E", "e", "");
            ctx.set_custom_status("x");
            ctx.set_kv_value("k", "v");
            ctx.clear_kv_value("k");
            ctx.clear_all_kv_values();
            let _never = ctx.schedule_wait("never");
            poll_fn(|_| {
                polls.fetch_add(1, Ordering::SeqCst);
                Poll::<()>::Pending
            })
            .await;
            Ok(String::new())
        }
    });
    (harness.warm_only(), polls)
}

const SCHEDULED: [&str; 13] = [
    "1 started",
    "2 activity A ",
    "3 timer 1000000",
    "4 wait s",
    "5 child C sub::5 ",
    "6 activity B ",
    "7 child D sub::7 ",
    "8 detached E e ",
    "9 status Some(\"x\")",
    "10 set k=v",
    "11 clear k",
    "12 clear-all",
    "13 wait never",
];

#[test]
fn schedules_owe_no_poll_and_completions_owe_one_each() {
    let (mut harness, polls) = counting();
    assert_eq!(summarize(&harness.turn([]).history_delta), SCHEDULED);
    assert_eq!(polls.swap(0, Ordering::SeqCst), 1);
    let owed = [
        activity_completed(2, ""),
        activity_failed(6, ""),
        timer_fired(3),
        child_completed(5, ""),
        child_failed(7, ErrorDetails::orchestration_failed("")),
        signal("s", ""),
        queue_message("q", ""),
    ];
    for message in owed {
        harness.turn([message.clone()]);
        assert_eq!(polls.swap(0, Ordering::SeqCst), 1, "{message:?}");
    }
    harness.turn([signal("s", "not accepted")]);
    assert_eq!(polls.load(Ordering::SeqCst), 0);
}

#[test]
fn queue_subscription_owes_a_poll() {
    let polls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&polls);
    let mut harness = Harness::new(move |ctx, _| {
        let polls = Arc::clone(&shared);
        async move {
            let _reads = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
            poll_fn(|_| {
                polls.fetch_add(1, Ordering::SeqCst);
                Poll::<()>::Pending
            })
            .await;
            Ok(String::new())
        }
    })
    .warm_only();
    harness.turn([]);
    assert_eq!(polls.load(Ordering::SeqCst), 3);
}

#[test]
fn cancellation_events_owe_no_poll() {
    let polls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&polls);
    let mut harness = Harness::new(move |ctx, _| {
        let polls = Arc::clone(&shared);
        async move {
            drop((
                ctx.schedule_activity("A", ""),
                ctx.schedule_sub_orchestration("C", ""),
                ctx.schedule_wait("s"),
            ));
            let _never = ctx.schedule_wait("never");
            poll_fn(|_| {
                polls.fetch_add(1, Ordering::SeqCst);
                Poll::<()>::Pending
            })
            .await;
            Ok(String::new())
        }
    })
    .cold_only();
    assert_eq!(harness.turn([]).history_delta.len(), 8);
    polls.store(0, Ordering::SeqCst);
    harness.turn([]);
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

#[test]
fn batch_is_processed_as_if_its_completions_came_one_by_one() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (a, b) = (ctx.schedule_activity("A", ""), ctx.schedule_activity("B", ""));
        let first = ctx.select2(a, b).await.into_tuple();
        ctx.schedule_activity("Next", format!("{} {}", first.0, first.1?)).await
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(3, "b"), activity_completed(2, "a")]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "4<3 activity-completed b",
            "5<2 activity-completed a",
            "6 activity Next 1 b",
            "7<2 activity-cancelled dropped_future"
        ]
    );
}

#[test]
fn failures_deliver_their_display_message() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (a, c) = ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_sub_orchestration("C", "")).await;
        Ok(format!("{} | {}", a.unwrap_err(), c.unwrap_err()))
    });
    harness.turn([]);
    let turn = harness.turn([activity_failed(2, "raw"), child_failed(3, ErrorDetails::cancelled("why"))]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "raw | canceled: why".into() });
}

#[test]
fn status_and_key_value_events_are_tolerated_where_the_code_asks_for_nothing() {
    let recorded = history([
        (None, EventKind::CustomStatusUpdated { status: Some("s".into()) }),
        (None, EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 1 }),
        (None, EventKind::KeyValueCleared { key: "k".into() }),
        (None, EventKind::KeyValuesCleared),
    ]);
    let mut harness =
        Harness::resumed(recorded, |ctx, _| async move { ctx.schedule_activity("A", "").await });
    // The first poll emits the schedule, so the events above would be compared with it; here no action is left.
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    assert!(details.display_message().contains("custom status mismatch"));

    let recorded = history([
        (None, EventKind::ExternalSubscribed { name: "w".into() }),
        (None, EventKind::CustomStatusUpdated { status: Some("s".into()) }),
        (None, EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 1 }),
        (None, EventKind::KeyValueCleared { key: "k".into() }),
        (None, EventKind::KeyValuesCleared),
    ]);
    let mut harness = Harness::resumed(recorded, |ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    assert_eq!(harness.turn([signal("w", "ok")]).outcome, TurnOutcome::Completed { output: "ok".into() });
}

#[test]
fn adjacent_clears_may_be_recorded_in_another_order() {
    let clear = |key: &str| (None, EventKind::KeyValueCleared { key: key.into() });
    let wait = (None, EventKind::ExternalSubscribed { name: "w".into() });
    let code = |ctx: everturn_core::OrchestrationContext, _: String| async move {
        for key in ["a", "b", "c"] {
            ctx.clear_kv_value(key);
        }
        Ok(ctx.schedule_wait("w").await)
    };
    let mut harness = Harness::resumed(history([clear("c"), clear("a"), clear("b"), wait.clone()]), code);
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    let mut harness = Harness::resumed(history([clear("c"), clear("x"), clear("b"), wait]), code);
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    assert!(details.display_message().contains("kv clear mismatch"));
}

#[test]
fn recorded_cancellation_of_a_subscription_holds_whatever_its_reason() {
    let recorded = history([
        (None, EventKind::ExternalSubscribed { name: "s".into() }),
        (None, EventKind::ExternalSubscribed { name: "s".into() }),
        (None, EventKind::QueueSubscribed { name: "q".into() }),
        (None, EventKind::QueueSubscribed { name: "q".into() }),
        (Some(2), EventKind::ExternalSubscribedCancelled { reason: "operator".into() }),
        (Some(4), EventKind::QueueSubscriptionCancelled { reason: "operator".into() }),
    ]);
    let mut harness = Harness::resumed(recorded, |ctx, _| async move {
        let (_cancelled, wait) = (ctx.schedule_wait("s"), ctx.schedule_wait("s"));
        let (_gone, read) = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
        let (wait, read) = ctx.join2(wait, read).await;
        Ok(format!("{wait} {read}"))
    });
    let turn = harness.turn([signal("s", "one"), queue_message("q", "two")]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "one two".into() });
}

#[test]
fn cancel_requests_and_breadcrumbs_of_activities_change_nothing_for_the_code() {
    let activity =
        EventKind::ActivityScheduled { name: "A".into(), input: String::new(), session_id: None, tag: None };
    let recorded = history([
        (None, activity),
        (Some(2), EventKind::ActivityCancelRequested { reason: "operator".into() }),
    ]);
    let mut harness =
        Harness::resumed(recorded, |ctx, _| async move { ctx.schedule_activity("A", "").await });
    assert_eq!(
        harness.turn([activity_completed(2, "still")]).outcome,
        TurnOutcome::Completed { output: "still".into() }
    );
}

#[test]
fn late_completion_of_a_dropped_future_is_recorded_and_harmless() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_activity("A", ""));
        drop(ctx.schedule_sub_orchestration("C", ""));
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(2, "late"), child_completed(3, "late")]);
    assert_eq!(summarize(&turn.history_delta), ["7<2 activity-completed late", "8<3 child-completed late"]);
    assert_eq!(harness.turn([signal("end", "x")]).outcome, TurnOutcome::Completed { output: "x".into() });
}
