//! Fan-out: one instance, many activities at the same time, one join.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

async fn fan_out(ctx: OrchestrationContext, activities: u64) -> std::result::Result<usize, String> {
    let branches =
        (0..activities).map(|branch| ctx.schedule_activity("branch", branch.to_string())).collect();
    let results: std::result::Result<Vec<String>, String> = ctx.join(branches).await.into_iter().collect();
    results.map(|results| results.len())
}

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let activities = request.size("activities")?;
    let ran = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&ran);
    let branch = move |_: ActivityContext, input: String| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { Ok(input) }
    };
    let registry = ActivityRegistry::builder().register("branch", branch).build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("fan_out", fan_out).build();
    let bench = BenchRuntime::start(request, registry, orchestrations).await?;

    let began = Instant::now();
    bench.client.start_orchestration_typed("fan-1", "fan_out", activities).await?;
    let wait = bench.client.wait_for_orchestration_typed::<u64>("fan-1", WAIT_MAX);
    let ended = until_stopped(request, wait).await;
    let elapsed_s = began.elapsed().as_secs_f64();
    let stopped = ended.is_none();
    if let Some(result) = ended {
        let results = result??;
        if results != activities {
            return Err(format!("{results} results of {activities} activities").into());
        }
        bench.stop().await;
    }
    Ok(MeasureReply::Measured {
        figures: Figures::of_rate(ran.load(Ordering::Relaxed), activities, elapsed_s)?,
        stopped,
    })
}
