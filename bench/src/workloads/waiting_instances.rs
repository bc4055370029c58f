//! Many instances that wait for an event.

use std::time::Duration;

use everturn_bench_protocol::{BenchResult, MeasureRequest};
use tokio::task::JoinSet;

use super::until_stopped;
use crate::bench_runtime::BenchRuntime;
use crate::engine::OrchestrationContext;

/// How many tasks start instances: enough for group commit, and few enough not to count in a figure of memory.
const STARTERS: u64 = 100;

pub(super) async fn waiter(ctx: OrchestrationContext, _: String) -> std::result::Result<String, String> {
    Ok(ctx.schedule_wait("go").await)
}

/// Starts instances of `waiter` until there are as many as asked for, or the time is up; returns how many wait.
pub(super) async fn start(bench: &BenchRuntime, request: &MeasureRequest) -> BenchResult<u64> {
    let instances = request.size("instances")?;
    let starting = async {
        let mut starters = JoinSet::new();
        for starter in 0..STARTERS {
            let client = bench.client.clone();
            starters.spawn(async move {
                for number in (starter..instances).step_by(STARTERS as usize) {
                    client.start_orchestration(format!("waiter-{number}"), "waiter", "").await?;
                }
                BenchResult::Ok(())
            });
        }
        while let Some(starter) = starters.join_next().await {
            starter??;
        }
        while running(bench).await? < instances {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        BenchResult::Ok(())
    };
    match until_stopped(request, starting).await {
        Some(started) => started.map(|()| instances),
        None => running(bench).await,
    }
}

async fn running(bench: &BenchRuntime) -> BenchResult<u64> {
    Ok(bench.client.get_system_metrics().await?.running_instances)
}
