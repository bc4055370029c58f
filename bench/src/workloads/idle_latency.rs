//! Idle latency: how long the smallest orchestration takes on an idle runtime, with or without a rest between rounds.

use std::time::{Duration, Instant};

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

async fn greet(ctx: OrchestrationContext, name: String) -> std::result::Result<String, String> {
    ctx.schedule_activity("hello", name).await
}

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let rest = Duration::from_millis(request.size("rest_ms")?);
    let hello = |_: ActivityContext, name: String| async move { Ok(name) };
    let activities = ActivityRegistry::builder().register("hello", hello).build();
    let orchestrations = OrchestrationRegistry::builder().register("greet", greet).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;

    let mut seconds = Vec::new();
    let rounds = rounds(&bench, request.size("rounds")?, rest, &mut seconds);
    let ended = until_stopped(request, rounds).await;
    let stopped = ended.is_none();
    if let Some(result) = ended {
        result?;
        bench.stop().await;
    }
    Ok(MeasureReply::Measured { figures: Figures::of_latency(&seconds)?, stopped })
}

async fn rounds(
    bench: &BenchRuntime,
    rounds: u64,
    rest: Duration,
    seconds: &mut Vec<f64>,
) -> BenchResult<()> {
    for round in 0..rounds {
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        let id = format!("greeting-{round}");
        let began = Instant::now();
        bench.client.start_orchestration(&id, "greet", "world").await?;
        bench.client.wait_for_orchestration_typed::<String>(&id, WAIT_MAX).await??;
        seconds.push(began.elapsed().as_secs_f64());
    }
    Ok(())
}
