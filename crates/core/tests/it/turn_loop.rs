//! The loop that live turns and replay share: polls, aborted turns, corrupted histories.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use everturn_core::turn::TurnOutcome;
use everturn_core::{Event, EventKind};

use crate::harness::{
    Harness, activity_completed, activity_failed_with, cancel, event, history, infrastructure, queue_message,
    signal, started, summarize,
};

/// Code that counts how often it is polled while it waits for a signal `end`.
fn counted() -> (Harness, Arc<AtomicUsize>) {
    let polls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&polls);
    let harness = Harness::new(move |ctx, _| {
        let polls = Arc::clone(&shared);
        async move {
            let _activity = ctx.schedule_activity("A", "");
            let mut end = ctx.schedule_wait("end");
            poll_fn(|cx| {
                polls.fetch_add(1, Ordering::SeqCst);
                std::pin::Pin::new(&mut end).poll(cx).map(|_| ())
            })
            .await;
            Ok(String::new())
        }
    });
    (harness, polls)
}

#[test]
fn aborted_turn_does_not_poll_the_code() {
    let (harness, polls) = counted();
    let mut harness = harness.warm_only();
    harness.turn([]);
    let before = polls.load(Ordering::SeqCst);
    let turn = harness.turn([activity_failed_with(2, infrastructure("x"))]);
    assert_eq!(turn.outcome, TurnOutcome::Failed { details: infrastructure("x") });
    assert_eq!(polls.load(Ordering::SeqCst), before);
}

#[test]
fn aborted_replay_does_not_even_begin_the_code() {
    let (harness, polls) = counted();
    let mut harness = harness.cold_only();
    harness.turn([]);
    polls.store(0, Ordering::SeqCst);
    harness.turn([activity_failed_with(2, infrastructure("x"))]);
    assert_eq!(polls.load(Ordering::SeqCst), 0);
}

#[test]
fn terminal_history_takes_no_more_turns() {
    let ends = [
        EventKind::OrchestrationCompleted { output: "o".into() },
        EventKind::OrchestrationFailed { details: infrastructure("x") },
        EventKind::OrchestrationContinuedAsNew { input: "i".into() },
    ];
    for end in ends {
        let mut harness =
            Harness::resumed(
                history([(None, end)]),
                |ctx, _| async move { ctx.schedule_activity("A", "").await },
            );
        let turn = harness.turn([signal("s", ""), queue_message("q", ""), cancel("late")]);
        assert_eq!(turn.outcome, TurnOutcome::Continue);
        assert!(turn.history_delta.is_empty());
        assert!(turn.worker_items.is_empty() && turn.orchestrator_items.is_empty());
    }
}

fn failure(harness: &mut Harness) -> String {
    match harness.turn([]).outcome {
        TurnOutcome::Failed { details } => details.display_message(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn empty_history_is_corrupted() {
    let mut harness = Harness::resumed(vec![], |_, _| async move { Ok(String::new()) });
    assert_eq!(failure(&mut harness), "nondeterministic: corrupted history: empty");
}

#[test]
fn history_must_begin_with_its_start() {
    let history = vec![event(1, None, EventKind::KeyValuesCleared), started(1, "in")];
    let mut harness = Harness::resumed(history, |_, _| async move { Ok(String::new()) });
    assert_eq!(
        failure(&mut harness),
        "nondeterministic: corrupted history: first event must be OrchestrationStarted"
    );
}

#[test]
fn gaps_disorder_and_zero_in_the_ids_are_tolerated() {
    let schedule = |id: u64, name: &str| {
        event(
            id,
            None,
            EventKind::ActivityScheduled {
                name: name.into(),
                input: String::new(),
                session_id: None,
                tag: None,
            },
        )
    };
    let mut zero = started(1, "in");
    zero.event_id = 0;
    let history: Vec<Event> = vec![zero, schedule(50, "A"), schedule(7, "B")];
    let mut harness = Harness::resumed(history, |ctx, _| async move {
        let (a, b) = ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")).await;
        Ok(format!("{}{}", a?, b?))
    });
    let turn = harness.turn([activity_completed(7, "b"), activity_completed(50, "a")]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["8<7 activity-completed b", "9<50 activity-completed a", "10 completed ab"]
    );
}

#[test]
fn first_poll_comes_before_the_first_message_is_applied() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_custom_status("begun");
        Ok(ctx.dequeue_event("q").await)
    });
    let turn = harness.turn([queue_message("q", "m")]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "m".into() });
}

#[test]
fn each_delivery_is_polled_once_and_an_owed_poll_is_made_before_the_next_event() {
    let (harness, polls) = counted();
    let mut harness = harness.warm_only();
    harness.turn([]);
    assert_eq!(polls.swap(0, Ordering::SeqCst), 1);
    harness.turn([
        activity_completed(2, ""),
        queue_message("q", ""),
        queue_message("q", ""),
        signal("other", ""),
    ]);
    assert_eq!(polls.swap(0, Ordering::SeqCst), 3);
    harness.turn([signal("other", "")]);
    assert_eq!(polls.swap(0, Ordering::SeqCst), 0);
    harness.turn([]);
    assert_eq!(polls.swap(0, Ordering::SeqCst), 0);
}

#[test]
fn replay_polls_as_often_as_the_turns_it_repeats() {
    let (harness, polls) = counted();
    let mut harness = harness.cold_only();
    harness.turn([]);
    harness.turn([activity_completed(2, ""), queue_message("q", "")]);
    polls.store(0, Ordering::SeqCst);
    harness.turn([]);
    assert_eq!(polls.load(Ordering::SeqCst), 3);
}

#[test]
fn code_that_returned_consumes_no_further_events() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("end").await) });
    harness.turn([]);
    let turn = harness.turn([signal("end", "x"), queue_message("q", "unread"), signal("end", "y")]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["3 signal end x", "4 queued q unread", "5 signal end y", "6 completed x"]
    );
}

#[test]
fn code_that_returned_is_not_polled_again_but_its_actions_are_recorded() {
    let polls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&polls);
    let mut harness = Harness::new(move |ctx, _| {
        let polls = Arc::clone(&shared);
        async move {
            poll_fn(|_| {
                polls.fetch_add(1, Ordering::SeqCst);
                Poll::Ready(())
            })
            .await;
            let _read = ctx.dequeue_event("q");
            ctx.set_kv_value("k", "v");
            Ok("end".to_owned())
        }
    })
    .warm_only();
    let turn = harness.turn([queue_message("q", "m")]);
    assert_eq!(polls.load(Ordering::SeqCst), 1);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "1 started",
            "2 queued q m",
            "3 dequeue q",
            "4 set k=v",
            "5<3 dequeue-cancelled dropped_future",
            "6 completed end"
        ]
    );
}

#[test]
fn input_and_parent_come_from_the_start_event() {
    let mut harness = Harness::new(|_, input| async move { Ok(input) }).start_event(|kind| {
        if let EventKind::OrchestrationStarted { input, parent_instance, parent_id, .. } = kind {
            *input = "recorded".into();
            *parent_instance = Some("p".into());
            *parent_id = Some(4);
        }
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "recorded".into() });
    assert_eq!(crate::harness::sent(&turn), ["notify p 4 ok recorded"]);
}

#[test]
fn counters_of_an_execution_follow_its_history() {
    let (mut harness, _) = counted();
    harness.turn([]);
    let mut execution = harness.replayed();
    assert_eq!((execution.last_event_id(), execution.event_count()), (3, 3));
    let light = execution.weight_bytes();
    execution
        .take_turn(vec![queue_message("q", &"x".repeat(5000))], &crate::harness::HarnessClock::of_turn(9));
    assert_eq!((execution.last_event_id(), execution.event_count()), (4, 4));
    assert!(execution.weight_bytes() >= light + 5000);
}
