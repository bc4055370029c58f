//! What orchestration code may do, what the engine detects and what it does not.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use everturn_core::turn::{Turn, TurnOutcome};
use everturn_core::{AppErrorKind, ErrorDetails, OrchestrationContext};

use crate::harness::{HandlerResult, Harness, activity_completed, outcome_of, queue_message, timer_fired};

/// A future that is pending once, like `tokio::task::yield_now`.
#[derive(Default)]
struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn waits_on_nothing_durable(outcome: &TurnOutcome) -> bool {
    matches!(
        outcome,
        TurnOutcome::Failed {
            details: ErrorDetails::Application { kind: AppErrorKind::OrchestrationFailed, message, retryable: false },
        } if message.contains("waits on something that is not durable")
    )
}

#[test]
fn waiting_on_something_that_is_not_durable_fails_at_once() {
    assert!(waits_on_nothing_durable(&outcome_of(|_, _| async move {
        std::future::pending::<()>().await;
        Ok(String::new())
    })));
}

#[test]
fn failure_names_what_to_use_instead() {
    let outcome = outcome_of(|_, _| async move {
        std::future::pending::<()>().await;
        Ok(String::new())
    });
    let TurnOutcome::Failed { details } = outcome else { panic!("{outcome:?}") };
    let text = details.display_message();
    for call in ["schedule_timer", "schedule_activity", "schedule_wait", "dequeue_event"] {
        assert!(text.contains(&format!("ctx.{call}")), "the text does not name {call}: {text}");
    }
}

#[test]
fn yield_is_over_at_the_next_poll() {
    let outcome = outcome_of(|_, _| async move {
        Yield::default().await;
        Ok("went on".to_owned())
    });
    assert_eq!(outcome, TurnOutcome::Completed { output: "went on".into() });
}

#[test]
fn it_is_detected_after_durable_work_too() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        std::future::pending::<()>().await;
        Ok(String::new())
    });
    harness.turn([]);
    assert!(waits_on_nothing_durable(&harness.turn([activity_completed(2, "")]).outcome));
}

#[test]
fn resolved_future_that_is_only_held_is_not_waited_on() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _held = ctx.schedule_activity("A", "");
        let _read = ctx.dequeue_event("q");
        std::future::pending::<()>().await;
        Ok(String::new())
    });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([activity_completed(2, "")]).outcome, TurnOutcome::Continue);
    assert!(waits_on_nothing_durable(&harness.turn([queue_message("q", "")]).outcome));
}

/// A future that is pending at its first poll and wakes no task.
#[derive(Default)]
struct PendingOnce(bool);

impl Future for PendingOnce {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn beside_a_live_durable_future_it_is_polled_again_at_the_next_event() {
    let mut harness = Harness::new(|ctx, _| async move {
        let ((), result) = ctx.join2(PendingOnce::default(), ctx.schedule_activity("A", "")).await;
        result
    });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(
        harness.turn([activity_completed(2, "r")]).outcome,
        TurnOutcome::Completed { output: "r".into() }
    );
}

#[test]
fn continue_as_new_may_wait_on_anything() {
    let outcome = outcome_of(|ctx, _| async move {
        drop(ctx.continue_as_new("next"));
        std::future::pending::<()>().await;
        Ok(String::new())
    });
    assert_eq!(outcome, TurnOutcome::ContinuedAsNew { input: "next".into() });
}

/// Makes one durable future.
type Wait = fn(&OrchestrationContext) -> Pin<Box<dyn Future<Output = ()> + Send>>;

#[test]
fn every_kind_of_durable_future_counts_as_waiting() {
    let waits: [Wait; 5] = [
        |ctx| Box::pin(ctx.schedule_activity("A", "").map(drop)),
        |ctx| Box::pin(ctx.schedule_timer(Duration::ZERO)),
        |ctx| Box::pin(ctx.schedule_wait("w").map(drop)),
        |ctx| Box::pin(ctx.dequeue_event("q").map(drop)),
        |ctx| Box::pin(ctx.schedule_sub_orchestration("C", "").map(drop)),
    ];
    for wait in waits {
        let outcome = outcome_of(move |ctx, _| async move {
            wait(&ctx).await;
            Ok(String::new())
        });
        assert_eq!(outcome, TurnOutcome::Continue);
    }
}

/// Runs `old` for a turn, then `new` on its history with the given message.
fn redeployed<A, B>(
    old: impl Fn(OrchestrationContext, String) -> A + Send + Sync + 'static,
    new: impl Fn(OrchestrationContext, String) -> B + Send + Sync + 'static,
    message: everturn_core::WorkItem,
) -> Turn
where
    A: Future<Output = HandlerResult> + Send + 'static,
    B: Future<Output = HandlerResult> + Send + 'static,
{
    let mut harness = Harness::new(old);
    harness.turn([]);
    harness.deploy(new);
    harness.turn([message])
}

#[test]
fn code_added_after_the_end_of_history_is_fine() {
    let turn = redeployed(
        |ctx, _| async move { ctx.schedule_activity("A", "").await },
        |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            ctx.schedule_activity("B", "").await
        },
        activity_completed(2, ""),
    );
    assert_eq!(turn.outcome, TurnOutcome::Continue);
}

#[test]
fn code_removed_after_the_end_of_history_is_fine() {
    let turn = redeployed(
        |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            ctx.schedule_activity("B", "").await
        },
        |ctx, _| async move { ctx.schedule_activity("A", "").await },
        activity_completed(2, "early"),
    );
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "early".into() });
}

#[test]
fn changed_child_version_and_id_are_not_noticed() {
    let turn = redeployed(
        |ctx, _| async move { ctx.schedule_sub_orchestration_with_id("C", "one", "x").await },
        |ctx, _| async move {
            ctx.schedule_sub_orchestration_versioned_with_id("C", Some("2.0.0".into()), "two", "x").await
        },
        crate::harness::child_completed(2, "r"),
    );
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "r".into() });
}

#[test]
fn changed_timer_duration_is_not_noticed() {
    let turn = redeployed(
        |ctx, _| async move {
            ctx.schedule_timer(Duration::from_secs(1)).await;
            Ok("slept".into())
        },
        |ctx, _| async move {
            ctx.schedule_timer(Duration::from_secs(60)).await;
            Ok("slept".into())
        },
        timer_fired(2),
    );
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "slept".into() });
}

#[test]
fn calls_from_outside_the_orchestration_have_no_effect() {
    let escaped = std::sync::Arc::new(std::sync::Mutex::new(None));
    let slot = std::sync::Arc::clone(&escaped);
    let mut harness = Harness::new(move |ctx, _| {
        *slot.lock().unwrap() = Some(ctx.clone());
        async move { Ok(ctx.schedule_wait("w").await) }
    })
    .warm_only();
    harness.turn([]);
    let ctx: OrchestrationContext = escaped.lock().unwrap().clone().unwrap();
    ctx.set_custom_status("from outside");
    ctx.set_kv_value("k", "v");
    drop(ctx.schedule_activity("A", ""));
    drop(ctx.continue_as_new("x"));
    assert_eq!(ctx.get_kv_length(), 0);
    assert_eq!(
        crate::harness::summarize(&harness.turn([queue_message("q", "")]).history_delta),
        ["3 queued q "]
    );
}

#[test]
fn dropping_an_execution_is_silent_whatever_its_code_does() {
    struct CallsOnDrop(OrchestrationContext);
    impl Drop for CallsOnDrop {
        fn drop(&mut self) {
            self.0.set_custom_status("dropped");
            drop(self.0.schedule_activity("Cleanup", ""));
            if !std::thread::panicking() {
                panic!("loud");
            }
        }
    }
    let mut harness = Harness::new(|ctx, _| async move {
        let _loud = CallsOnDrop(ctx.clone());
        Ok(ctx.schedule_wait("w").await)
    })
    .warm_only();
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    drop(harness);
}
