//! What a durable step costs, measured against the bare disk in the same run.
//!
//! `cargo run --release -p everturn-bench` prints every workload with its figure, its bar and PASS or FAIL, and exits
//! with an error if one fails. Each workload runs in its own process, so that it does not affect the next.

mod bare_disk;
mod bench_runtime;
mod chain;
mod fan_out;
mod figures;
mod filesystem;
mod idle_latency;
mod long_history;
mod memory;
mod report;
mod sessions;
mod throughput;
mod timers;
mod two_processes;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bare_disk::BareDisk;
use workload::{WORKLOADS, Workload};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const HELP: &str = "\
Measures Everturn on an SQLite file and compares each figure with its bar.

usage: everturn-bench [--only NAME]... [--help]

  --only NAME   only this workload; may be given several times
  --help        this text

workloads:";

/// What the program was asked to do.
enum BenchTask {
    Help,
    /// Measure these workloads, each in its own process.
    Compare(Vec<&'static Workload>),
    /// As such a process, measure one workload in this folder and print the figures.
    Measure(&'static Workload, PathBuf),
    /// As a process beside it, run a runtime on this database.
    Serve(PathBuf),
}

fn main() -> ExitCode {
    match task(std::env::args().skip(1)) {
        Ok(BenchTask::Help) => {
            println!("{HELP}");
            for workload in WORKLOADS {
                println!("  {:<14} {}", workload.name, workload.about);
            }
            ExitCode::SUCCESS
        }
        Ok(BenchTask::Compare(workloads)) => finish(compare(&workloads)),
        Ok(BenchTask::Measure(workload, folder)) => finish(measure(workload, &folder).map(|()| true)),
        Ok(BenchTask::Serve(database)) => finish(serve(&database).map(|()| true)),
        Err(usage_error) => {
            eprintln!("everturn-bench: {usage_error}\n(see --help)");
            ExitCode::from(2)
        }
    }
}

fn finish(outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("everturn-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn task(mut arguments: impl Iterator<Item = String>) -> std::result::Result<BenchTask, String> {
    let mut only = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(BenchTask::Help),
            "--only" => only.push(workload::find(&value()?)?),
            workload::MEASURE_FLAG => {
                return Ok(BenchTask::Measure(workload::find(&value()?)?, PathBuf::from(value()?)));
            }
            two_processes::SERVE_FLAG => return Ok(BenchTask::Serve(PathBuf::from(value()?))),
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(BenchTask::Compare(if only.is_empty() { WORKLOADS.iter().collect() } else { only }))
}

/// Measures each workload between two measurements of the bare disk; false if a bar was missed.
fn compare(workloads: &[&Workload]) -> Result<bool> {
    let folder = bench_runtime::fresh_folder()?;
    report::print_head(folder.path());
    let mut all_pass = true;
    for workload in workloads {
        let before = BareDisk::measure(folder.path())?;
        let figures = workload.measure_in_a_child(folder.path());
        let after = BareDisk::measure(folder.path())?;
        let bare = BareDisk::mean(&before, &after);
        // A workload that could not be measured fails; the others are still measured.
        let verdict = match figures.and_then(|figures| (workload.judge)(&figures, &bare)) {
            Ok(verdict) => verdict,
            Err(error) => report::Verdict::broken(&error.to_string()),
        };
        all_pass &= verdict.pass;
        report::print_row(workload.name, &verdict, &bare);
    }
    println!("{}", if all_pass { "all bars met" } else { "a bar was missed" });
    Ok(all_pass)
}

fn measure(workload: &Workload, folder: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on((workload.measure)(folder.to_path_buf()))?;
    print!("{figures}");
    Ok(())
}

fn serve(database: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(two_processes::serve(database))
}
