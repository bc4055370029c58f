//! Sessions: many activities of one session, which run one after the other or side by side on one node.

use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry, RuntimeOptions};
use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};

use crate::bench_runtime::BenchRuntime;

async fn one_session(ctx: OrchestrationContext, activities: u64) -> std::result::Result<usize, String> {
    let calls = (0..activities)
        .map(|call| ctx.schedule_activity_on_session("step", call.to_string(), "the-session"))
        .collect();
    let results: std::result::Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
    results.map(|results| results.len())
}

pub(crate) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let slots = usize::try_from(request.size("slots")?)?;
    let one_slot_s = seconds_with(1, request, "one").await?;
    let many_slots_s = seconds_with(slots, request, "many").await?;
    let ratio = many_slots_s / one_slot_s;
    Ok(MeasureReply::whole(Figures::of([
        ("one_slot_s", one_slot_s),
        ("many_slots_s", many_slots_s),
        ("ratio", ratio),
    ])))
}

async fn seconds_with(slots: usize, request: &MeasureRequest, name: &str) -> BenchResult<f64> {
    let activities = request.size("activities")?;
    let step = |_: ActivityContext, input: String| async move { Ok(input) };
    let registry = ActivityRegistry::builder().register("step", step).build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("one_session", one_session).build();
    let options = RuntimeOptions { worker_concurrency: slots, ..RuntimeOptions::default() };
    let request = MeasureRequest { folder: request.folder.join(name), ..request.clone() };
    std::fs::create_dir(&request.folder)?;
    let bench = BenchRuntime::start_with(&request, registry, orchestrations, options).await?;
    let began = Instant::now();
    bench.client.start_orchestration_typed("session-1", "one_session", activities).await?;
    let results: u64 =
        bench.client.wait_for_orchestration_typed("session-1", Duration::from_secs(120)).await??;
    let seconds = began.elapsed().as_secs_f64();
    bench.stop().await;
    if results != activities {
        return Err(format!("{results} results of {activities} activities").into());
    }
    Ok(seconds)
}
