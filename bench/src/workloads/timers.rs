//! Timers: many that are due at nearly the same time.
//!
//! A timer is late by the time from when it was due (when its orchestration asked for it, and the sleep) to when a client
//! sees the end of the orchestration, which is after the commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};
use tokio::task::JoinSet;

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{OrchestrationContext, OrchestrationRegistry};

/// When each instance first asked for its timer.
type Asked = Arc<Mutex<HashMap<String, Instant>>>;

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let sleep = Duration::from_millis(request.size("sleep_ms")?);
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let sleeper = move |ctx: OrchestrationContext, id: String| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert_with(Instant::now);
        async move {
            ctx.schedule_timer(sleep).await;
            Ok(String::new())
        }
    };
    let activities = ActivityRegistry::builder().build();
    let orchestrations = OrchestrationRegistry::builder().register("sleeper", sleeper).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;

    let late_ms = Arc::new(Mutex::new(Vec::new()));
    let run = run_all(&bench, request.size("instances")?, sleep, &asked, &late_ms);
    let ended = until_stopped(request, run).await;
    let stopped = ended.is_none();
    if let Some(result) = ended {
        result?;
        bench.stop().await;
    }
    let late_ms = late_ms.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(MeasureReply::Measured { figures: Figures::of_lateness(&late_ms)?, stopped })
}

async fn run_all(
    bench: &BenchRuntime,
    instances: u64,
    sleep: Duration,
    asked: &Asked,
    late_ms: &Arc<Mutex<Vec<f64>>>,
) -> BenchResult<()> {
    let mut runs = JoinSet::new();
    for number in 0..instances {
        let (client, asked, late_ms) = (bench.client.clone(), Arc::clone(asked), Arc::clone(late_ms));
        runs.spawn(async move {
            let id = format!("sleeper-{number}");
            client.start_orchestration(&id, "sleeper", id.clone()).await?;
            client.wait_for_orchestration_typed::<String>(&id, WAIT_MAX).await??;
            let ended = Instant::now();
            let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied();
            let due = asked.ok_or_else(|| format!("{id} asked for no timer"))? + sleep;
            let late_s = ended.saturating_duration_since(due).as_secs_f64()
                - due.saturating_duration_since(ended).as_secs_f64();
            late_ms.lock().unwrap_or_else(PoisonError::into_inner).push(late_s * 1_000.0);
            BenchResult::Ok(())
        });
    }
    while let Some(run) = runs.join_next().await {
        run??;
    }
    Ok(())
}
