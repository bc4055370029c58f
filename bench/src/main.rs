//! What a durable step costs, measured against the bare disk and other engines in the same run.
//!
//! `cargo run --release -p everturn-bench` measures Everturn; `bench/run` also builds the peers in `bench/peers` and
//! measures them in turn with Everturn. The program has two parts. The driver plans the run, starts a new process for
//! each measurement, and reports. As such a process, the program measures one workload of Everturn or of the bare disk.

mod arguments;
mod bare_disk;
mod bench_runtime;
mod driver;
mod report;
mod sessions;
mod store_size;
mod two_processes;
mod workloads;

use std::process::ExitCode;

use arguments::BenchTask;
use everturn_bench_protocol::{BenchResult, MeasureReply, MeasureRequest};

/// The crate that `workloads` measures.
pub(crate) use everturn as engine;

fn main() -> ExitCode {
    let outcome = match arguments::parse(std::env::args().skip(1)) {
        Ok(BenchTask::Help) => {
            println!("{}", arguments::help());
            Ok(true)
        }
        Ok(BenchTask::Run(options)) => driver::run(&options),
        Ok(BenchTask::Report(results)) => report::write_from(&results).map(|()| true),
        Ok(BenchTask::Measure(request)) => measure(&request).map(|()| true),
        Ok(BenchTask::Serve(database)) => tokio_runtime()
            .and_then(|runtime| runtime.block_on(two_processes::serve(&database)))
            .map(|()| true),
        Err(usage_error) => {
            eprintln!("everturn-bench: {usage_error}\n(see --help)");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("everturn-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tokio_runtime() -> BenchResult<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Measures one workload, prints the reply and ends the process: work that was stopped is not waited for.
fn measure(request: &MeasureRequest) -> BenchResult<()> {
    let reply = tokio_runtime()?.block_on(reply_to(request))?;
    println!("{reply}");
    std::process::exit(0);
}

async fn reply_to(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    if let Some(reply) = workloads::measure(request).await {
        return reply;
    }
    match request.workload.as_str() {
        "bare-disk" => bare_disk::measure(request),
        "sessions" => sessions::measure(request).await,
        "prepare-store-size" => store_size::prepare(request).await,
        "store-size" => store_size::measure(request).await,
        "2nd-process" => two_processes::measure_service(request).await,
        "recovery" => two_processes::measure_recovery(request).await,
        other => Err(format!("no workload '{other}'").into()),
    }
}
