//! The workloads that Everturn and duroxide share.
//!
//! Both have the same interface, so both are measured by the same code: `crate::engine` is the crate under test, and
//! `crate::bench_runtime` opens its store. `bench/peers/duroxide` includes this folder.

mod chain;
mod children;
mod cold_start;
mod fan_out;
mod idle_latency;
mod long_history;
mod memory;
mod messages;
mod throughput;
mod timers;
mod waiting_instances;

use std::future::Future;
use std::time::Duration;

use everturn_bench_protocol::{BenchResult, MeasureReply, MeasureRequest};

/// How long a client waits for a result: longer than any workload may take.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Runs a workload; `None` if there is none of this name.
pub(crate) async fn measure(request: &MeasureRequest) -> Option<BenchResult<MeasureReply>> {
    Some(match request.workload.as_str() {
        "chain" => chain::measure(request).await,
        "throughput" => throughput::measure(request).await,
        "fan-out" => fan_out::measure(request).await,
        "long-history" => long_history::measure(request).await,
        "idle-latency" => idle_latency::measure(request).await,
        "timers" => timers::measure(request).await,
        "children" => children::measure(request).await,
        "messages" => messages::measure(request).await,
        "memory" => memory::measure(request).await,
        "prepare-cold-start" => cold_start::prepare(request).await,
        "cold-start" => cold_start::measure(request).await,
        _ => return None,
    })
}

/// Waits until the work ends or its time is up; `None` in the second case.
async fn until_stopped<F: Future>(request: &MeasureRequest, work: F) -> Option<F::Output> {
    tokio::time::timeout(request.stop_after, work).await.ok()
}
