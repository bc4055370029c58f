//! Contract 01 §4: durable futures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{AppErrorKind, DurableFuture, ErrorDetails};

use crate::stage::{Stage, child_done, done, fired, outcome_of, queued, sent, signal, told};

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
fn calls_take_effect_though_nobody_polls_them() {
    let mut stage = Stage::new(|ctx, _| async move {
        let _activity = ctx.schedule_activity("A", "1");
        let _timer = ctx.schedule_timer(Duration::from_millis(5));
        let _wait = ctx.schedule_wait("w");
        let _dequeue = ctx.dequeue_event("q");
        let _child = ctx.schedule_sub_orchestration("C", "2");
        ctx.schedule_wait("never").await;
        Ok(String::new())
    });
    let turn = stage.turn([]);
    assert_eq!(
        told(&turn.history_delta),
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
    let mut stage = Stage::new(move |ctx, _| {
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
    stage.turn([]);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    stage.turn([done(2, "four")]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(stage.turn([fired(3)]).outcome, TurnOutcome::Completed { output: "4".into() });
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn dropping_a_mapped_future_cancels_the_original_work() {
    let mut stage = Stage::new(|ctx, _| async move {
        drop(ctx.schedule_activity("A", "").map(|_| 1).map(|n| n + 1));
        ctx.schedule_wait("w").await;
        Ok(String::new())
    });
    let turn = stage.turn([]);
    assert_eq!(
        told(&turn.history_delta),
        ["1 started", "2 activity A ", "3 wait w", "4<2 activity-cancelled dropped_future"]
    );
    assert_eq!(turn.cancelled_activities, [2]);
}

#[test]
fn tag_can_be_set_after_map() {
    let mut stage = Stage::new(|ctx, _| async move {
        ctx.schedule_activity_typed::<_, String>("A", &"x").with_tag("gpu").await
    });
    assert_eq!(told(&stage.turn([]).history_delta)[1], "2 activity A x #gpu");
}

#[test]
fn last_tag_wins() {
    let mut stage =
        Stage::new(|ctx, _| async move { ctx.schedule_activity("A", "x").with_tag("a").with_tag("b").await });
    let turn = stage.turn([]);
    assert_eq!(told(&turn.history_delta)[1], "2 activity A x #b");
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
    let mut stage = Stage::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        activity.with_tag("late").await
    });
    stage.turn([]);
    let text = panic_text(stage.turn([fired(3)]).outcome);
    assert!(text.starts_with("with_tag(): token 1 not found in emitted_actions"), "{text}");
}

#[test]
fn dropped_activity_is_removed_from_the_worker_queue() {
    let mut stage = Stage::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(activity);
        Ok(ctx.schedule_wait("w").await)
    });
    stage.turn([]);
    let turn = stage.turn([fired(3)]);
    assert_eq!(told(&turn.history_delta), ["4<3 fired", "5 wait w", "6<2 activity-cancelled dropped_future"]);
    assert_eq!(turn.cancelled_activities, [2]);
}

#[test]
fn dropped_child_is_told_to_cancel() {
    let mut stage = Stage::new(|ctx, _| async move {
        let child = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(child);
        Ok(ctx.schedule_wait("w").await)
    });
    stage.turn([]);
    let turn = stage.turn([fired(3)]);
    assert_eq!(told(&turn.history_delta), ["4<3 fired", "5 wait w", "6<2 child-cancelled dropped_future"]);
    assert_eq!(sent(&turn), ["cancel order::sub::2: parent dropped sub-orchestration future"]);
}

#[test]
fn dropped_wait_and_dropped_dequeue_give_up_their_subscription() {
    let mut stage = Stage::new(|ctx, _| async move {
        let wait = ctx.schedule_wait("s");
        let dequeue = ctx.dequeue_event("q");
        ctx.schedule_timer(Duration::ZERO).await;
        drop((wait, dequeue));
        Ok(ctx.schedule_wait("w").await)
    });
    stage.turn([]);
    let turn = stage.turn([fired(4)]);
    assert_eq!(
        told(&turn.history_delta),
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
fn dropped_timer_means_nothing() {
    let mut stage = Stage::new(|ctx, _| async move {
        drop(ctx.schedule_timer(Duration::from_millis(9)));
        Ok(ctx.schedule_wait("w").await)
    });
    let turn = stage.turn([]);
    assert_eq!(told(&turn.history_delta), ["1 started", "2 timer 1000009", "3 wait w"]);
    assert_eq!(sent(&turn), ["fire 2 1000009"]);
    assert_eq!(told(&stage.turn([fired(2)]).history_delta), ["4<2 fired"]);
}

#[test]
fn forgotten_futures_are_not_cancelled() {
    let mut stage = Stage::new(|ctx, _| async move {
        std::mem::forget(ctx.schedule_activity("A", ""));
        std::mem::forget(ctx.schedule_sub_orchestration("C", ""));
        Ok(ctx.schedule_wait("w").await)
    });
    let turn = stage.turn([]);
    assert_eq!(told(&turn.history_delta), ["1 started", "2 activity A ", "3 child C sub::3 ", "4 wait w"]);
    assert_eq!(told(&stage.turn([done(2, "r"), child_done(3, "r")]).history_delta).len(), 2);
}

#[test]
fn future_that_returned_is_never_cancelled_by_a_later_drop() {
    let mut stage = Stage::new(|ctx, _| async move {
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
    stage.turn([]);
    let turn = stage.turn([done(2, ""), child_done(3, ""), signal("s", ""), queued("q", "")]);
    assert_eq!(
        told(&turn.history_delta),
        ["6<2 done ", "7<3 child-done ", "8 signal s ", "9 queued q ", "10 wait w"]
    );
    assert!(turn.cancelled_activities.is_empty());
}

#[test]
fn result_that_nobody_looked_at_is_dropped_like_open_work() {
    let mut stage = Stage::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(activity);
        Ok(ctx.schedule_wait("w").await)
    });
    stage.turn([]);
    let turn = stage.turn([done(2, "unseen"), fired(3)]);
    assert_eq!(
        told(&turn.history_delta),
        ["4<2 done unseen", "5<3 fired", "6 wait w", "7<2 activity-cancelled dropped_future"]
    );
}
