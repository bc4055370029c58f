//! Throughput: many instances at the same time, with small or large payloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, payload, written_bytes};
use tokio::task::JoinSet;

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let (instances, each) = (request.size("instances")?, request.size("activities")?);
    let payload = payload(request.size_or_zero("payload_bytes"));
    let ran = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&ran);
    let step = move |_: ActivityContext, input: String| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { Ok(input) }
    };
    let steps = move |ctx: OrchestrationContext, input: String| async move {
        for _ in 0..each {
            ctx.schedule_activity("step", input.clone()).await?;
        }
        Ok(String::new())
    };
    let activities = ActivityRegistry::builder().register("step", step).build();
    let orchestrations = OrchestrationRegistry::builder().register("steps", steps).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;

    let log = bench.keep_log(request.size_or_zero("keep_log") > 0)?;
    // From the first start to the last result, as clients see it.
    let written_before = written_bytes(None)?;
    let commits_before = bench.commit_count();
    let began = Instant::now();
    let ended = until_stopped(request, run_all(&bench, instances, &payload)).await;
    let seconds = began.elapsed().as_secs_f64();
    let ran = ran.load(Ordering::Relaxed) as f64;
    if ran < 1.0 {
        return Err("it was stopped before anything was done".into());
    }
    let written = written_bytes(None)? - written_before;
    let mut figures =
        Figures::of([("activities_per_s", ran / seconds), ("written_bytes_per_step", written / ran)]);
    if let Some((before, after)) = commits_before.zip(bench.commit_count()) {
        figures.set("steps_per_commit", ran / ((after - before) as f64).max(1.0));
    }
    if let Some(bytes) = log.map(|log| log.bytes()).transpose()? {
        figures.set("log_bytes_per_step", bytes / ran);
    }
    let stopped = ended.is_none();
    if let Some(result) = ended {
        result?;
        bench.stop().await;
    }
    Ok(MeasureReply::Measured { figures, stopped })
}

async fn run_all(bench: &BenchRuntime, instances: u64, payload: &str) -> BenchResult<()> {
    let mut runs = JoinSet::new();
    for number in 0..instances {
        let (client, payload) = (bench.client.clone(), payload.to_owned());
        runs.spawn(async move {
            let id = format!("run-{number}");
            client.start_orchestration(&id, "steps", payload).await?;
            client.wait_for_orchestration_typed::<String>(&id, WAIT_MAX).await
        });
    }
    while let Some(run) = runs.join_next().await {
        run???;
    }
    Ok(())
}
