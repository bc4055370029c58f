//! Queues.

use std::time::{Duration, Instant};

use everturn_core::turn::TurnOutcome;
use everturn_core::{DurableFuture, OrchestrationContext, WorkItem};

use crate::harness::{Harness, activity_completed, queue_message, signal, summarize, timer_fired};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

#[test]
fn messages_are_read_in_the_order_they_came() {
    let mut harness = Harness::new(|ctx, _| async move {
        let first = ctx.dequeue_event("q").await;
        let second = ctx.dequeue_event("q").await;
        Ok(format!("{first}{second}"))
    });
    harness.turn([]);
    assert_eq!(harness.turn([queue_message("q", "a"), queue_message("q", "b")]).outcome, completed("ab"));
}

#[test]
fn message_waits_until_it_is_read() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_timer(Duration::ZERO).await;
        Ok(ctx.dequeue_event("q").await)
    });
    assert_eq!(
        summarize(&harness.turn([queue_message("q", "early")]).history_delta),
        ["1 started", "2 queued q early", "3 timer 1000000"]
    );
    assert_eq!(harness.turn([timer_fired(3)]).outcome, completed("early"));
}

#[test]
fn read_that_is_held_unpolled_reserves_its_message() {
    let mut harness = Harness::new(|ctx, _| async move {
        let held = ctx.dequeue_event("q");
        let second = ctx.dequeue_event("q").await;
        let first = held.await;
        Ok(format!("{first} {second}"))
    });
    harness.turn([]);
    assert_eq!(harness.turn([queue_message("q", "1")]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([queue_message("q", "2")]).outcome, completed("1 2"));
}

#[test]
fn cancelled_read_consumes_nothing() {
    let mut harness = Harness::new(|ctx, _| async move {
        let race = ctx.select2(ctx.dequeue_event("q"), ctx.schedule_timer(Duration::ZERO)).await;
        let next = ctx.dequeue_event("q").await;
        Ok(format!("{} {next}", race.index()))
    });
    harness.turn([]);
    assert_eq!(harness.turn([timer_fired(3), queue_message("q", "kept")]).outcome, completed("1 kept"));
}

#[test]
fn read_dropped_with_a_message_waiting_leaves_it_to_the_next() {
    let mut harness = Harness::new(|ctx, _| async move {
        let held = ctx.dequeue_event("q");
        ctx.schedule_activity("A", "").await?;
        drop(held);
        Ok(ctx.dequeue_event("q").await)
    });
    harness.turn([]);
    assert_eq!(
        harness.turn([queue_message("q", "kept"), activity_completed(3, "")]).outcome,
        completed("kept")
    );
}

#[test]
fn reads_behind_a_cancelled_one_move_up() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = ctx.dequeue_event("q");
        let kept = ctx.dequeue_event("q");
        ctx.schedule_activity("A", "").await?;
        drop(given_up);
        Ok(kept.await)
    });
    harness.turn([]);
    harness.turn([activity_completed(4, "")]);
    assert_eq!(harness.turn([queue_message("q", "mine")]).outcome, completed("mine"));
}

#[test]
fn queues_are_separated_by_name() {
    let mut harness = Harness::new(|ctx, _| async move {
        let b = ctx.dequeue_event("b").await;
        let a = ctx.dequeue_event("a").await;
        Ok(format!("{a}{b}"))
    });
    assert_eq!(harness.turn([queue_message("a", "A"), queue_message("b", "B")]).outcome, completed("AB"));
}

#[test]
fn signals_and_queues_of_one_name_are_separate() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (wait, message) = ctx.join2(ctx.schedule_wait("n"), ctx.dequeue_event("n")).await;
        Ok(format!("{wait} {message}"))
    });
    harness.turn([]);
    assert_eq!(harness.turn([queue_message("n", "message")]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([signal("n", "signal")]).outcome, completed("signal message"));
}

#[test]
fn buffered_messages_satisfy_reads_in_the_same_turn() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut all = String::new();
        for _ in 0..3 {
            all += &ctx.dequeue_event("q").await;
        }
        Ok(all)
    });
    let turn = harness.turn([queue_message("q", "a"), queue_message("q", "b"), queue_message("q", "c")]);
    assert_eq!(turn.outcome, completed("abc"));
    assert_eq!(
        summarize(&turn.history_delta)[1..],
        [
            "2 queued q a",
            "3 queued q b",
            "4 queued q c",
            "5 dequeue q",
            "6 dequeue q",
            "7 dequeue q",
            "8 completed abc"
        ]
    );
}

#[test]
fn thousands_of_buffered_messages_can_be_read_in_one_turn() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut count = 0;
        while ctx.dequeue_event("q").await != "end" {
            count += 1;
        }
        Ok(count.to_string())
    });
    let mut messages: Vec<_> = (0..5000).map(|n| queue_message("q", &n.to_string())).collect();
    messages.push(queue_message("q", "end"));
    assert_eq!(harness.turn_with(messages).outcome, completed("5000"));
}

#[test]
#[allow(deprecated)]
fn former_names_do_the_same() {
    let mut harness = Harness::new(|ctx, _| async move {
        let text = ctx.schedule_wait_persistent("q").await;
        let number: u8 = ctx.schedule_wait_persistent_typed("q").await;
        Ok(format!("{text} {number}"))
    });
    assert_eq!(harness.turn([queue_message("q", "a"), queue_message("q", "7")]).outcome, completed("a 7"));
}

#[test]
fn dropping_a_typed_read_cancels_it() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.dequeue_event_typed::<u8>("q"));
        Ok(ctx.schedule_wait("w").await)
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta),
        ["1 started", "2 dequeue q", "3 wait w", "4<2 dequeue-cancelled dropped_future"]
    );
}

/// Two reads of a queue: a branch gives the first one up after the second was polled in the same poll.
fn gives_up_the_first_read(beside_another_wait: bool) -> Harness {
    Harness::new(move |ctx, _| async move {
        let (given_up, kept) = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
        let activity = ctx.schedule_activity("A", "");
        let _open = beside_another_wait.then(|| ctx.schedule_wait("never"));
        let gives_up = async move {
            let result = activity.await;
            drop(given_up);
            result
        };
        let (message, _) = ctx.join2(kept, gives_up).await;
        Ok(message)
    })
}

#[test]
fn message_of_a_read_that_a_poll_drops_goes_to_a_read_that_was_polled_before() {
    for beside_another_wait in [false, true] {
        let mut harness = gives_up_the_first_read(beside_another_wait);
        harness.turn([]);
        assert_eq!(harness.turn([queue_message("q", "moved")]).outcome, TurnOutcome::Continue);
        assert_eq!(harness.turn([activity_completed(4, "")]).outcome, completed("moved"));
    }
}

#[test]
fn dropping_reads_moves_all_their_messages_up() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut reads: Vec<_> = (0..6).map(|_| ctx.dequeue_event("q")).collect();
        ctx.schedule_activity("A", "").await?;
        // Of six messages the first three go to the last three reads.
        drop(reads.drain(1..4).collect::<Vec<_>>());
        let last = reads.pop().unwrap().await;
        let rest = ctx.join(reads).await.join("");
        let next = ctx.dequeue_event("q").await;
        Ok(format!("{last} {rest} {next}"))
    });
    harness.turn([]);
    let mut messages: Vec<_> = "abcdef".chars().map(|c| queue_message("q", &c.to_string())).collect();
    messages.push(activity_completed(8, ""));
    assert_eq!(harness.turn_with(messages).outcome, completed("c ab d"));
}

/// How many calls the turns below join.
const JOINED: usize = 960;

/// How long the quickest of five turns takes that answers all joined calls.
fn time_to_join<T: Send + 'static>(
    call: fn(&OrchestrationContext) -> DurableFuture<T>,
    answer: fn(u64) -> WorkItem,
) -> Duration {
    let turn = || {
        let mut harness = Harness::new(move |ctx, _| async move {
            let calls = (0..JOINED).map(|_| call(&ctx)).collect();
            Ok(ctx.join(calls).await.len().to_string())
        });
        harness.turn([]);
        let answers: Vec<_> = (2..).take(JOINED).map(answer).collect();
        let began = Instant::now();
        assert_eq!(harness.turn_with(answers).outcome, completed(&JOINED.to_string()));
        began.elapsed()
    };
    (0..5).map(|_| turn()).min().unwrap()
}

#[test]
fn joined_reads_cost_no_more_than_a_few_times_what_joined_activities_cost() {
    let reads = time_to_join(|ctx| ctx.dequeue_event("q"), |_| queue_message("q", "m"));
    let activities = time_to_join(|ctx| ctx.schedule_activity("A", ""), |id| activity_completed(id, "m"));
    assert!(
        reads < activities * 8,
        "{JOINED} reads took {reads:?}, more than 8 times as long as {JOINED} activities: {activities:?}"
    );
}
