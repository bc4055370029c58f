//! The `futures` crate and `tokio::join!` in orchestrations: a durable future wakes its task when it becomes ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{OrchestrationContext, WorkItem};
use futures::channel::mpsc;
use futures::future::{FutureExt, join_all, poll_fn, select_all};
use futures::stream::{self, FuturesUnordered, StreamExt};

use crate::harness::{
    Harness, activity_completed, child_completed, queue_message, signal, summarize, timer_fired,
};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

fn texts(results: Vec<Result<String, String>>) -> Result<String, String> {
    Ok(results.into_iter().collect::<Result<Vec<_>, _>>()?.join(","))
}

#[test]
fn join_all_waits_for_a_thousand_activities() {
    let mut harness = Harness::new(|ctx, _| async move {
        let calls = (0..1000).map(|n| ctx.schedule_activity("A", n.to_string()));
        let results = join_all(calls).await;
        Ok(format!("{} {}", results.len(), texts(results)?.len()))
    });
    assert_eq!(harness.turn([]).worker_items.len(), 1000);
    let (even, odd): (Vec<u64>, Vec<u64>) = (2..1002).rev().partition(|id| id % 2 == 0);
    let answers = |ids: &[u64]| ids.iter().map(|id| activity_completed(*id, "r")).collect();
    assert_eq!(harness.turn_with(answers(&even)).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn_with(answers(&odd)).outcome, completed("1000 1999"));
}

#[test]
fn join_all_takes_every_kind_of_durable_future() {
    let mut harness = Harness::new(|ctx, _| async move {
        let text = |result: Result<String, String>| result.unwrap_or_default();
        let mut futures = vec![
            ctx.schedule_activity("A", "").map(text).boxed(),
            ctx.schedule_timer(Duration::ZERO).map(|()| "fired".to_owned()).boxed(),
            ctx.schedule_wait("s").boxed(),
            ctx.dequeue_event("q").boxed(),
            ctx.schedule_sub_orchestration("C", "").map(text).boxed(),
        ];
        futures.extend((0..40).map(|_| std::future::ready(String::new()).boxed()));
        Ok(join_all(futures).await.concat())
    });
    harness.turn([]);
    for message in [
        timer_fired(3),
        child_completed(6, "child "),
        queue_message("q", "message "),
        signal("s", " signal "),
    ] {
        assert_eq!(harness.turn([message]).outcome, TurnOutcome::Continue);
    }
    assert_eq!(
        harness.turn([activity_completed(2, "activity ")]).outcome,
        completed("activity fired signal message child ")
    );
}

#[test]
fn futures_unordered_yields_results_in_the_order_of_history() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut calls: FuturesUnordered<_> =
            ["A", "B", "C"].map(|n| ctx.schedule_activity(n, "")).into_iter().collect();
        while let Some(result) = calls.next().await {
            ctx.schedule_orchestration("Seen", result?, "");
        }
        Ok("all".to_owned())
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(4, "c"), activity_completed(2, "a")]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["5<4 activity-completed c", "6<2 activity-completed a", "7 detached Seen c ", "8 detached Seen a "]
    );
    assert_eq!(harness.turn([activity_completed(3, "b")]).outcome, completed("all"));
}

#[test]
fn buffer_unordered_starts_a_call_for_each_that_ends() {
    let mut harness = Harness::new(|ctx, _| async move {
        let calls = stream::iter(0..5).map(|n| ctx.schedule_activity("A", n.to_string()));
        let results: Vec<Result<String, String>> = calls.buffer_unordered(2).collect().await;
        texts(results)
    });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1..], ["2 activity A 0", "3 activity A 1"]);
    assert_eq!(summarize(&harness.turn([activity_completed(3, "1")]).history_delta)[1..], ["5 activity A 2"]);
    assert_eq!(
        summarize(&harness.turn([activity_completed(5, "2"), activity_completed(2, "0")]).history_delta)[2..],
        ["8 activity A 3", "9 activity A 4"]
    );
    assert_eq!(
        harness.turn([activity_completed(9, "4"), activity_completed(8, "3")]).outcome,
        completed("1,2,0,4,3")
    );
}

#[test]
fn select_all_returns_the_first_in_history_and_keeps_the_rest() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut calls: Vec<_> = (0..3).map(|n| ctx.schedule_activity("A", n.to_string())).collect();
        let mut order = Vec::new();
        while !calls.is_empty() {
            let (result, index, rest) = select_all(calls).await;
            order.push(format!("{}@{index}", result?));
            calls = rest;
        }
        Ok(order.join(" "))
    });
    harness.turn([]);
    harness.turn([activity_completed(3, "1")]);
    assert_eq!(
        harness.turn([activity_completed(4, "2"), activity_completed(2, "0")]).outcome,
        completed("1@1 2@1 0@0")
    );
}

#[test]
fn tokio_join_runs_branches_side_by_side() {
    let mut harness = Harness::new(|ctx, _| async move {
        let chain = |name: &'static str| {
            let ctx = ctx.clone();
            async move {
                let first = ctx.schedule_activity(name, "1").await?;
                ctx.schedule_activity(name, first).await
            }
        };
        let (a, b) = tokio::join!(chain("A"), chain("B"));
        Ok(format!("{}{}", a?, b?))
    });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1..], ["2 activity A 1", "3 activity B 1"]);
    assert_eq!(
        summarize(&harness.turn([activity_completed(3, "b"), activity_completed(2, "a")]).history_delta)[2..],
        ["6 activity B b", "7 activity A a"]
    );
    assert_eq!(
        harness.turn([activity_completed(7, "y"), activity_completed(6, "z")]).outcome,
        completed("yz")
    );
}

#[test]
fn buffered_message_wakes_the_read_that_is_recorded_after_it() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut reads: FuturesUnordered<_> = (0..2).map(|_| ctx.dequeue_event("q")).collect();
        let mut read = String::new();
        while let Some(message) = reads.next().await {
            read += &message;
        }
        Ok(read)
    });
    assert_eq!(harness.turn([queue_message("q", "a"), queue_message("q", "b")]).outcome, completed("ab"));
}

#[test]
fn branches_may_talk_through_a_channel() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (mut sender, mut receiver) = mpsc::channel(1);
        let producer = async {
            for n in 0..3 {
                let result = ctx.schedule_activity("A", n.to_string()).await?;
                sender.try_send(result).map_err(|error| error.to_string())?;
            }
            drop(sender);
            Ok::<(), String>(())
        };
        let consumer = async {
            let mut seen = String::new();
            while let Some(item) = receiver.next().await {
                seen += &item;
            }
            seen
        };
        // The consumer is polled before the producer sends, so that only its waker tells it of an item.
        let (seen, sent) = ctx.join2(consumer, producer).await;
        sent?;
        Ok(seen)
    });
    harness.turn([]);
    harness.turn([activity_completed(2, "x")]);
    harness.turn([activity_completed(4, "y")]);
    assert_eq!(harness.turn([activity_completed(6, "z")]).outcome, completed("xyz"));
}

/// Counts the polls of a thousand reads or calls that are waited for through `FuturesUnordered`.
fn polls_of_a_thousand(
    make: fn(&OrchestrationContext) -> futures::future::BoxFuture<'static, String>,
    answers: impl Fn(u64) -> WorkItem,
) -> usize {
    let polls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&polls);
    let mut harness = Harness::new(move |ctx, _| {
        let polls = Arc::clone(&shared);
        async move {
            let counted = (0..1000).map(|_| {
                let (mut future, polls) = (make(&ctx), Arc::clone(&polls));
                poll_fn(move |cx| {
                    polls.fetch_add(1, Ordering::SeqCst);
                    future.as_mut().poll(cx)
                })
            });
            Ok(join_all(counted).await.len().to_string())
        }
    })
    .warm_only();
    harness.turn([]);
    assert_eq!(harness.turn_with((2..1002).map(answers).collect()).outcome, completed("1000"));
    polls.load(Ordering::SeqCst)
}

#[test]
fn join_all_polls_each_future_once_and_once_more_when_it_is_ready() {
    let activities = polls_of_a_thousand(
        |ctx| ctx.schedule_activity("A", "").map(|result| result.unwrap_or_default()).boxed(),
        |id| activity_completed(id, "r"),
    );
    assert_eq!(activities, 2000);
    let reads = polls_of_a_thousand(|ctx| ctx.dequeue_event("q").boxed(), |_| queue_message("q", "m"));
    assert_eq!(reads, 2000);
}
