//! Memory: many instances that wait, all of them kept in memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;

use crate::Result;
use crate::bare::Bare;
use crate::figures::Figures;
use crate::report::Verdict;
use crate::stage::Stage;

const INSTANCES: u64 = 10_000;
/// So many starts at the same time: enough for group commit, without ten thousand tasks of our own in the figure.
const STARTERS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(120);
const SETTLING: Duration = Duration::from_secs(2);
const RESIDENT_MAX_MB: f64 = 300.0;

async fn waiter(ctx: OrchestrationContext, _: String) -> std::result::Result<String, String> {
    Ok(ctx.schedule_wait("go").await)
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let activities = ActivityRegistry::builder().build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("waiter", waiter).build_result()?;
    let stage = Stage::set(&folder, activities, orchestrations).await?;

    let mut starters = JoinSet::new();
    for starter in 0..STARTERS {
        let client = stage.client.clone();
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

    let deadline = Instant::now() + PATIENCE;
    while stage.client.get_system_metrics().await?.running_instances < INSTANCES {
        if Instant::now() > deadline {
            return Err("the instances did not all come to wait".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // An instance is warm a moment after its commit.
    let deadline = Instant::now() + SETTLING;
    while (stage.runtime.warm_instances() as u64) < INSTANCES && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let warm = stage.runtime.warm_instances() as f64;
    let resident_mb = resident_mb()?;
    stage.clear().await;
    Ok(Figures::of([("warm", warm), ("resident_mb", resident_mb)]))
}

pub(crate) fn judge(figures: &Figures, _: &Bare) -> Result<Verdict> {
    let (warm, resident_mb) = (figures.get("warm")?, figures.get("resident_mb")?);
    Ok(Verdict {
        figure: format!("{resident_mb:.0} MB resident, {warm:.0} of {INSTANCES} warm"),
        bar: format!("below {RESIDENT_MAX_MB:.0} MB, all warm"),
        pass: resident_mb < RESIDENT_MAX_MB && warm >= INSTANCES as f64,
    })
}

/// What this process holds in memory, as the kernel counts it.
fn resident_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1_000_000.0)
}
