//! Chain: one instance, sequential no-op activities.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, median};

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

/// What one instance did.
pub(super) struct ChainRun {
    /// From each activity to the next.
    pub(super) step_seconds: Vec<f64>,
    pub(super) stopped: bool,
    /// Commits of the store per step, where the store counts them.
    commits_per_step: Option<f64>,
}

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let run = run(request, request.size("steps")?).await?;
    let mut figures = Figures::of([("step_s", median(&run.step_seconds)?)]);
    if let Some(commits) = run.commits_per_step {
        figures.set("commits_per_step", commits);
    }
    Ok(MeasureReply::Measured { figures, stopped: run.stopped })
}

/// Runs one instance with this many sequential activities.
pub(super) async fn run(request: &MeasureRequest, steps: u64) -> BenchResult<ChainRun> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let step = move |_: ActivityContext, input: String| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        async move { Ok(input) }
    };
    let chain = |ctx: OrchestrationContext, steps: u64| async move {
        for step in 0..steps {
            ctx.schedule_activity("step", step.to_string()).await?;
        }
        Ok(steps)
    };
    let activities = ActivityRegistry::builder().register("step", step).build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("chain", chain).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;

    let commits_before = bench.commit_count();
    bench.client.start_orchestration_typed("chain-1", "chain", steps).await?;
    let wait = bench.client.wait_for_orchestration_typed::<u64>("chain-1", WAIT_MAX);
    let ended = until_stopped(request, wait).await;
    let commits_per_step = commits_before
        .zip(bench.commit_count())
        .map(|(before, after)| (after - before) as f64 / steps as f64);
    let stopped = ended.is_none();
    if let Some(result) = ended {
        result??;
        bench.stop().await;
    }

    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    if !stopped && times.len() as u64 != steps {
        return Err(format!("{} activities ran, {steps} should have", times.len()).into());
    }
    let step_seconds =
        times.iter().zip(times.iter().skip(1)).map(|(one, next)| (*next - *one).as_secs_f64()).collect();
    Ok(ChainRun { step_seconds, stopped, commits_per_step })
}
