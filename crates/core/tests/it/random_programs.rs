//! Small random orchestrations: every kind of call, races that drop the loser, races that keep it, joins, combinators that
//! rely on wakers, and continue-as-new.

use std::pin::Pin;
use std::time::Duration;

use everturn_core::{BackoffStrategy, DurableFuture, OrchestrationContext, RetryPolicy};
use proptest::prelude::*;

use crate::harness::HandlerResult;
use crate::random_combinations::{self, Combination, combinations};

/// The payload limit the programs run under; one of their calls is above it.
pub const MAX_PAYLOAD: usize = 4096;

/// A program is its steps; every execution of the instance runs all of them.
pub type Program = Vec<ProgramStep>;

/// A call with a result.
#[derive(Debug, Clone, Copy)]
pub enum ProgramCall {
    Activity,
    Tagged,
    TooLarge,
    Timer,
    Wait(u8),
    Dequeue(u8),
    Child,
}

#[derive(Debug, Clone)]
pub enum ProgramStep {
    Await(ProgramCall),
    /// The loser is dropped.
    Race(ProgramCall, ProgramCall),
    /// The loser is awaited after the winner.
    RaceKeep(ProgramCall, ProgramCall),
    Race3(ProgramCall, ProgramCall, ProgramCall),
    Join(Vec<ProgramCall>),
    /// Two chains of calls at the same time.
    Chains(Vec<ProgramCall>, Vec<ProgramCall>),
    /// Several calls at once, by the `futures` crate.
    Combined(Combination),
    /// The future is held until `LetGo`, `AwaitHeld` or the end of the program.
    Hold(ProgramCall),
    LetGo,
    AwaitHeld,
    Forget(ProgramCall),
    DropAtOnce(ProgramCall),
    Retry {
        timeout: bool,
    },
    Detached,
    Status(bool),
    Set(u8),
    Clear(u8),
    ClearAll,
    Prune,
    /// Only in the first executions.
    ContinueAsNew,
    Fail,
}

pub fn calls() -> impl Strategy<Value = ProgramCall> {
    prop_oneof![
        4 => Just(ProgramCall::Activity),
        1 => Just(ProgramCall::Tagged),
        1 => Just(ProgramCall::TooLarge),
        2 => Just(ProgramCall::Timer),
        3 => (0..2u8).prop_map(ProgramCall::Wait),
        4 => (0..2u8).prop_map(ProgramCall::Dequeue),
        2 => Just(ProgramCall::Child),
    ]
}

fn steps() -> impl Strategy<Value = ProgramStep> {
    let chain = || prop::collection::vec(calls(), 1..4);
    prop_oneof![
        4 => calls().prop_map(ProgramStep::Await),
        4 => (calls(), calls()).prop_map(|(a, b)| ProgramStep::Race(a, b)),
        3 => (calls(), calls()).prop_map(|(a, b)| ProgramStep::RaceKeep(a, b)),
        2 => (calls(), calls(), calls()).prop_map(|(a, b, c)| ProgramStep::Race3(a, b, c)),
        3 => prop::collection::vec(calls(), 0..4).prop_map(ProgramStep::Join),
        3 => (chain(), chain()).prop_map(|(a, b)| ProgramStep::Chains(a, b)),
        8 => combinations().prop_map(ProgramStep::Combined),
        4 => calls().prop_map(ProgramStep::Hold),
        2 => Just(ProgramStep::LetGo),
        2 => Just(ProgramStep::AwaitHeld),
        1 => calls().prop_map(ProgramStep::Forget),
        2 => calls().prop_map(ProgramStep::DropAtOnce),
        1 => any::<bool>().prop_map(|timeout| ProgramStep::Retry { timeout }),
        1 => Just(ProgramStep::Detached),
        1 => any::<bool>().prop_map(ProgramStep::Status),
        2 => (0..3u8).prop_map(ProgramStep::Set),
        1 => (0..3u8).prop_map(ProgramStep::Clear),
        1 => Just(ProgramStep::ClearAll),
        1 => Just(ProgramStep::Prune),
        1 => Just(ProgramStep::ContinueAsNew),
        1 => Just(ProgramStep::Fail),
    ]
}

pub fn programs() -> impl Strategy<Value = Program> {
    prop::collection::vec(steps(), 1..9)
}

pub fn make(ctx: &OrchestrationContext, call: ProgramCall, label: &str) -> DurableFuture<String> {
    let text = |result: HandlerResult| result.unwrap_or_else(|error| format!("error {error}"));
    match call {
        ProgramCall::Activity => ctx.schedule_activity("A", label).map(text),
        ProgramCall::Tagged => ctx.schedule_activity_on_session("T", label, "s").with_tag("t").map(text),
        ProgramCall::TooLarge => ctx.schedule_activity("L", "x".repeat(MAX_PAYLOAD + 1)).map(text),
        ProgramCall::Timer => ctx.schedule_timer(Duration::from_millis(5)).map(|()| "fired".to_owned()),
        ProgramCall::Wait(name) => ctx.schedule_wait(format!("s{name}")),
        ProgramCall::Dequeue(name) => ctx.dequeue_event(format!("q{name}")),
        ProgramCall::Child => ctx.schedule_sub_orchestration("C", label).map(text),
    }
}

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub fn chain<'a>(
    ctx: &'a OrchestrationContext,
    calls: &'a [ProgramCall],
    label: &'a str,
) -> Boxed<'a, String> {
    Box::pin(async move {
        let mut last = label.to_owned();
        for call in calls {
            last = make(ctx, *call, &last).await;
        }
        last
    })
}

/// Runs the program. The result of a step labels the next step, so that a wrong delivery shows up in the history.
pub async fn run(program: Program, ctx: OrchestrationContext, input: String) -> HandlerResult {
    let round: u32 = input.parse().unwrap_or(9);
    let mut held: Vec<DurableFuture<String>> = vec![];
    let mut label = format!("{round}:");
    for step in &program {
        match step {
            ProgramStep::Hold(call) => held.push(make(&ctx, *call, &label)),
            ProgramStep::LetGo => drop(held.pop()),
            ProgramStep::AwaitHeld => {
                if let Some(future) = held.pop() {
                    label = future.await;
                }
            }
            ProgramStep::ContinueAsNew if round < 2 => {
                return ctx.continue_as_new((round + 1).to_string()).await;
            }
            ProgramStep::Fail if round == 2 => return Err(label),
            ProgramStep::Detached
            | ProgramStep::Status(_)
            | ProgramStep::Set(_)
            | ProgramStep::Clear(_)
            | ProgramStep::ClearAll
            | ProgramStep::Prune => {
                note(&ctx, step, &label);
            }
            other => {
                if let Some(learnt) = wait(&ctx, other, &label).await {
                    label = learnt;
                }
            }
        }
        label.truncate(60);
    }
    Ok(format!("{label} {:?} {:?}", ctx.get_kv_all_keys(), ctx.get_custom_status()))
}

/// Runs a step that does not wait.
fn note(ctx: &OrchestrationContext, step: &ProgramStep, label: &str) {
    match step {
        ProgramStep::Detached => {
            ctx.schedule_orchestration("D", format!("d-{label}").replace(':', "-"), label)
        }
        ProgramStep::Status(true) => ctx.set_custom_status(label),
        ProgramStep::Status(false) => ctx.reset_custom_status(),
        ProgramStep::Set(key) => {
            let before = ctx.get_kv_value(&format!("k{key}")).map_or(0, |value| value.len());
            ctx.set_kv_value(format!("k{key}"), format!("{before} {label}"));
        }
        ProgramStep::Clear(key) => ctx.clear_kv_value(format!("k{key}")),
        ProgramStep::ClearAll => ctx.clear_all_kv_values(),
        ProgramStep::Prune => {
            let pruned = ctx.prune_kv_values_updated_before(2_000_001);
            ctx.set_kv_value("pruned", pruned.to_string());
        }
        _ => {}
    }
}

/// Runs a step that may wait; its result.
async fn wait(ctx: &OrchestrationContext, step: &ProgramStep, label: &str) -> Option<String> {
    let future = |call: &ProgramCall, name: &str| make(ctx, *call, &format!("{label}{name}"));
    match step {
        ProgramStep::Await(call) => Some(future(call, "").await),
        ProgramStep::Race(a, b) => Some(format!("{:?}", ctx.select2(future(a, "a"), future(b, "b")).await)),
        ProgramStep::RaceKeep(a, b) => {
            let (mut first, mut second) = (future(a, "a"), future(b, "b"));
            let (winner, value) = ctx.select2(&mut first, &mut second).await.into_tuple();
            ctx.set_kv_value("winner", value.clone());
            let loser = if winner == 0 { second.await } else { first.await };
            Some(format!("{winner} {value} {loser}"))
        }
        ProgramStep::Race3(a, b, c) => {
            let race = ctx.select3(future(a, "a"), future(b, "b"), future(c, "c")).await;
            Some(format!("{race:?}"))
        }
        ProgramStep::Join(calls) => {
            let futures = calls.iter().map(|call| future(call, "j")).collect();
            Some(ctx.join(futures).await.join(","))
        }
        ProgramStep::Chains(a, b) => {
            let (a, b) = ctx.join2(chain(ctx, a, label), chain(ctx, b, label)).await;
            Some(format!("{a}|{b}"))
        }
        ProgramStep::Combined(combination) => Some(random_combinations::run(ctx, combination, label).await),
        ProgramStep::Retry { timeout } => {
            let mut policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
            if *timeout {
                policy = policy.with_timeout(Duration::from_millis(9));
            }
            Some(format!("{:?}", ctx.schedule_activity_with_retry("R", label, policy).await))
        }
        ProgramStep::Forget(call) => {
            std::mem::forget(future(call, "f"));
            None
        }
        ProgramStep::DropAtOnce(call) => {
            drop(future(call, "x"));
            None
        }
        _ => None,
    }
}
