//! Messages: one instance that receives many messages, which many clients send at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};
use tokio::task::JoinSet;

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{OrchestrationContext, OrchestrationRegistry};

/// How many tasks send.
const SENDERS: u64 = 50;

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let messages = request.size("messages")?;
    // The most messages that a turn has received: a replay counts from the beginning.
    let received = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&received);
    let inbox = move |ctx: OrchestrationContext, messages: u64| {
        let counter = Arc::clone(&counter);
        async move {
            for number in 1..=messages {
                ctx.dequeue_event("inbox").await;
                counter.fetch_max(number, Ordering::Relaxed);
            }
            Ok(messages)
        }
    };
    let activities = ActivityRegistry::builder().build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("inbox", inbox).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;

    let began = Instant::now();
    let ended = until_stopped(request, send_all(&bench, messages)).await;
    let elapsed_s = began.elapsed().as_secs_f64();
    let stopped = ended.is_none();
    if let Some(result) = ended {
        result?;
        bench.stop().await;
    }
    let figures = Figures::of_rate(received.load(Ordering::Relaxed), messages, elapsed_s)?;
    Ok(MeasureReply::Measured { figures, stopped })
}

/// Starts the instance, sends it all messages and waits for its end.
async fn send_all(bench: &BenchRuntime, messages: u64) -> BenchResult<()> {
    bench.client.start_orchestration_typed("inbox-1", "inbox", messages).await?;
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let client = bench.client.clone();
        senders.spawn(async move {
            for number in (sender..messages).step_by(SENDERS as usize) {
                client.enqueue_event("inbox-1", "inbox", number.to_string()).await?;
            }
            BenchResult::Ok(())
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    bench.client.wait_for_orchestration_typed::<u64>("inbox-1", WAIT_MAX).await??;
    Ok(())
}
