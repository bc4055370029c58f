//! Chain: one instance, sequential no-op activities.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::bench_runtime::BenchRuntime;
use crate::figures::{Figures, median};
use crate::report::{Verdict, ms};

const STEPS: u32 = 200;
const BARE_COMMITS_A_STEP: f64 = 6.0;

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let steps = step_seconds(&folder, STEPS).await?;
    Ok(Figures::of([("step_s", median(steps)?)]))
}

pub(crate) fn judge(figures: &Figures, bare: &BareDisk) -> Result<Verdict> {
    let step_s = figures.get("step_s")?;
    let bar_s = BARE_COMMITS_A_STEP * bare.commit_s;
    Ok(Verdict {
        figure: format!("{} a step = {:.1} x a bare commit", ms(step_s), step_s / bare.commit_s),
        bar: format!("at most {} ({BARE_COMMITS_A_STEP} x a bare commit)", ms(bar_s)),
        pass: step_s <= bar_s,
    })
}

/// Runs one instance with this many sequential activities; returns the time from each activity to the next.
pub(crate) async fn step_seconds(folder: &Path, steps: u32) -> Result<Vec<f64>> {
    let times = Arc::new(Mutex::new(Vec::with_capacity(steps as usize)));
    let noted = Arc::clone(&times);
    let step = move |_: ActivityContext, input: String| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        async move { Ok(input) }
    };
    let chain = |ctx: OrchestrationContext, steps: u32| async move {
        for step in 0..steps {
            ctx.schedule_activity("step", step.to_string()).await?;
        }
        Ok(steps)
    };
    let activities = ActivityRegistry::builder().register("step", step).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register_typed("chain", chain).build_result()?;
    let bench = BenchRuntime::start(folder, activities, orchestrations).await?;

    bench.client.start_orchestration_typed("chain-1", "chain", steps).await?;
    let done: u32 = bench.client.wait_for_orchestration_typed("chain-1", Duration::from_secs(600)).await??;
    bench.stop().await;

    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    if done != steps || times.len() != steps as usize {
        return Err(format!("{} activities ran, {steps} should have", times.len()).into());
    }
    Ok(times.iter().zip(times.iter().skip(1)).map(|(one, next)| (*next - *one).as_secs_f64()).collect())
}
