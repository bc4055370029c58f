//! The results of a run, as they are kept in JSON.

use std::collections::BTreeMap;
use std::path::Path;

use everturn_bench_protocol::{BenchResult, MeasureReply, median};
use serde::{Deserialize, Serialize};

use super::units::{grouped, larger_is_better};
use crate::driver::{PlannedWorkload, REFERENCE, System};

/// What the figures were measured on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchMachine {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_gb: f64,
    pub(crate) kernel: String,
    pub(crate) filesystem: String,
    /// Processes that wanted to run when the benchmark began, as a mean over a minute.
    pub(crate) load_before: f64,
    pub(crate) sqlite: String,
    pub(crate) debug_build: bool,
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: BenchMachine,
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    pub(crate) systems: Vec<MeasuredSystem>,
    pub(crate) workloads: Vec<WorkloadResult>,
}

/// A system of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeasuredSystem {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// True for what is not Everturn.
    pub(crate) is_peer: bool,
    /// Why it was not measured.
    pub(crate) absent: Option<String>,
}

/// What one workload gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkloadResult {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) sizes: BTreeMap<String, u64>,
    pub(crate) headline: String,
    pub(crate) further: Vec<String>,
    /// The bare disk in the same rounds.
    pub(crate) bare_disk: SystemOutcome,
    /// By the name of the system.
    pub(crate) outcomes: BTreeMap<String, SystemOutcome>,
}

/// What one system did in one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SystemOutcome {
    /// The values of all rounds, by figure.
    pub(crate) figures: BTreeMap<String, Vec<f64>>,
    /// Rounds in which its time was up before its end.
    pub(crate) stopped_rounds: usize,
    /// Why it does not have the workload.
    pub(crate) absent: Option<String>,
    /// Why it could not be measured.
    pub(crate) failed: Option<String>,
}

/// The middle and the ends of the values of all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Results {
    pub(crate) fn new(machine: BenchMachine, quick: bool, rounds: usize) -> Self {
        Self { machine, quick, rounds, systems: Vec::new(), workloads: Vec::new() }
    }

    pub(crate) fn add_system(&mut self, system: &System, absent: Option<&str>) {
        self.systems.push(MeasuredSystem {
            name: system.name.to_owned(),
            title: system.title.to_owned(),
            about: system.about.to_owned(),
            is_peer: system.peer.is_some(),
            absent: absent.map(str::to_owned),
        });
    }

    pub(crate) fn workload(&self, name: &str) -> Option<&WorkloadResult> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    /// The peers that were measured.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &MeasuredSystem> {
        self.systems.iter().filter(|system| system.is_peer && system.absent.is_none())
    }

    pub(crate) fn write(&self, path: &Path) -> BenchResult<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text).map_err(|error| format!("writing {}: {error}", path.display()).into())
    }

    pub(crate) fn read(path: &Path) -> BenchResult<Self> {
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{} holds no results: {error}", path.display()).into())
    }
}

impl WorkloadResult {
    pub(crate) fn new(
        workload: &PlannedWorkload,
        sizes: &[(&str, u64)],
        bare_disk: SystemOutcome,
        outcomes: BTreeMap<String, SystemOutcome>,
    ) -> Self {
        Self {
            name: workload.name.to_owned(),
            about: workload.about.to_owned(),
            sizes: sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect(),
            headline: workload.headline.to_owned(),
            further: workload.further.iter().map(|&figure| figure.to_owned()).collect(),
            bare_disk,
            outcomes,
        }
    }

    /// The sizes of this run, for example `steps 200`.
    pub(crate) fn sizes_as_text(&self) -> String {
        let sizes: Vec<String> =
            self.sizes.iter().map(|(name, size)| format!("{name} {}", grouped(*size as f64))).collect();
        sizes.join(", ")
    }

    /// A figure of Everturn at its defaults.
    pub(crate) fn reference(&self, figure: &str) -> Option<Spread> {
        self.outcomes.get(REFERENCE)?.spread(figure)
    }

    /// The headline of a system.
    pub(crate) fn headline_of(&self, system: &str) -> Option<Spread> {
        self.outcomes.get(system)?.spread(&self.headline)
    }

    /// How many times as good as this system Everturn is; below 1 it loses.
    pub(crate) fn advantage_over(&self, system: &str) -> Option<f64> {
        let (ours, theirs) = (self.reference(&self.headline)?.median, self.headline_of(system)?.median);
        let ratio = if larger_is_better(&self.headline) { ours / theirs } else { theirs / ours };
        ratio.is_finite().then_some(ratio)
    }
}

impl SystemOutcome {
    /// Adds the reply of a round.
    pub(crate) fn add(&mut self, reply: &MeasureReply) {
        match reply {
            MeasureReply::Absent(reason) => self.absent = Some(reason.clone()),
            MeasureReply::Measured { figures, stopped } => {
                self.stopped_rounds += usize::from(*stopped);
                for (name, value) in figures.iter() {
                    self.figures.entry(name.to_owned()).or_default().push(value);
                }
            }
        }
    }

    /// Adds what the preparation of all rounds says.
    pub(crate) fn add_preparation(&mut self, reply: &MeasureReply) {
        self.add(reply);
        // That a preparation was stopped shows in its figures.
        self.stopped_rounds = 0;
    }

    /// True if further rounds would not measure anything.
    pub(crate) fn is_given_up(&self) -> bool {
        self.absent.is_some() || self.failed.is_some()
    }

    pub(crate) fn spread(&self, figure: &str) -> Option<Spread> {
        let values = self.figures.get(figure)?;
        let median = median(values).ok()?;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use everturn_bench_protocol::Figures;

    use super::*;

    pub(crate) fn outcome(figure: &str, values: &[f64]) -> SystemOutcome {
        SystemOutcome { figures: [(figure.to_owned(), values.to_vec())].into(), ..SystemOutcome::default() }
    }

    fn system(name: &str, absent: Option<&str>) -> MeasuredSystem {
        MeasuredSystem {
            name: name.to_owned(),
            title: name.to_uppercase(),
            about: format!("about {name}"),
            is_peer: name != REFERENCE,
            absent: absent.map(str::to_owned),
        }
    }

    /// Two workloads; `slow` is slower in one of them and faster in the other, `other` is absent.
    pub(crate) fn sample() -> Results {
        let machine = BenchMachine {
            date: "2026-01-02".to_owned(),
            commit: "0123456789ab".to_owned(),
            cores: 2,
            processor: "a processor".to_owned(),
            memory_gb: 8.0,
            kernel: "6.1".to_owned(),
            filesystem: "ext4".to_owned(),
            load_before: 0.1,
            sqlite: "3.53.0".to_owned(),
            debug_build: false,
        };
        let mut results = Results::new(machine, false, 3);
        results.systems =
            vec![system(REFERENCE, None), system("slow", None), system("other", Some("it does not build"))];
        let chain = WorkloadResult {
            name: "chain".to_owned(),
            about: "one after the other".to_owned(),
            sizes: [("steps".to_owned(), 200)].into(),
            headline: "step_s".to_owned(),
            further: vec!["commits_per_step".to_owned()],
            bare_disk: outcome("commit_s", &[0.000_2, 0.000_2, 0.000_3]),
            outcomes: [
                (REFERENCE.to_owned(), outcome("step_s", &[0.000_5, 0.000_4, 0.000_9])),
                (
                    "slow".to_owned(),
                    SystemOutcome { stopped_rounds: 3, ..outcome("step_s", &[0.05, 0.06, 0.04]) },
                ),
            ]
            .into(),
        };
        let children = WorkloadResult {
            name: "children".to_owned(),
            about: "many children".to_owned(),
            sizes: [("children".to_owned(), 500)].into(),
            headline: "per_s".to_owned(),
            further: Vec::new(),
            bare_disk: SystemOutcome::default(),
            outcomes: [
                (REFERENCE.to_owned(), outcome("per_s", &[1_000.0])),
                ("slow".to_owned(), outcome("per_s", &[1_250.0])),
            ]
            .into(),
        };
        results.workloads = vec![chain, children];
        results
    }

    #[test]
    fn a_spread_has_the_median_and_the_ends() {
        let spread = outcome("step_s", &[3.0, 1.0, 2.0]).spread("step_s").unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(SystemOutcome::default().spread("step_s"), None);
    }

    #[test]
    fn rounds_are_collected_by_figure() {
        let mut outcome = SystemOutcome::default();
        for (value, stopped) in [(1.0, false), (2.0, true)] {
            outcome.add(&MeasureReply::Measured { figures: Figures::of([("step_s", value)]), stopped });
        }
        assert_eq!(outcome.figures.get("step_s").unwrap(), &[1.0, 2.0]);
        assert_eq!(outcome.stopped_rounds, 1);
        assert!(!outcome.is_given_up());
        outcome.add(&MeasureReply::Absent("no timers".to_owned()));
        assert!(outcome.is_given_up());
    }

    #[test]
    fn an_advantage_above_one_is_a_win_for_times_and_for_rates() {
        let results = sample();
        assert_eq!(results.workload("chain").unwrap().advantage_over("slow"), Some(100.0));
        assert_eq!(results.workload("children").unwrap().advantage_over("slow"), Some(0.8));
        assert_eq!(results.workload("chain").unwrap().advantage_over("other"), None);
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        sample().write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap(), sample());
        std::fs::write(&path, "{}").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("holds no results"));
    }
}
