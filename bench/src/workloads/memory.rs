//! Memory: many instances that wait, all of them kept in memory where the engine does that.

use std::time::{Duration, Instant};

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, resident_mb};

use super::waiting_instances;
use crate::bench_runtime::BenchRuntime;
use crate::engine::OrchestrationRegistry;
use crate::engine::runtime::registry::ActivityRegistry;

const ALL_WARM_MAX: Duration = Duration::from_secs(2);

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let instances = request.size("instances")?;
    let activities = ActivityRegistry::builder().build();
    let orchestrations =
        OrchestrationRegistry::builder().register("waiter", waiting_instances::waiter).build();
    let bench = BenchRuntime::start(request, activities, orchestrations).await?;
    let empty_mb = resident_mb(None)?;
    let waiting = waiting_instances::start(&bench, request).await?;
    if waiting < instances {
        return Ok(MeasureReply::Absent(format!("only {waiting} of {instances} instances waited in time")));
    }
    // An instance becomes warm shortly after its commit.
    let deadline = Instant::now() + ALL_WARM_MAX;
    while bench.warm_instances().is_some_and(|warm| warm < waiting) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let resident_mb = resident_mb(None)?;
    let mut figures = Figures::of([
        ("resident_mb", resident_mb),
        ("kb_per_instance", 1_000.0 * (resident_mb - empty_mb) / waiting as f64),
        ("waiting", waiting as f64),
    ]);
    if let Some(warm) = bench.warm_instances() {
        figures.set("warm", warm as f64);
    }
    Ok(MeasureReply::whole(figures))
}
