//! Measures duroxide on SQLite, with the workloads of Everturn: both have the same interface.

mod bench_runtime;
#[path = "../../../src/workloads/mod.rs"]
mod workloads;

use everturn_bench_protocol::{BenchResult, MeasureReply, MeasureRequest};

/// The crate that `workloads` measures.
pub(crate) use duroxide as engine;

fn main() -> BenchResult<()> {
    let request = MeasureRequest::parse(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let reply = runtime.block_on(workloads::measure(&request));
    let reply =
        reply.unwrap_or_else(|| Ok(MeasureReply::Absent("it does not have this workload".to_owned())))?;
    println!("{reply}");
    // Work that was stopped is not waited for.
    std::process::exit(0);
}
