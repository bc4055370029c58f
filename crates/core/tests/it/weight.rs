//! The estimated weight of an execution: what it holds, not what went through it.

use everturn_core::OrchestrationContext;
use everturn_core::turn::Execution;

use crate::harness::{
    HandlerResult, Harness, HarnessClock, activity_completed, queue_message, signal, started,
};

const MIB: usize = 1024 * 1024;

/// An execution of this code, kept in memory.
fn execution<F, Fut>(code: F) -> Execution
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    let mut execution = Harness::new(code).replayed();
    execution.take_turn(vec![], &HarnessClock::of_turn(1));
    execution
}

/// By how much the weight grows in a turn with these messages.
fn growth<const N: usize>(execution: &mut Execution, messages: [everturn_core::WorkItem; N]) -> i64 {
    let before = execution.weight_bytes() as i64;
    execution.take_turn(messages.to_vec(), &HarnessClock::of_turn(2));
    execution.weight_bytes() as i64 - before
}

/// Code that reads a message, forgets it, and reads the next.
async fn forgetful(ctx: OrchestrationContext, _: String) -> HandlerResult {
    loop {
        ctx.dequeue_event("q").await;
        ctx.schedule_activity("A", "").await?;
    }
}

/// Two turns of [`forgetful`] with this payload.
fn forget(execution: &mut Execution, round: u64, payload: &str) {
    execution.take_turn(vec![queue_message("q", payload)], &HarnessClock::of_turn(2));
    execution.take_turn(vec![activity_completed(4 * round + 4, payload)], &HarnessClock::of_turn(2));
}

#[test]
fn payloads_delivered_long_ago_weigh_nothing() {
    let mut execution = execution(forgetful);
    let large = "x".repeat(MIB);
    (0..300).for_each(|round| forget(&mut execution, round, &large));
    let weight = execution.weight_bytes();
    assert!(weight < 40 * MIB, "600 MiB went through it, it weighs {weight} bytes");
    (300..800).for_each(|round| forget(&mut execution, round, ""));
    let weight = execution.weight_bytes();
    assert!(weight < MIB, "the large payloads are long gone, it weighs {weight} bytes");
}

fn weight_of_replayed(mut execution: Execution) -> usize {
    execution.take_turn(vec![], &HarnessClock::of_turn(3));
    execution.weight_bytes()
}

#[test]
fn warm_and_replayed_executions_weigh_the_same() {
    let (mut warm, mut harness) = (execution(forgetful), Harness::new(forgetful));
    harness.turn([]);
    let messages = [
        queue_message("q", &"m".repeat(1000)),
        activity_completed(4, &"r".repeat(500)),
        queue_message("q", "n"),
    ];
    for message in messages {
        warm.take_turn(vec![message.clone()], &HarnessClock::of_turn(2));
        harness.turn([message]);
    }
    assert_eq!(weight_of_replayed(harness.replayed()), warm.weight_bytes());
}

#[test]
fn what_waits_to_be_taken_weighs_until_it_is_taken_or_dropped() {
    let mut execution = execution(|ctx, _| async move {
        let (activity, wait) = (ctx.schedule_activity("A", ""), ctx.schedule_wait("w"));
        ctx.schedule_wait("drop").await;
        drop((activity, wait));
        ctx.schedule_wait("never").await;
        Ok(String::new())
    });
    let held =
        growth(&mut execution, [activity_completed(2, &"r".repeat(MIB)), signal("w", &"s".repeat(MIB))]);
    assert!(held >= 2 * MIB as i64, "{held}");
    let freed = growth(&mut execution, [signal("drop", "")]);
    assert!(freed <= -2 * MIB as i64 + 4096, "{freed}");
}

#[test]
fn unread_messages_weigh_until_they_are_read() {
    let mut execution = execution(|ctx, _| async move {
        ctx.schedule_wait("go").await;
        let length = ctx.dequeue_event("q").await.len();
        for _ in 0..length {
            ctx.dequeue_event("small").await;
        }
        Ok(String::new())
    });
    let unread = growth(&mut execution, [queue_message("q", &"m".repeat(MIB))]);
    assert!(unread >= MIB as i64, "{unread}");
    growth(&mut execution, [signal("go", "")]);
    let small: [_; 200] = std::array::from_fn(|_| queue_message("small", ""));
    let read = growth(&mut execution, small);
    assert!(read < -(MIB as i64 - 200 * 1024), "{read}");
}

#[test]
fn key_value_store_status_and_input_weigh() {
    let light = execution(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    let heavy = execution(|ctx, _| async move {
        ctx.set_kv_value("k", "v".repeat(60_000));
        ctx.set_custom_status("s".repeat(60_000));
        Ok(ctx.schedule_wait("w").await)
    });
    assert!(heavy.weight_bytes() >= light.weight_bytes() + 120_000);
    let long_input = "i".repeat(60_000);
    let mut with_input = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) })
        .start_event(|kind| *kind = started(1, &long_input).kind)
        .replayed();
    with_input.take_turn(vec![], &HarnessClock::of_turn(1));
    assert!(with_input.weight_bytes() >= light.weight_bytes() + 59_000);
}

#[test]
fn names_weigh_also_while_no_payload_is_held() {
    let short = execution(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    let long = execution(|ctx, _| async move { Ok(ctx.schedule_wait("w".repeat(1_000)).await) });
    let more = long.weight_bytes() as i64 - short.weight_bytes() as i64;
    assert!(
        (999..2_000).contains(&more),
        "a name of 1,000 bytes instead of one makes a difference of {more}"
    );
}
