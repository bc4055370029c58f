//! Durable futures: when calls take effect, tags, and what dropping a future does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{AppErrorKind, DurableFuture, ErrorDetails};

use crate::harness::{
    Harness, activity_completed, child_completed, outcome_of, queue_message, sent, signal, summarize,
    timer_fired,
};

fn panic_text(outcome: TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Failed {
            details: ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. },
        } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn futures_can_be_sent_and_moved() {
    fn send_and_unpin<T: Send + Unpin>() {}
    send_and_unpin::<DurableFuture<String>>();
    send_and_unpin::<DurableFuture<Result<String, String>>>();
    send_and_unpin::<DurableFuture<()>>();
}

#[test]
fn calls_take_effect_without_being_polled() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _activity = ctx.schedule_activity("A", "1");
        let _timer = ctx.schedule_timer(Duration::from_millis(5));
        let _wait = ctx.schedule_wait("w");
        let _dequeue = ctx.dequeue_event("q");
        let _child = ctx.schedule_sub_orchestration("C", "2");
        ctx.schedule_wait("never").await;
        Ok(String::new())
    });
    let turn = harness.turn([]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "1 started",
            "2 activity A 1",
            "3 timer 1000005",
            "4 wait w",
            "5 dequeue q",
            "6 child C sub::6 2",
            "7 wait never"
        ]
    );
    assert_eq!(sent(&turn), ["run 2 A 1", "fire 3 1000005", "start child C order::sub::6 2"]);
}

#[test]
fn map_runs_once_when_the_value_is_ready() {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let mut harness = Harness::new(move |ctx, _| {
        let seen = Arc::clone(&seen);
        async move {
            let length = ctx.schedule_activity("A", "").map(move |result| {
                seen.fetch_add(1, Ordering::SeqCst);
                result.map(|text| text.len())
            });
            let (length, ()) = ctx.join2(length, ctx.schedule_timer(Duration::ZERO)).await;
            Ok(length?.to_string())
        }
    })
    .warm_only();
    harness.turn([]);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    harness.turn([activity_completed(2, "four")]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(harness.turn([timer_fired(3)]).outcome, TurnOutcome::Completed { output: "4".into() });
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn dropping_a_mapped_future_cancels_the_original_work() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_activity("A", "").map(|_| 1).map(|n| n + 1));
        ctx.schedule_wait("w").await;
        Ok(String::new())
    });
    let turn = harness.turn([]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["1 started", "2 activity A ", "3 wait w", "4<2 activity-cancelled dropped_future"]
    );
    assert_eq!(turn.cancelled_activities, [2]);
}

#[test]
fn tag_can_be_set_after_map() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_activity_typed::<_, String>("A", &"x").with_tag("gpu").await
    });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1], "2 activity A x #gpu");
}

#[test]
fn last_tag_wins() {
    let mut harness =
        Harness::new(
            |ctx, _| async move { ctx.schedule_activity("A", "x").with_tag("a").with_tag("b").await },
        );
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta)[1], "2 activity A x #b");
    assert!(format!("{:?}", turn.worker_items).contains("tag: Some(\"b\")"));
}

#[test]
fn tag_on_anything_but_an_activity_panics() {
    let text = panic_text(outcome_of(|ctx, _| async move {
        ctx.schedule_timer(Duration::ZERO).with_tag("t").await;
        Ok(String::new())
    }));
    assert_eq!(text, "with_tag() can only be called on activity futures, got Timer");
    let text = panic_text(outcome_of(|ctx, _| async move { Ok(ctx.schedule_wait("w").with_tag("t").await) }));
    assert_eq!(
        text,
        "with_tag() can only be called on activity futures, got ExternalWait { event_name: \"w\" }"
    );
    let text = panic_text(outcome_of(|ctx, _| async move { Ok(ctx.dequeue_event("q").with_tag("t").await) }));
    assert_eq!(
        text,
        "with_tag() can only be called on activity futures, got QueueDequeue { event_name: \"q\" }"
    );
    let text = panic_text(outcome_of(|ctx, _| async move {
        ctx.schedule_sub_orchestration("C", "").with_tag("t").await
    }));
    assert!(
        text.starts_with("with_tag() can only be called on activity futures, got SubOrchestration { token: "),
        "{text}"
    );
}

#[test]
fn tag_after_the_orchestration_waited_panics() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        activity.with_tag("late").await
    });
    harness.turn([]);
    let text = panic_text(harness.turn([timer_fired(3)]).outcome);
    assert!(text.starts_with("with_tag(): token 1 not found in emitted_actions"), "{text}");
}

#[test]
fn dropped_activity_is_removed_from_the_worker_queue() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(activity);
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(3)]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["4<3 fired", "5 wait w", "6<2 activity-cancelled dropped_future"]
    );
    assert_eq!(turn.cancelled_activities, [2]);
}

#[test]
fn dropped_child_gets_a_cancel_message() {
    let mut harness = Harness::new(|ctx, _| async move {
        let child = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(child);
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(3)]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["4<3 fired", "5 wait w", "6<2 child-cancelled dropped_future"]
    );
    assert_eq!(sent(&turn), ["cancel order::sub::2: parent dropped sub-orchestration future"]);
}

#[test]
fn dropped_wait_and_dropped_dequeue_cancel_their_subscription() {
    let mut harness = Harness::new(|ctx, _| async move {
        let wait = ctx.schedule_wait("s");
        let dequeue = ctx.dequeue_event("q");
        ctx.schedule_timer(Duration::ZERO).await;
        drop((wait, dequeue));
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(4)]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "5<4 fired",
            "6 wait w",
            "7<2 wait-cancelled dropped_future",
            "8<3 dequeue-cancelled dropped_future"
        ]
    );
    assert!(sent(&turn).is_empty());
}

#[test]
fn dropped_timer_records_nothing() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_timer(Duration::from_millis(9)));
        Ok(ctx.schedule_wait("w").await)
    });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 timer 1000009", "3 wait w"]);
    assert_eq!(sent(&turn), ["fire 2 1000009"]);
    assert_eq!(summarize(&harness.turn([timer_fired(2)]).history_delta), ["4<2 fired"]);
}

#[test]
fn forgotten_futures_are_not_cancelled() {
    let mut harness = Harness::new(|ctx, _| async move {
        std::mem::forget(ctx.schedule_activity("A", ""));
        std::mem::forget(ctx.schedule_sub_orchestration("C", ""));
        Ok(ctx.schedule_wait("w").await)
    });
    let turn = harness.turn([]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["1 started", "2 activity A ", "3 child C sub::3 ", "4 wait w"]
    );
    assert_eq!(
        summarize(&harness.turn([activity_completed(2, "r"), child_completed(3, "r")]).history_delta).len(),
        2
    );
}

#[test]
fn future_that_returned_is_never_cancelled_by_a_later_drop() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut activity = ctx.schedule_activity("A", "");
        let mut child = ctx.schedule_sub_orchestration("C", "");
        let mut wait = ctx.schedule_wait("s");
        let mut dequeue = ctx.dequeue_event("q");
        (&mut activity).await?;
        (&mut child).await?;
        (&mut wait).await;
        (&mut dequeue).await;
        drop((activity, child, wait, dequeue));
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    let turn = harness.turn([
        activity_completed(2, ""),
        child_completed(3, ""),
        signal("s", ""),
        queue_message("q", ""),
    ]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["6<2 activity-completed ", "7<3 child-completed ", "8 signal s ", "9 queued q ", "10 wait w"]
    );
    assert!(turn.cancelled_activities.is_empty());
}

#[test]
fn unread_result_is_dropped_like_open_work() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(activity);
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(2, "unseen"), timer_fired(3)]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["4<2 activity-completed unseen", "5<3 fired", "6 wait w", "7<2 activity-cancelled dropped_future"]
    );
}
