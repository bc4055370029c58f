//! Idle latency: how long the smallest orchestration takes on an idle runtime.
//!
//! The bar applies to rounds without pauses, like the bare commits they are compared with. The report also shows, without
//! a bar, rounds after a pause in which processor and disk become idle, compared with bare commits after the same pause.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use crate::Result;
use crate::bare_disk::{self, BareDisk};
use crate::bench_runtime::BenchRuntime;
use crate::figures::{Figures, median};
use crate::report::{Verdict, ms};

const ROUNDS: usize = 400;
const RESTED_ROUNDS: usize = 100;
const REST: Duration = Duration::from_millis(20);
const BARE_COMMITS: f64 = 12.0;

async fn greet(ctx: OrchestrationContext, name: String) -> std::result::Result<String, String> {
    ctx.schedule_activity("hello", name).await
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let hello = |_: ActivityContext, name: String| async move { Ok(name) };
    let activities = ActivityRegistry::builder().register("hello", hello).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("greet", greet).build_result()?;
    let bench = BenchRuntime::start(&folder, activities, orchestrations).await?;

    let latency_s = rounds(&bench, "greeting", ROUNDS, Duration::ZERO).await?;
    let rested_latency_s = rounds(&bench, "rested-greeting", RESTED_ROUNDS, REST).await?;
    bench.stop().await;
    let rested_commit_s = bare_disk::rested_commit_s(&folder, RESTED_ROUNDS, REST)?;
    Ok(Figures::of([
        ("latency_s", latency_s),
        ("rested_latency_s", rested_latency_s),
        ("rested_commit_s", rested_commit_s),
    ]))
}

/// The median duration of this many rounds, each after a pause.
async fn rounds(bench: &BenchRuntime, name: &str, rounds: usize, rest: Duration) -> Result<f64> {
    let mut seconds = Vec::with_capacity(rounds);
    for round in 0..rounds {
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        let id = format!("{name}-{round}");
        let began = Instant::now();
        bench.client.start_orchestration(&id, "greet", "world").await?;
        bench.client.wait_for_orchestration_typed::<String>(&id, Duration::from_secs(30)).await??;
        seconds.push(began.elapsed().as_secs_f64());
    }
    median(seconds)
}

pub(crate) fn judge(figures: &Figures, bare: &BareDisk) -> Result<Verdict> {
    let latency_s = figures.get("latency_s")?;
    let rested_s = figures.get("rested_latency_s")?;
    let rested = format!("{} = {:.1} x", ms(rested_s), rested_s / figures.get("rested_commit_s")?);
    let bar_s = BARE_COMMITS * bare.commit_s;
    Ok(Verdict {
        figure: format!("{} = {:.1} x (rested: {rested})", ms(latency_s), latency_s / bare.commit_s),
        bar: format!("at most {} ({BARE_COMMITS} x a bare commit)", ms(bar_s)),
        pass: latency_s <= bar_s,
    })
}
