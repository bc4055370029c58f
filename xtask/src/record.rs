//! The record of all long runs, from which the page is written.

use std::path::Path;

use everturn_proof::Counts;
use serde::{Deserialize, Serialize};

/// Where the record is.
pub(crate) const RECORD: &str = "docs/reliability.json";

/// A long run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LongRun {
    pub(crate) date: String,
    pub(crate) commit: String,
    /// Whether the sources were unchanged since the commit.
    pub(crate) is_clean: bool,
    pub(crate) minutes: u64,
    pub(crate) seed: u64,
    pub(crate) processors: u64,
    pub(crate) tests: Vec<TestResult>,
}

/// The result of a test of a proof.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TestResult {
    pub(crate) proof: String,
    pub(crate) test: String,
    pub(crate) seconds: f64,
    pub(crate) counts: Vec<(String, u64)>,
    pub(crate) failures: Vec<RecordedFailure>,
    /// Of mutants: those that no test noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) survivors: Vec<String>,
}

/// A case that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedFailure {
    pub(crate) seed: Option<u64>,
    /// The command that runs it again.
    pub(crate) command: String,
    pub(crate) what: String,
}

impl TestResult {
    pub(crate) fn new(proof: &str, test: &str) -> Self {
        Self {
            proof: proof.to_owned(),
            test: test.to_owned(),
            seconds: 0.0,
            counts: Vec::new(),
            failures: Vec::new(),
            survivors: Vec::new(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.counts.iter().for_each(|(name, count)| counts.add(name, *count));
        counts
    }

    /// Adds another run of the same test.
    pub(crate) fn add(&mut self, other: Self) {
        let mut counts = self.counts();
        counts.add_all(&other.counts());
        self.counts = counts.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        self.seconds += other.seconds;
        self.failures.extend(other.failures);
        self.survivors.extend(other.survivors);
    }
}

/// The last sample of mutants, and its run.
pub(crate) fn last_mutants(runs: &[LongRun]) -> Option<(&LongRun, &TestResult)> {
    let samples = runs.iter().flat_map(|run| run.tests.iter().map(move |test| (run, test)));
    samples.rev().find(|(_, test)| test.counts().get("viable mutants") > 0)
}

/// Adds a result to those of the same test.
pub(crate) fn add(tests: &mut Vec<TestResult>, test: TestResult) {
    match tests.iter_mut().find(|other| (&other.proof, &other.test) == (&test.proof, &test.test)) {
        Some(same) => same.add(test),
        None => tests.push(test),
    }
}

/// All runs, the oldest first.
pub(crate) fn read(root: &Path) -> Result<Vec<LongRun>, String> {
    match std::fs::read(root.join(RECORD)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("{RECORD} is damaged: {error}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{RECORD} cannot be read: {error}")),
    }
}

pub(crate) fn write(root: &Path, runs: &[LongRun]) -> Result<(), String> {
    let mut text = serde_json::to_string_pretty(runs).map_err(|error| error.to_string())?;
    text.push('\n');
    std::fs::write(root.join(RECORD), text).map_err(|error| format!("{RECORD} cannot be written: {error}"))
}
