//! Memory: many instances that wait, all of them kept in memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::bench_runtime::BenchRuntime;
use crate::figures::Figures;
use crate::report::Verdict;

const INSTANCES: u64 = 10_000;
/// How many tasks start instances: enough for group commit, and few enough not to count in the figure.
const STARTERS: u64 = 100;
const ALL_WAITING_MAX: Duration = Duration::from_secs(120);
const ALL_WARM_MAX: Duration = Duration::from_secs(2);
const RESIDENT_MAX_MB: f64 = 300.0;

async fn waiter(ctx: OrchestrationContext, _: String) -> std::result::Result<String, String> {
    Ok(ctx.schedule_wait("go").await)
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let activities = ActivityRegistry::builder().build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("waiter", waiter).build_result()?;
    let bench = BenchRuntime::start(&folder, activities, orchestrations).await?;

    let mut starters = JoinSet::new();
    for starter in 0..STARTERS {
        let client = bench.client.clone();
        starters.spawn(async move {
            for number in (starter..INSTANCES).step_by(STARTERS as usize) {
                client.start_orchestration(format!("waiter-{number}"), "waiter", "").await?;
            }
            Result::Ok(())
        });
    }
    while let Some(starter) = starters.join_next().await {
        starter??;
    }

    let deadline = Instant::now() + ALL_WAITING_MAX;
    while bench.client.get_system_metrics().await?.running_instances < INSTANCES {
        if Instant::now() > deadline {
            return Err("not all instances were waiting in time".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // An instance becomes warm shortly after its commit.
    let deadline = Instant::now() + ALL_WARM_MAX;
    while (bench.runtime.warm_instances() as u64) < INSTANCES && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let warm = bench.runtime.warm_instances() as f64;
    let resident_mb = resident_mb()?;
    bench.stop().await;
    Ok(Figures::of([("warm", warm), ("resident_mb", resident_mb)]))
}

pub(crate) fn judge(figures: &Figures, _: &BareDisk) -> Result<Verdict> {
    let (warm, resident_mb) = (figures.get("warm")?, figures.get("resident_mb")?);
    Ok(Verdict {
        figure: format!("{resident_mb:.0} MB resident, {warm:.0} of {INSTANCES} warm"),
        bar: format!("below {RESIDENT_MAX_MB:.0} MB, all warm"),
        pass: resident_mb < RESIDENT_MAX_MB && warm >= INSTANCES as f64,
    })
}

/// The resident memory of this process.
fn resident_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1_000_000.0)
}
