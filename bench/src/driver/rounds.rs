//! The rounds of a workload: in each round every system runs it once, so that noise affects all alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};
use tempfile::TempDir;

use super::RunOptions;
use super::peers::{PreparedPeers, PreparedSystem};
use super::plan::{PlannedWorkload, Sizes};
use super::postgres_cluster::Database;
use super::time_budget::TimeBudget;
use super::{child, disk_use};
use crate::report::{SystemOutcome, WorkloadResult};

/// Runs workloads, each for all rounds.
pub(crate) struct RoundsOfAll<'a> {
    prepared: &'a PreparedPeers,
    folder: &'a Path,
    quick: bool,
    rounds: usize,
    budget: TimeBudget,
    workloads: usize,
    workloads_left: usize,
}

/// Where a system keeps its data in one run, or in all rounds of a workload that is prepared once.
struct Place<'a> {
    folder: TempDir,
    database: Option<Database<'a>>,
}

impl<'a> RoundsOfAll<'a> {
    pub(crate) fn new(
        options: &RunOptions,
        prepared: &'a PreparedPeers,
        folder: &'a Path,
        workloads: usize,
    ) -> Self {
        Self {
            prepared,
            folder,
            quick: options.quick,
            rounds: options.rounds(),
            budget: TimeBudget::new(options.quick),
            workloads,
            workloads_left: workloads,
        }
    }

    /// Runs one workload for all rounds.
    ///
    /// A system that fails is reported in the result. Fails if the bare disk cannot be measured.
    pub(crate) fn run(&mut self, workload: &'static PlannedWorkload) -> BenchResult<WorkloadResult> {
        let runners: Vec<&PreparedSystem> =
            self.prepared.present().filter(|system| workload.is_run_by(system.system)).collect();
        let mut outcomes: BTreeMap<&str, SystemOutcome> =
            runners.iter().map(|runner| (runner.system.name, SystemOutcome::default())).collect();
        let places = self.prepare(workload, &runners, &mut outcomes);
        let mut bare = SystemOutcome::default();
        let sizes = workload.sizes_in(self.quick);
        for round in 0..self.rounds {
            if round > 0 && self.budget.is_used_up(self.workloads - self.workloads_left, self.workloads) {
                eprintln!("  {:<17} its time is up: {round} of {} rounds", workload.name, self.rounds);
                break;
            }
            bare.add(&self.measure_bare_disk(sizes)?);
            for position in 0..runners.len() {
                // Another system goes first in each round.
                let Some(runner) = runners.get((round + position) % runners.len()) else { continue };
                let Some(outcome) = outcomes.get_mut(runner.system.name) else { continue };
                if outcome.is_given_up() {
                    continue;
                }
                let runs_left = (self.rounds - round) * runners.len() - position
                    + (self.workloads_left - 1) * self.rounds * runners.len();
                let stop_after = self.budget.stop_after(runs_left, outcome.stopped_rounds > 0);
                let reply = self.measure(workload, runner, places.get(runner.system.name), stop_after);
                progress(workload, runner, round, &reply);
                match reply {
                    Ok(reply) => outcome.add(&reply),
                    Err(error) => outcome.failed = Some(error.to_string()),
                }
            }
        }
        self.workloads_left -= 1;
        let outcomes = outcomes.into_iter().map(|(name, outcome)| (name.to_owned(), outcome)).collect();
        Ok(WorkloadResult::new(workload, sizes, bare, outcomes))
    }

    /// Prepares what all rounds of a workload share, where it needs that.
    fn prepare(
        &self,
        workload: &PlannedWorkload,
        runners: &[&PreparedSystem],
        outcomes: &mut BTreeMap<&str, SystemOutcome>,
    ) -> BTreeMap<&'static str, Place<'a>> {
        let mut places = BTreeMap::new();
        let Some(program) = workload.prepare else { return places };
        for runner in runners {
            let Some(outcome) = outcomes.get_mut(runner.system.name) else { continue };
            let stop_after = Duration::from_secs(workload.prepare_s_max).min(self.budget.rest());
            let prepared = self.place(runner).and_then(|place| {
                let request = self.request(program, workload, runner, &place, stop_after);
                Ok((child::measure(&runner.program, &request)?, place))
            });
            progress(workload, runner, 0, &prepared.as_ref().map(|(reply, _)| reply.clone()));
            match prepared {
                Ok((reply, place)) => {
                    outcome.add_preparation(&reply);
                    places.insert(runner.system.name, place);
                }
                Err(error) => outcome.failed = Some(format!("preparing: {error}")),
            }
        }
        places
    }

    fn measure(
        &self,
        workload: &PlannedWorkload,
        runner: &PreparedSystem,
        place: Option<&Place<'a>>,
        stop_after: Duration,
    ) -> BenchResult<MeasureReply> {
        let own;
        let place = match place {
            Some(place) => place,
            None => {
                own = self.place(runner)?;
                &own
            }
        };
        let request = self.request(workload.program, workload, runner, place, stop_after);
        let log_before = place.database.as_ref().map(Database::log_bytes).transpose()?;
        let mut reply = child::measure(&runner.program, &request)?;
        if let MeasureReply::Measured { figures, stopped: false } = &mut reply {
            disk_use::add_to(figures, &request, place.database.as_ref(), log_before);
        }
        Ok(comparable(reply, workload))
    }

    fn place(&self, runner: &PreparedSystem) -> BenchResult<Place<'a>> {
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(self.folder)?;
        let database = self.prepared.database_for(runner.system)?;
        Ok(Place { folder, database })
    }

    fn request(
        &self,
        program: &str,
        workload: &PlannedWorkload,
        runner: &PreparedSystem,
        place: &Place<'_>,
        stop_after: Duration,
    ) -> MeasureRequest {
        MeasureRequest {
            workload: program.to_owned(),
            variant: runner.system.variant.to_owned(),
            sizes: owned(workload.sizes_in(self.quick)),
            folder: place.folder.path().to_path_buf(),
            url: place.database.as_ref().map(Database::url),
            server: runner.server.clone(),
            stop_after,
            began_s: 0.0,
        }
    }

    /// Measures the bare disk with the rests of this workload.
    fn measure_bare_disk(&self, sizes: Sizes) -> BenchResult<MeasureReply> {
        let folder = tempfile::Builder::new().prefix("bare-").tempdir_in(self.folder)?;
        let request = MeasureRequest {
            workload: "bare-disk".to_owned(),
            variant: String::new(),
            sizes: owned(sizes),
            folder: folder.path().to_path_buf(),
            url: None,
            server: None,
            stop_after: Duration::from_secs(60),
            began_s: 0.0,
        };
        let program: PathBuf = std::env::current_exe()?;
        child::measure(&program, &request).map_err(|error| format!("measuring the bare disk: {error}").into())
    }
}

/// A reply without the figure that systems are compared by says why it has none.
fn comparable(reply: MeasureReply, workload: &PlannedWorkload) -> MeasureReply {
    match &reply {
        MeasureReply::Measured { figures, stopped } if figures.get(workload.headline).is_err() => {
            let reason =
                if *stopped { "it was stopped before its end" } else { "its store does not show it" };
            MeasureReply::Absent(format!("no {}: {reason}", workload.headline))
        }
        _ => reply,
    }
}

fn owned(sizes: Sizes) -> BTreeMap<String, u64> {
    sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect()
}

/// One line for each run, so that a long run shows where it is.
fn progress<E: std::fmt::Display>(
    workload: &PlannedWorkload,
    runner: &PreparedSystem,
    round: usize,
    reply: &Result<MeasureReply, E>,
) {
    let what = match reply {
        Ok(MeasureReply::Measured { figures, stopped }) => {
            let mark = if *stopped { " (stopped)" } else { "" };
            format!("{}{mark}", headline(workload, figures))
        }
        Ok(MeasureReply::Absent(reason)) => format!("absent: {reason}"),
        Err(error) => format!("FAILED: {error}"),
    };
    eprintln!("  {:<17} round {} {:<18} {what}", workload.name, round + 1, runner.system.name);
}

fn headline(workload: &PlannedWorkload, figures: &Figures) -> String {
    let figure = figures.get(workload.headline);
    figure.map_or_else(|_| "prepared".to_owned(), |value| crate::report::with_unit(workload.headline, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::WORKLOADS;

    #[test]
    fn a_reply_without_the_compared_figure_says_why() {
        let storage = WORKLOADS.iter().find(|workload| workload.name == "storage").unwrap();
        let reply = |name, stopped| {
            let figures = Figures::of([(name, 1.0)]);
            comparable(MeasureReply::Measured { figures, stopped }, storage)
        };
        assert!(matches!(reply("file_bytes_per_step", true), MeasureReply::Measured { .. }));
        let MeasureReply::Absent(reason) = reply("activities_per_s", true) else {
            panic!("it has no figure")
        };
        assert_eq!(reason, "no file_bytes_per_step: it was stopped before its end");
    }
}
