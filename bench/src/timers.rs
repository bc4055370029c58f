//! Timers: many that are due at nearly the same time.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{EventKind, OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::bench_runtime::BenchRuntime;
use crate::figures::Figures;
use crate::report::Verdict;

const INSTANCES: u32 = 1_000;
const SLEEP: Duration = Duration::from_secs(1);
const LATE_MAX_MS: f64 = 250.0;

async fn sleeper(ctx: OrchestrationContext, _: String) -> std::result::Result<String, String> {
    ctx.schedule_timer(SLEEP).await;
    Ok(String::new())
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let activities = ActivityRegistry::builder().build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("sleeper", sleeper).build_result()?;
    let bench = BenchRuntime::start(&folder, activities, orchestrations).await?;

    let mut runs = JoinSet::new();
    for number in 0..INSTANCES {
        let client = bench.client.clone();
        runs.spawn(async move {
            let id = format!("sleeper-{number}");
            client.start_orchestration(&id, "sleeper", "").await?;
            client.wait_for_orchestration_typed::<String>(&id, Duration::from_secs(60)).await??;
            // The time at which a client sees the end, which is after the commit.
            let woke_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64() * 1_000.0;
            Result::Ok((id, woke_ms))
        });
    }
    let mut late = Vec::new();
    while let Some(run) = runs.join_next().await {
        late.push(run??);
    }

    let (mut earliest_ms, mut latest_ms) = (f64::INFINITY, f64::NEG_INFINITY);
    for (id, woke_ms) in late {
        let history = bench.client.read_execution_history(&id, 1).await?;
        let fire_at_ms = history.iter().find_map(|event| match event.kind {
            EventKind::TimerCreated { fire_at_ms } => Some(fire_at_ms),
            _ => None,
        });
        let late_ms = woke_ms - fire_at_ms.ok_or_else(|| format!("{id} has no timer"))? as f64;
        earliest_ms = late_ms.min(earliest_ms);
        latest_ms = late_ms.max(latest_ms);
    }
    bench.stop().await;
    Ok(Figures::of([("earliest_ms", earliest_ms), ("latest_ms", latest_ms)]))
}

pub(crate) fn judge(figures: &Figures, _: &BareDisk) -> Result<Verdict> {
    let (earliest_ms, latest_ms) = (figures.get("earliest_ms")?, figures.get("latest_ms")?);
    Ok(Verdict {
        figure: format!("{earliest_ms:.0} to {latest_ms:.0} ms after the fire time"),
        bar: format!("0 to {LATE_MAX_MS:.0} ms, each of {INSTANCES}"),
        pass: earliest_ms >= 0.0 && latest_ms <= LATE_MAX_MS,
    })
}
