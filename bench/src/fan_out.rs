//! Fan-out: one instance, many activities at the same time, one join.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::bench_runtime::BenchRuntime;
use crate::figures::Figures;
use crate::report::{Verdict, ms};

const ACTIVITIES: u32 = 1_000;
const BAR_S: f64 = 0.5;

async fn fan_out(ctx: OrchestrationContext, activities: u32) -> std::result::Result<usize, String> {
    let branches =
        (0..activities).map(|branch| ctx.schedule_activity("branch", branch.to_string())).collect();
    let results: std::result::Result<Vec<String>, String> = ctx.join(branches).await.into_iter().collect();
    results.map(|results| results.len())
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let branch = |_: ActivityContext, input: String| async move { Ok(input) };
    let activities = ActivityRegistry::builder().register("branch", branch).build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("fan_out", fan_out).build_result()?;
    let bench = BenchRuntime::start(&folder, activities, orchestrations).await?;

    let began = Instant::now();
    bench.client.start_orchestration_typed("fan-1", "fan_out", ACTIVITIES).await?;
    let results: u32 = bench.client.wait_for_orchestration_typed("fan-1", Duration::from_secs(60)).await??;
    let seconds = began.elapsed().as_secs_f64();
    bench.stop().await;
    if results != ACTIVITIES {
        return Err(format!("{results} results of {ACTIVITIES} activities").into());
    }
    Ok(Figures::of([("seconds", seconds)]))
}

pub(crate) fn judge(figures: &Figures, _: &BareDisk) -> Result<Verdict> {
    let seconds = figures.get("seconds")?;
    Ok(Verdict {
        figure: format!("{} from start to result", ms(seconds)),
        bar: format!("at most {}", ms(BAR_S)),
        pass: seconds <= BAR_S,
    })
}
