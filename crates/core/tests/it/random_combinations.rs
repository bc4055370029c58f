//! Random uses of the `futures` crate, of `tokio::join!` and of code that wakes itself, as steps of random programs.

use everturn_core::{BackoffStrategy, OrchestrationContext, RetryPolicy};
use futures::channel::mpsc;
use futures::future::{FutureExt, join_all, ready, select_all};
use futures::stream::{self, FuturesUnordered, StreamExt};
use proptest::prelude::*;

use crate::harness::yields;
use crate::random_programs::{ProgramCall, calls, chain, make};

/// How many futures a `join_all` of a random program has; most of them are ready at once.
const JOINED: usize = 1000;

/// Several calls at once, waited for by something that relies on wakers.
#[derive(Debug, Clone)]
pub enum Combination {
    JoinAll(Vec<ProgramCall>),
    Unordered(Vec<ProgramCall>),
    /// So many calls at once.
    Buffered(Vec<ProgramCall>, usize),
    /// The rest is dropped after so many winners.
    SelectAll(Vec<ProgramCall>, usize),
    TokioJoin(Vec<ProgramCall>, Vec<ProgramCall>),
    /// A branch that wakes itself so often before each call, beside another.
    Yielding(usize, Vec<ProgramCall>, ProgramCall),
    /// A branch gives up the first of two reads, after a call, in a poll in which the second was polled already.
    GiveUpRead(u8, ProgramCall),
    /// Results travel through a channel to a branch that is polled first.
    Channel(Vec<ProgramCall>),
    /// Two retried calls, made before the first is awaited.
    Retries,
}

pub fn combinations() -> impl Strategy<Value = Combination> {
    let some = || prop::collection::vec(calls(), 1..5);
    prop_oneof![
        2 => some().prop_map(Combination::JoinAll),
        3 => some().prop_map(Combination::Unordered),
        3 => (some(), 1..4usize).prop_map(|(calls, at_once)| Combination::Buffered(calls, at_once)),
        3 => (some(), 1..5usize).prop_map(|(calls, winners)| Combination::SelectAll(calls, winners)),
        3 => (some(), some()).prop_map(|(a, b)| Combination::TokioJoin(a, b)),
        3 => (1..4usize, some(), calls()).prop_map(|(times, a, b)| Combination::Yielding(times, a, b)),
        3 => ((0..2u8), calls()).prop_map(|(queue, call)| Combination::GiveUpRead(queue, call)),
        2 => some().prop_map(Combination::Channel),
        1 => Just(Combination::Retries),
    ]
}

/// Runs the combination; its result tells the order in which things came.
pub async fn run(ctx: &OrchestrationContext, combination: &Combination, label: &str) -> String {
    let call = |(n, call): (usize, &ProgramCall)| make(ctx, *call, &format!("{label}{n}"));
    match combination {
        Combination::JoinAll(calls) => {
            let made = calls.iter().enumerate().map(|numbered| call(numbered).boxed());
            let others = (calls.len()..JOINED).map(|_| ready(String::new()).boxed());
            join_all(made.chain(others)).await.concat()
        }
        Combination::Unordered(calls) => {
            let mut made: FuturesUnordered<_> = calls.iter().enumerate().map(call).collect();
            let mut seen = String::new();
            while let Some(value) = made.next().await {
                ctx.set_kv_value("seen", value.clone());
                seen += &value;
            }
            seen
        }
        Combination::Buffered(calls, at_once) => {
            let made = stream::iter(calls.iter().enumerate()).map(call);
            made.buffer_unordered(*at_once).collect::<Vec<_>>().await.concat()
        }
        Combination::SelectAll(calls, winners) => {
            let mut left: Vec<_> = calls.iter().enumerate().map(call).collect();
            let mut seen = String::new();
            for _ in 0..*winners {
                if left.is_empty() {
                    break;
                }
                let (value, index, rest) = select_all(left).await;
                seen += &format!("{value}@{index}");
                left = rest;
            }
            seen
        }
        Combination::TokioJoin(a, b) => {
            let (a, b, c) = tokio::join!(chain(ctx, a, label), chain(ctx, b, label), yields(1));
            format!("{a}|{b}{c:?}")
        }
        Combination::Yielding(times, calls, beside) => {
            let yielding = async {
                let mut last = label.to_owned();
                for step in calls {
                    yields(*times).await;
                    last = make(ctx, *step, &last).await;
                }
                last
            };
            let (a, b) = ctx.join2(yielding, make(ctx, *beside, label)).await;
            format!("{a}|{b}")
        }
        Combination::GiveUpRead(..) | Combination::Channel(_) | Combination::Retries => {
            between_branches(ctx, combination, label).await
        }
    }
}

/// Combinations in which one branch of the code makes another ready.
async fn between_branches(ctx: &OrchestrationContext, combination: &Combination, label: &str) -> String {
    match combination {
        Combination::GiveUpRead(queue, call) => {
            let name = format!("q{queue}");
            let (given_up, kept) = (ctx.dequeue_event(&name), ctx.dequeue_event(&name));
            let gives_up = async {
                let value = make(ctx, *call, label).await;
                drop(given_up);
                value
            };
            let (message, value) = ctx.join2(kept, gives_up).await;
            format!("{message}{value}")
        }
        Combination::Channel(calls) => {
            let (sender, receiver) = mpsc::unbounded();
            let sends = async move {
                for call in calls {
                    // The receiver lives as long as this branch.
                    let _ = sender.unbounded_send(make(ctx, *call, label).await);
                }
            };
            let (received, ()) = ctx.join2(receiver.collect::<Vec<_>>(), sends).await;
            received.concat()
        }
        _ => {
            let policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
            let first = ctx.schedule_activity_with_retry("R", label, policy.clone());
            let second = ctx.schedule_activity_with_retry("S", label, policy);
            format!("{:?} {:?}", first.await, second.await)
        }
    }
}
