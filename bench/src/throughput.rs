//! Throughput: many instances at the same time.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::bench_runtime::BenchRuntime;
use crate::figures::Figures;
use crate::report::Verdict;

const INSTANCES: u32 = 1_000;
const ACTIVITIES_EACH: u32 = 5;
const SHARE_OF_BARE_ROWS: f64 = 0.01;

async fn five_steps(ctx: OrchestrationContext, _: String) -> std::result::Result<String, String> {
    for step in 0..ACTIVITIES_EACH {
        ctx.schedule_activity("step", step.to_string()).await?;
    }
    Ok(String::new())
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let step = |_: ActivityContext, input: String| async move { Ok(input) };
    let activities = ActivityRegistry::builder().register("step", step).build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register("five_steps", five_steps).build_result()?;
    let bench = BenchRuntime::start(&folder, activities, orchestrations).await?;

    // From the first start to the last result, measured by the client.
    let began = Instant::now();
    let mut runs = JoinSet::new();
    for number in 0..INSTANCES {
        let client = bench.client.clone();
        runs.spawn(async move {
            let id = format!("run-{number}");
            client.start_orchestration(&id, "five_steps", "").await?;
            client.wait_for_orchestration_typed::<String>(&id, Duration::from_secs(300)).await
        });
    }
    while let Some(run) = runs.join_next().await {
        run???;
    }
    let seconds = began.elapsed().as_secs_f64();
    bench.stop().await;
    Ok(Figures::of([("activities_per_s", f64::from(INSTANCES * ACTIVITIES_EACH) / seconds)]))
}

pub(crate) fn judge(figures: &Figures, bare: &BareDisk) -> Result<Verdict> {
    let activities_per_s = figures.get("activities_per_s")?;
    let bar = SHARE_OF_BARE_ROWS * bare.rows_per_s;
    let percent = 100.0 * activities_per_s / bare.rows_per_s;
    Ok(Verdict {
        figure: format!("{activities_per_s:.0} activities/s = {percent:.2} % of bare rows/s"),
        bar: format!("at least {bar:.0}/s ({} % of bare rows/s)", 100.0 * SHARE_OF_BARE_ROWS),
        pass: activities_per_s >= bar,
    })
}
