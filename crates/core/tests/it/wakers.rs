//! Wakers: which are kept, when they are called and dropped, and which wakes owe the code another poll.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use everturn_core::turn::TurnOutcome;
use everturn_core::{DurableFuture, ErrorDetails, EventKind, OrchestrationContext};

use crate::harness::{
    Harness, activity_completed, outcome_of, queue_message, signal, summarize, timer_fired, yields,
};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

fn is_turn_limit(outcome: &TurnOutcome) -> bool {
    matches!(outcome, TurnOutcome::Failed { details: ErrorDetails::Infrastructure { operation, .. } }
        if operation == "turn_limit")
}

/// A waker that counts its calls and runs code when it is called or dropped.
#[derive(Default)]
struct TestWaker {
    wakes: AtomicUsize,
    when_woken: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    when_dropped: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Wake for TestWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        let run = self.when_woken.lock().unwrap().take();
        if let Some(run) = run {
            run();
        }
    }
}

impl Drop for TestWaker {
    fn drop(&mut self) {
        if let Some(run) = self.when_dropped.lock().unwrap().take() {
            run();
        }
    }
}

/// Polls a pending future with this waker.
fn poll_with<T>(future: &mut DurableFuture<T>, waker: &Arc<TestWaker>) {
    let waker = Waker::from(Arc::clone(waker));
    assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn code_that_wakes_itself_is_polled_again_before_the_next_event() {
    let mut harness = Harness::new(|ctx, _| async move {
        let branch = async {
            yields(3).await;
            ctx.schedule_activity("B", "").await
        };
        let (a, b) = ctx.join2(ctx.schedule_activity("A", ""), branch).await;
        Ok(format!("{}{}", a?, b?))
    });
    let turn = harness.turn([queue_message("q", "")]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["1 started", "2 queued q ", "3 activity A ", "4 activity B "]
    );
    assert_eq!(
        harness.turn([activity_completed(3, "a"), activity_completed(4, "b")]).outcome,
        completed("ab")
    );
}

#[test]
fn code_that_only_wakes_itself_goes_on() {
    let outcome = outcome_of(|_, _| async move {
        yields(1000).await;
        Ok("woke itself".to_owned())
    });
    assert_eq!(outcome, completed("woke itself"));
}

#[test]
fn code_that_wakes_itself_for_ever_ends_at_the_turn_limit() {
    assert!(is_turn_limit(&outcome_of(|_, _| async move {
        yields(usize::MAX).await;
        Ok(String::new())
    })));
    assert!(is_turn_limit(&outcome_of(|ctx, _| async move {
        let _open = ctx.schedule_wait("w");
        yields(usize::MAX).await;
        Ok(String::new())
    })));
}

#[test]
fn replay_that_wakes_itself_for_ever_ends_at_the_turn_limit() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    harness.turn([]);
    harness.deploy(|ctx, _| async move {
        let _open = ctx.schedule_wait("w");
        yields(usize::MAX).await;
        Ok(String::new())
    });
    assert!(is_turn_limit(&harness.turn([signal("w", "")]).outcome));
}

#[test]
fn polls_and_actions_of_a_turn_count_together() {
    let with_actions = |actions: usize| {
        outcome_of(move |ctx, _| async move {
            for n in 0..actions {
                ctx.set_kv_value("k", n.to_string());
            }
            yields(99_000).await;
            Ok(String::new())
        })
    };
    assert_eq!(with_actions(1000), completed(""));
    assert!(is_turn_limit(&with_actions(1001)));
}

#[test]
fn polls_of_earlier_turns_do_not_count_in_a_replay() {
    let mut harness = Harness::new(|ctx, _| async move {
        for _ in 0..3 {
            yields(60_000).await;
            ctx.schedule_activity("A", "").await?;
        }
        yields(60_000).await;
        Ok("done".to_owned())
    });
    harness.turn([]);
    harness.turn([activity_completed(2, "")]);
    harness.turn([activity_completed(4, "")]);
    assert_eq!(harness.turn([activity_completed(6, "")]).outcome, completed("done"));
}

/// Code that hands its waker out and counts its polls while it waits for a signal.
fn counted(during_poll: fn(&Waker)) -> (Harness, Arc<AtomicUsize>, Arc<Mutex<Option<Waker>>>) {
    let (polls, handed_out) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let (count, slot) = (Arc::clone(&polls), Arc::clone(&handed_out));
    let harness = Harness::new(move |ctx, _| {
        let (count, slot) = (Arc::clone(&count), Arc::clone(&slot));
        async move {
            let mut end = ctx.schedule_wait("end");
            poll_fn(|cx| {
                count.fetch_add(1, Ordering::SeqCst);
                *slot.lock().unwrap() = Some(cx.waker().clone());
                during_poll(cx.waker());
                Pin::new(&mut end).poll(cx)
            })
            .await;
            Ok(String::new())
        }
    });
    (harness.warm_only(), polls, handed_out)
}

#[test]
fn wake_from_another_thread_is_ignored() {
    let (mut harness, polls, _) = counted(|waker| {
        let waker = waker.clone();
        std::thread::spawn(move || waker.wake()).join().unwrap();
    });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

#[test]
fn wake_between_polls_is_ignored() {
    let (mut harness, polls, handed_out) = counted(|_| ());
    harness.turn([]);
    handed_out.lock().unwrap().take().unwrap().wake();
    harness.turn([signal("other", "")]);
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

#[test]
fn one_poll_follows_however_often_the_code_wakes_itself() {
    let (mut harness, polls, _) = counted(|waker| {
        static WOKEN: AtomicBool = AtomicBool::new(false);
        if !WOKEN.swap(true, Ordering::SeqCst) {
            (0..5).for_each(|_| waker.wake_by_ref());
        }
    });
    harness.turn([]);
    assert_eq!(polls.load(Ordering::SeqCst), 2);
}

/// Runs code that polls an activity's future with wakers of its own and keeps it, then completes the activity.
fn with_wakers(
    poll: impl Fn(&OrchestrationContext, &mut DurableFuture<Result<String, String>>)
    + Send
    + Sync
    + Clone
    + 'static,
) {
    let mut harness = Harness::new(move |ctx, _| {
        let poll = poll.clone();
        async move {
            let mut activity = ctx.schedule_activity("A", "");
            poll(&ctx, &mut activity);
            ctx.schedule_timer(std::time::Duration::ZERO).await;
            activity.await
        }
    })
    .warm_only();
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    let timer = harness.history().iter().find(|event| matches!(event.kind, EventKind::TimerCreated { .. }));
    let timer = timer.unwrap().event_id;
    assert_eq!(harness.turn([activity_completed(2, "r")]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([timer_fired(timer)]).outcome, completed("r"));
}

#[test]
fn only_the_last_waker_is_called() {
    let (first, second) = (Arc::new(TestWaker::default()), Arc::new(TestWaker::default()));
    let (a, b) = (Arc::clone(&first), Arc::clone(&second));
    with_wakers(move |_, activity| {
        poll_with(activity, &a);
        poll_with(activity, &a);
        poll_with(activity, &b);
    });
    assert_eq!(first.wakes.load(Ordering::SeqCst), 0);
    assert_eq!(second.wakes.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&first), 1, "a replaced waker is not kept");
    assert_eq!(Arc::strong_count(&second), 1, "a waker that was called is not kept");
}

#[test]
fn waker_may_drop_durable_futures_when_it_is_called_or_dropped() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    with_wakers(move |ctx, activity| {
        let drops = |name: &str| {
            let (future, count) = (ctx.schedule_wait(name), Arc::clone(&count));
            move || {
                drop(future);
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        let (replaced, called) = (Arc::new(TestWaker::default()), Arc::new(TestWaker::default()));
        *replaced.when_dropped.lock().unwrap() = Some(Box::new(drops("1")));
        *called.when_woken.lock().unwrap() = Some(Box::new(drops("2")));
        *called.when_dropped.lock().unwrap() = Some(Box::new(drops("3")));
        poll_with(activity, &replaced);
        drop(replaced);
        poll_with(activity, &called);
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
}

/// Otherwise the code would seem to wait for the future that is gone.
#[test]
fn code_that_waits_for_nothing_durable_fails_although_a_waker_dropped_a_durable_future() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut activity = ctx.schedule_activity("A", "");
        let timer = ctx.schedule_timer(std::time::Duration::ZERO);
        let (waker, dropped) = (Arc::new(TestWaker::default()), ctx.schedule_wait("never"));
        *waker.when_woken.lock().unwrap() = Some(Box::new(move || drop(dropped)));
        poll_with(&mut activity, &waker);
        timer.await;
        activity.await?;
        std::future::pending().await
    })
    .warm_only();
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([activity_completed(2, "r")]).outcome, TurnOutcome::Continue);
    let outcome = harness.turn([timer_fired(3)]).outcome;
    assert!(format!("{outcome:?}").contains("not durable"), "{outcome:?}");
}

#[test]
fn waker_that_panics_does_not_fail_the_turn() {
    with_wakers(|_, activity| {
        let loud = Arc::new(TestWaker::default());
        *loud.when_woken.lock().unwrap() = Some(Box::new(|| panic!("loud")));
        poll_with(activity, &loud);
    });
    with_wakers(|_, activity| {
        let loud = Arc::new(TestWaker::default());
        *loud.when_dropped.lock().unwrap() = Some(Box::new(|| panic!("loud")));
        poll_with(activity, &loud);
    });
}

#[test]
fn read_that_is_dropped_wakes_the_next_read_outside_the_lock() {
    let waker = Arc::new(TestWaker::default());
    let shared = Arc::clone(&waker);
    let mut harness = Harness::new(move |ctx, _| {
        let waker = Arc::clone(&shared);
        async move {
            let first = ctx.dequeue_event("q");
            let mut second = ctx.dequeue_event("q");
            let third = ctx.dequeue_event("other");
            *waker.when_woken.lock().unwrap() = Some(Box::new(|| drop(third)));
            poll_with(&mut second, &waker);
            ctx.schedule_activity("A", "").await?;
            drop(first);
            Ok(second.await)
        }
    })
    .warm_only();
    harness.turn([]);
    assert_eq!(
        harness.turn([queue_message("q", "moved"), activity_completed(5, "")]).outcome,
        completed("moved")
    );
    assert_eq!(waker.wakes.load(Ordering::SeqCst), 1);
}

#[test]
fn dropped_future_keeps_no_waker() {
    let waker = Arc::new(TestWaker::default());
    let shared = Arc::clone(&waker);
    let mut harness = Harness::new(move |ctx, _| {
        let waker = Arc::clone(&shared);
        async move {
            let mut activity = ctx.schedule_activity("A", "");
            poll_with(&mut activity, &waker);
            assert_eq!(Arc::strong_count(&waker), 3 + 1);
            drop(activity);
            assert_eq!(Arc::strong_count(&waker), 3);
            Ok(ctx.schedule_wait("w").await)
        }
    })
    .warm_only();
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
}

#[test]
fn dropped_execution_keeps_no_waker_although_a_future_outlives_it() {
    let waker = Arc::new(TestWaker::default());
    let escaped = Arc::new(Mutex::new(Vec::new()));
    let (shared, slot) = (Arc::clone(&waker), Arc::clone(&escaped));
    let mut harness = Harness::new(move |ctx, _| {
        let (waker, slot) = (Arc::clone(&shared), Arc::clone(&slot));
        async move {
            let mut futures = [ctx.schedule_wait("w"), ctx.dequeue_event("q")];
            futures.iter_mut().for_each(|future| poll_with(future, &waker));
            slot.lock().unwrap().extend(futures);
            Ok(ctx.schedule_wait("end").await)
        }
    })
    .warm_only();
    harness.turn([]);
    let held = Arc::strong_count(&waker);
    drop(harness);
    // The closure, the code and two futures held it.
    assert_eq!((held, Arc::strong_count(&waker)), (5, 1));
    for future in escaped.lock().unwrap().iter_mut() {
        poll_with(future, &waker);
    }
    assert_eq!(Arc::strong_count(&waker), 1, "a detached future keeps no waker");
}

#[test]
fn waker_that_panics_when_it_is_dropped_does_not_stop_the_drop_of_an_execution() {
    let escaped = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&escaped);
    let mut harness = Harness::new(move |ctx, _| {
        let slot = Arc::clone(&slot);
        async move {
            let loud = Arc::new(TestWaker::default());
            *loud.when_dropped.lock().unwrap() = Some(Box::new(|| panic!("loud")));
            let mut wait = ctx.schedule_wait("w");
            poll_with(&mut wait, &loud);
            *slot.lock().unwrap() = Some(wait);
            Ok(ctx.schedule_wait("end").await)
        }
    })
    .warm_only();
    harness.turn([]);
    drop(harness);
}
