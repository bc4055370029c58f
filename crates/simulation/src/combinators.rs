//! Steps that wait for several calls by something that relies on wakers.

use everturn::{BackoffStrategy, DurableFuture, OrchestrationContext, RetryPolicy};
use futures::channel::mpsc;
use futures::future::{FutureExt, join_all, ready, select_all};
use futures::stream::{self, FuturesUnordered, StreamExt};

use crate::interpreter::{BACKOFF, result_text};
use crate::names;
use crate::program::Combinator;

/// How many futures a `join_all` has; the combinator looks at them one by one only above 30.
const JOINED: u32 = 1_000;

/// Makes `width` calls, of which every third fails, and waits for them all.
pub(crate) async fn combine(ctx: &OrchestrationContext, key: &str, by: Combinator, width: u32) -> String {
    let call = |n| numbered(ctx, key, n);
    let mut results: Vec<String> = match by {
        Combinator::JoinAll => {
            let calls = (0..width).map(|n| call(n).boxed());
            let others = (width..JOINED).map(|_| ready(String::new()).boxed());
            let mut results = join_all(calls.chain(others)).await;
            results.retain(|result| !result.is_empty());
            return results.join(",");
        }
        Combinator::Unordered => (0..width).map(call).collect::<FuturesUnordered<_>>().collect().await,
        Combinator::Buffered => stream::iter(0..width).map(call).buffer_unordered(2).collect().await,
        Combinator::SelectAll => {
            let (mut left, mut results) = ((0..width).map(call).collect::<Vec<_>>(), Vec::new());
            while !left.is_empty() {
                let (result, _, rest) = select_all(left).await;
                results.push(result);
                left = rest;
            }
            results
        }
        Combinator::TokioJoin => {
            let middle = width / 2;
            let (mut first, second) =
                tokio::join!(one_by_one(ctx, key, 0, middle), one_by_one(ctx, key, middle, width));
            first.extend(second);
            return first.join(",");
        }
        Combinator::Channel => return through_a_channel(ctx, key, width).await,
        Combinator::Retries => return retries(ctx, key, width).await,
        Combinator::GivenUpRead => return give_up_a_read(ctx, key).await,
    };
    // Only history knows in which order they ended.
    results.sort_by_key(|result| position_of(result));
    results.join(",")
}

fn numbered(ctx: &OrchestrationContext, key: &str, n: u32) -> DurableFuture<String> {
    let activity = if n % 3 == 2 { names::FAIL } else { names::ECHO };
    ctx.schedule_activity(activity, format!("{key}#{n}")).map(result_text)
}

/// The number in the result of a numbered call.
fn position_of(result: &str) -> u32 {
    let number = result.rsplit('#').next().unwrap_or_default();
    number.trim_end_matches(')').parse().unwrap_or(u32::MAX)
}

async fn one_by_one(ctx: &OrchestrationContext, key: &str, from: u32, to: u32) -> Vec<String> {
    let mut results = Vec::new();
    for n in from..to {
        results.push(numbered(ctx, key, n).await);
    }
    results
}

async fn through_a_channel(ctx: &OrchestrationContext, key: &str, width: u32) -> String {
    let (sender, receiver) = mpsc::unbounded();
    let sends = async move {
        for n in 0..width {
            if sender.unbounded_send(numbered(ctx, key, n).await).is_err() {
                break;
            }
        }
    };
    let (received, ()) = ctx.join2(receiver.collect::<Vec<_>>(), sends).await;
    received.join(",")
}

/// Retried calls, every second of which fails once.
async fn retries(ctx: &OrchestrationContext, key: &str, width: u32) -> String {
    let policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::Fixed { delay: BACKOFF });
    let calls = (0..width).map(|n| {
        let input = format!("{key}#{n} {}", n % 2);
        ctx.schedule_activity_with_retry(names::FLAKY, input, policy.clone())
    });
    let calls: Vec<_> = calls.collect();
    let mut results = Vec::new();
    for call in calls {
        results.push(result_text(call.await));
    }
    results.join(",")
}

/// The message goes to the first read or, once that is given up, to the second.
async fn give_up_a_read(ctx: &OrchestrationContext, key: &str) -> String {
    let (given_up, kept) = (ctx.dequeue_event(key), ctx.dequeue_event(key));
    let gives_up = async {
        let result = result_text(ctx.schedule_activity(names::ECHO, key).await);
        drop(given_up);
        result
    };
    let (message, result) = ctx.join2(kept, gives_up).await;
    format!("{key}: {message} {result}")
}
