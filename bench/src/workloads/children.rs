//! Children: one parent that starts many child orchestrations and waits for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};

use super::{WAIT_MAX, until_stopped};
use crate::bench_runtime::BenchRuntime;
use crate::engine::runtime::registry::ActivityRegistry;
use crate::engine::{OrchestrationContext, OrchestrationRegistry};

async fn parent(ctx: OrchestrationContext, children: u64) -> std::result::Result<usize, String> {
    let children =
        (0..children).map(|child| ctx.schedule_sub_orchestration("child", child.to_string())).collect();
    let results: std::result::Result<Vec<String>, String> = ctx.join(children).await.into_iter().collect();
    results.map(|results| results.len())
}

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let children = request.size("children")?;
    let ran = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&ran);
    // It has no step of its own, so it runs once.
    let child = move |_: OrchestrationContext, input: String| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { Ok(input) }
    };
    let activities = ActivityRegistry::builder().build();
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("parent", parent).register("child", child).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;

    let began = Instant::now();
    bench.client.start_orchestration_typed("parent-1", "parent", children).await?;
    let wait = bench.client.wait_for_orchestration_typed::<u64>("parent-1", WAIT_MAX);
    let ended = until_stopped(request, wait).await;
    let elapsed_s = began.elapsed().as_secs_f64();
    let stopped = ended.is_none();
    if let Some(result) = ended {
        let results = result??;
        if results != children {
            return Err(format!("{results} results of {children} children").into());
        }
        bench.stop().await;
    }
    let done = if stopped { ran.load(Ordering::Relaxed) } else { children };
    Ok(MeasureReply::Measured { figures: Figures::of_rate(done, children, elapsed_s)?, stopped })
}
