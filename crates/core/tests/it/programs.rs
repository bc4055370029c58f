//! Small random orchestrations: every kind of call, races that drop and races that keep, joins, and continue-as-new.

use std::pin::Pin;
use std::time::Duration;

use everturn_core::{BackoffStrategy, DurableFuture, OrchestrationContext, RetryPolicy};
use proptest::prelude::*;

use crate::stage::Answer;

/// The payload limit the programs run under; one of their calls is above it.
pub const MAX_PAYLOAD: usize = 4096;

/// A program is its steps; every execution of the instance runs all of them.
pub type Program = Vec<Step>;

/// A call with a result.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Activity,
    Tagged,
    TooLarge,
    Timer,
    Wait(u8),
    Dequeue(u8),
    Child,
}

#[derive(Debug, Clone)]
pub enum Step {
    Await(Call),
    /// The loser is dropped.
    Race(Call, Call),
    /// The loser is awaited after the winner.
    RaceKeep(Call, Call),
    Race3(Call, Call, Call),
    Join(Vec<Call>),
    /// Two chains of calls beside each other.
    Chains(Vec<Call>, Vec<Call>),
    /// Asked for and held until it is let go, or the program ends.
    Hold(Call),
    LetGo,
    AwaitHeld,
    Forget(Call),
    DropAtOnce(Call),
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

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => Just(Call::Activity),
        1 => Just(Call::Tagged),
        1 => Just(Call::TooLarge),
        2 => Just(Call::Timer),
        3 => (0..2u8).prop_map(Call::Wait),
        4 => (0..2u8).prop_map(Call::Dequeue),
        2 => Just(Call::Child),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let chain = || prop::collection::vec(calls(), 1..4);
    prop_oneof![
        4 => calls().prop_map(Step::Await),
        4 => (calls(), calls()).prop_map(|(a, b)| Step::Race(a, b)),
        3 => (calls(), calls()).prop_map(|(a, b)| Step::RaceKeep(a, b)),
        2 => (calls(), calls(), calls()).prop_map(|(a, b, c)| Step::Race3(a, b, c)),
        3 => prop::collection::vec(calls(), 0..4).prop_map(Step::Join),
        3 => (chain(), chain()).prop_map(|(a, b)| Step::Chains(a, b)),
        4 => calls().prop_map(Step::Hold),
        2 => Just(Step::LetGo),
        2 => Just(Step::AwaitHeld),
        1 => calls().prop_map(Step::Forget),
        2 => calls().prop_map(Step::DropAtOnce),
        1 => any::<bool>().prop_map(|timeout| Step::Retry { timeout }),
        1 => Just(Step::Detached),
        1 => any::<bool>().prop_map(Step::Status),
        2 => (0..3u8).prop_map(Step::Set),
        1 => (0..3u8).prop_map(Step::Clear),
        1 => Just(Step::ClearAll),
        1 => Just(Step::Prune),
        1 => Just(Step::ContinueAsNew),
        1 => Just(Step::Fail),
    ]
}

pub fn programs() -> impl Strategy<Value = Program> {
    prop::collection::vec(steps(), 1..9)
}

fn make(ctx: &OrchestrationContext, call: Call, label: &str) -> DurableFuture<String> {
    let text = |result: Answer| result.unwrap_or_else(|error| format!("error {error}"));
    match call {
        Call::Activity => ctx.schedule_activity("A", label).map(text),
        Call::Tagged => ctx.schedule_activity_on_session("T", label, "s").with_tag("t").map(text),
        Call::TooLarge => ctx.schedule_activity("L", "x".repeat(MAX_PAYLOAD + 1)).map(text),
        Call::Timer => ctx.schedule_timer(Duration::from_millis(5)).map(|()| "fired".to_owned()),
        Call::Wait(name) => ctx.schedule_wait(format!("s{name}")),
        Call::Dequeue(name) => ctx.dequeue_event(format!("q{name}")),
        Call::Child => ctx.schedule_sub_orchestration("C", label).map(text),
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

fn chain<'a>(ctx: &'a OrchestrationContext, calls: &'a [Call], label: &'a str) -> Boxed<'a, String> {
    Box::pin(async move {
        let mut last = label.to_owned();
        for call in calls {
            last = make(ctx, *call, &last).await;
        }
        last
    })
}

/// Runs the program. What a step learns labels the next one, so that a wrong delivery shows up in the history.
pub async fn run(program: Program, ctx: OrchestrationContext, input: String) -> Answer {
    let round: u32 = input.parse().unwrap_or(9);
    let mut held: Vec<DurableFuture<String>> = vec![];
    let mut label = format!("{round}:");
    for step in &program {
        match step {
            Step::Hold(call) => held.push(make(&ctx, *call, &label)),
            Step::LetGo => drop(held.pop()),
            Step::AwaitHeld => {
                if let Some(future) = held.pop() {
                    label = future.await;
                }
            }
            Step::ContinueAsNew if round < 2 => {
                return ctx.continue_as_new((round + 1).to_string()).await;
            }
            Step::Fail if round == 2 => return Err(label),
            Step::Detached
            | Step::Status(_)
            | Step::Set(_)
            | Step::Clear(_)
            | Step::ClearAll
            | Step::Prune => {
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

/// Steps that end at once.
fn note(ctx: &OrchestrationContext, step: &Step, label: &str) {
    match step {
        Step::Detached => ctx.schedule_orchestration("D", format!("d-{label}").replace(':', "-"), label),
        Step::Status(true) => ctx.set_custom_status(label),
        Step::Status(false) => ctx.reset_custom_status(),
        Step::Set(key) => {
            let before = ctx.get_kv_value(&format!("k{key}")).map_or(0, |value| value.len());
            ctx.set_kv_value(format!("k{key}"), format!("{before} {label}"));
        }
        Step::Clear(key) => ctx.clear_kv_value(format!("k{key}")),
        Step::ClearAll => ctx.clear_all_kv_values(),
        Step::Prune => {
            let pruned = ctx.prune_kv_values_updated_before(2_000_001);
            ctx.set_kv_value("pruned", pruned.to_string());
        }
        _ => {}
    }
}

/// Steps that may wait; what they learn.
async fn wait(ctx: &OrchestrationContext, step: &Step, label: &str) -> Option<String> {
    let future = |call: &Call, name: &str| make(ctx, *call, &format!("{label}{name}"));
    match step {
        Step::Await(call) => Some(future(call, "").await),
        Step::Race(a, b) => Some(format!("{:?}", ctx.select2(future(a, "a"), future(b, "b")).await)),
        Step::RaceKeep(a, b) => {
            let (mut first, mut second) = (future(a, "a"), future(b, "b"));
            let (winner, value) = ctx.select2(&mut first, &mut second).await.into_tuple();
            ctx.set_kv_value("winner", value.clone());
            let loser = if winner == 0 { second.await } else { first.await };
            Some(format!("{winner} {value} {loser}"))
        }
        Step::Race3(a, b, c) => {
            let race = ctx.select3(future(a, "a"), future(b, "b"), future(c, "c")).await;
            Some(format!("{race:?}"))
        }
        Step::Join(calls) => {
            let futures = calls.iter().map(|call| future(call, "j")).collect();
            Some(ctx.join(futures).await.join(","))
        }
        Step::Chains(a, b) => {
            let (a, b) = ctx.join2(chain(ctx, a, label), chain(ctx, b, label)).await;
            Some(format!("{a}|{b}"))
        }
        Step::Retry { timeout } => {
            let mut policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
            if *timeout {
                policy = policy.with_timeout(Duration::from_millis(9));
            }
            Some(format!("{:?}", ctx.schedule_activity_with_retry("R", label, policy).await))
        }
        Step::Forget(call) => {
            std::mem::forget(future(call, "f"));
            None
        }
        Step::DropAtOnce(call) => {
            drop(future(call, "x"));
            None
        }
        _ => None,
    }
}
