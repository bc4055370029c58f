//! Cold start: from the start of a process to its first step, on a store with many unfinished instances.
//!
//! A first process starts instances that wait for an event, and ends. Later ones open the same store, start one more
//! instance, and measure when its activity runs.

use std::sync::Arc;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, since_epoch_s};
use tokio::sync::Notify;

use super::{until_stopped, waiting_instances};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

async fn greet(ctx: OrchestrationContext, name: String) -> std::result::Result<String, String> {
    ctx.schedule_activity("hello", name).await
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("waiter", waiting_instances::waiter)
        .register("greet", greet)
        .build()
}

pub(super) async fn prepare(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let activities = ActivityRegistry::builder().build();
    let bench = BenchRuntime::start(request, activities, orchestrations()).await?;
    let waiting = waiting_instances::start(&bench, request).await?;
    let stopped = waiting < request.size("instances")?;
    bench.stop().await;
    Ok(MeasureReply::Measured { figures: Figures::of([("waiting", waiting as f64)]), stopped })
}

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let first_step = Arc::new(Notify::new());
    let done = Arc::clone(&first_step);
    let hello = move |_: ActivityContext, name: String| {
        done.notify_one();
        async move { Ok(name) }
    };
    let activities = ActivityRegistry::builder().register("hello", hello).build();
    let bench = BenchRuntime::start(request, activities, orchestrations()).await?;
    let opened_s = since_epoch_s() - request.began_s;
    let id = format!("greeting-{}", request.began_s);
    bench.client.start_orchestration(id, "greet", "world").await?;
    let ended = until_stopped(request, first_step.notified()).await;
    let first_step_s = since_epoch_s() - request.began_s;
    let figures = Figures::of([("first_step_s", first_step_s), ("opened_s", opened_s)]);
    bench.stop().await;
    Ok(MeasureReply::Measured { figures, stopped: ended.is_none() })
}
