//! Sessions: many activities of one session, which run one after the other or side by side on one node.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry, RuntimeOptions};

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::bench_runtime::BenchRuntime;
use crate::figures::{Figures, median};
use crate::report::{Verdict, ms};

const ACTIVITIES: u32 = 2_000;
const SLOTS: usize = 64;
const ROUNDS: usize = 3;
/// What many slots may cost, as a multiple of what one slot costs.
const RATIO_MAX: f64 = 1.5;

async fn one_session(ctx: OrchestrationContext, activities: u32) -> std::result::Result<usize, String> {
    let calls = (0..activities)
        .map(|call| ctx.schedule_activity_on_session("step", call.to_string(), "the-session"))
        .collect();
    let results: std::result::Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
    results.map(|results| results.len())
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let (mut with_one, mut with_many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with_one.push(seconds_with(1, &folder).await?);
        with_many.push(seconds_with(SLOTS, &folder).await?);
    }
    Ok(Figures::of([("one_slot_s", median(with_one)?), ("many_slots_s", median(with_many)?)]))
}

async fn seconds_with(slots: usize, folder: &Path) -> Result<f64> {
    let step = |_: ActivityContext, input: String| async move { Ok(input) };
    let activities = ActivityRegistry::builder().register("step", step).build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("one_session", one_session).build_result()?;
    let options = RuntimeOptions { worker_concurrency: slots, ..RuntimeOptions::default() };
    let bench = BenchRuntime::start_with(folder, activities, orchestrations, options).await?;
    let began = Instant::now();
    bench.client.start_orchestration_typed("session-1", "one_session", ACTIVITIES).await?;
    let results: u32 =
        bench.client.wait_for_orchestration_typed("session-1", Duration::from_secs(120)).await??;
    let seconds = began.elapsed().as_secs_f64();
    bench.stop().await;
    if results != ACTIVITIES {
        return Err(format!("{results} results of {ACTIVITIES} activities").into());
    }
    Ok(seconds)
}

pub(crate) fn judge(figures: &Figures, _: &BareDisk) -> Result<Verdict> {
    let (one_s, many_s) = (figures.get("one_slot_s")?, figures.get("many_slots_s")?);
    let ratio = many_s / one_s;
    Ok(Verdict {
        figure: format!("{} with {SLOTS} slots, {ratio:.2} x one slot", ms(many_s)),
        bar: format!("at most {RATIO_MAX} x one slot"),
        pass: ratio <= RATIO_MAX,
    })
}
