//! Idle latency: how long the smallest orchestration takes when nothing else is going on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use crate::Result;
use crate::bare::Bare;
use crate::figures::{Figures, median};
use crate::report::{Verdict, ms};
use crate::stage::Stage;

const ROUNDS: u32 = 200;
/// Between two rounds everything falls asleep again.
const IDLE: Duration = Duration::from_millis(20);
const BARE_COMMITS: f64 = 12.0;

async fn greet(ctx: OrchestrationContext, name: String) -> std::result::Result<String, String> {
    ctx.schedule_activity("hello", name).await
}

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let hello = |_: ActivityContext, name: String| async move { Ok(name) };
    let activities = ActivityRegistry::builder().register("hello", hello).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("greet", greet).build_result()?;
    let stage = Stage::set(&folder, activities, orchestrations).await?;

    let mut seconds = Vec::new();
    for round in 0..ROUNDS {
        tokio::time::sleep(IDLE).await;
        let id = format!("greeting-{round}");
        let began = Instant::now();
        stage.client.start_orchestration(&id, "greet", "world").await?;
        stage.client.wait_for_orchestration_typed::<String>(&id, Duration::from_secs(30)).await??;
        seconds.push(began.elapsed().as_secs_f64());
    }
    stage.clear().await;
    Ok(Figures::of([("latency_s", median(seconds)?)]))
}

pub(crate) fn judge(figures: &Figures, bare: &Bare) -> Result<Verdict> {
    let latency_s = figures.get("latency_s")?;
    let bar_s = BARE_COMMITS * bare.commit_s;
    Ok(Verdict {
        figure: format!("{} = {:.1} x a bare commit", ms(latency_s), latency_s / bare.commit_s),
        bar: format!("at most {} ({BARE_COMMITS} x a bare commit)", ms(bar_s)),
        pass: latency_s <= bar_s,
    })
}
