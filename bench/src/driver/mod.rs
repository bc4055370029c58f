//! The driver: plans a run, starts a process for each measurement, and reports.

mod child;
mod disk_use;
mod filesystem;
mod machine;
mod peers;
mod plan;
mod postgres_cluster;
mod rounds;
mod systems;
mod time_budget;

use std::path::{Path, PathBuf};

use everturn_bench_protocol::BenchResult;

use crate::report::{self, Results};

pub(crate) use filesystem::is_volatile;
pub(crate) use plan::{PlannedWorkload, WORKLOADS};
pub(crate) use systems::{PEERS, REFERENCE, System};

use rounds::RoundsOfAll;

const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;

/// What a run measures.
#[derive(Default)]
pub(crate) struct RunOptions {
    pub(crate) quick: bool,
    /// Names of workloads or their beginnings; all if it is empty.
    pub(crate) only: Vec<String>,
    pub(crate) peers: Vec<String>,
    pub(crate) rounds: Option<usize>,
    /// Where the results go.
    pub(crate) out: Option<PathBuf>,
}

impl RunOptions {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { QUICK_ROUNDS } else { ROUNDS })
    }
}

/// The folder of the repository.
pub(crate) fn repository() -> &'static Path {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    bench.parent().unwrap_or(bench)
}

/// The target folder that this program was built in: on a real disk, and not under version control.
fn target_folder() -> BenchResult<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).ok_or("the program is in no target folder")?;
    Ok(target.to_path_buf())
}

/// Measures and reports; false if a bar was missed.
pub(crate) fn run(options: &RunOptions) -> BenchResult<bool> {
    let workloads = plan::select(&options.only, options.quick);
    let target = target_folder()?;
    let out = options.out.clone().unwrap_or_else(|| target.join("bench-results"));
    std::fs::create_dir_all(&out)?;

    let prepared = peers::prepare(&options.peers, &target);
    let mut results = Results::new(machine::describe(&target), options.quick, options.rounds());
    report::print_head(&results);
    for system in &prepared.systems {
        results.add_system(system.system, system.absent.as_deref());
    }

    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(&target)?;
    let mut rounds = RoundsOfAll::new(options, &prepared, folder.path(), workloads.len());
    for workload in workloads {
        let result = rounds.run(workload)?;
        report::print_workload(&results, &result);
        results.workloads.push(result);
        // After each workload, so that an interrupted run leaves what it measured.
        results.write(&out.join("results.json"))?;
    }
    report::write_plots(&results, &out)?;
    let all_met = report::print_bars(&results);
    println!("results and plots: {}", out.display());
    Ok(all_met)
}
