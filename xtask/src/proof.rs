//! `cargo xtask proof`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everturn_built::cargo;

use crate::catalogue::{HowToRun, PROOFS, ProofEntry, STRESS_TESTED};
use crate::command_line::ProofOrder;
use crate::progress::Progress;
use crate::record::{self, LongRun, TestResult};
use crate::scratch::{ScratchFolder, ScratchUse, remove_abandoned};
use crate::test_binary::{TestBinary, build};
use crate::{date, page, table, test_run};

/// A long run that starts a second later begins this many seeds later, so that two runs have different seeds.
const SEEDS_A_SECOND: u64 = 1_000_000;

/// Runs the proofs. Returns whether all held.
pub(crate) fn run(order: &ProofOrder) -> Result<bool, String> {
    let root = root()?;
    let proofs: Vec<&'static ProofEntry> = PROOFS
        .iter()
        .filter(|proof| order.only.is_empty() || order.only.iter().any(|id| id == proof.id))
        .collect();
    // A damaged record is found now, not at the end of a run of hours.
    record::read(&root)?;
    remove_abandoned();
    let began = state_of(&root)?;
    let mut session = ProofSession {
        binaries: build(&root)?,
        root,
        progress: Progress::new(),
        tests: Vec::new(),
        scratch: None,
    };
    for proof in &proofs {
        session.as_in_every_submission(proof, order.seed)?;
    }
    // The seeds after those that were just run.
    let seed =
        order.seed.map_or_else(seconds_since_epoch, |seed| seed.wrapping_add(1)).wrapping_mul(SEEDS_A_SECOND);
    if let Some(minutes) = order.long_minutes {
        session.at_length(Duration::from_secs(minutes * 60), seed)?;
    }
    let ProofSession { root, progress, tests, scratch, .. } = session;
    println!("\n{}", table::of(&tests));
    if let Some((proof, ScratchUse { peak_bytes, .. })) = scratch {
        println!("every scratch folder is removed; the largest, of {proof}, had {} MiB", peak_bytes >> 20);
    }
    let failures = table::failures(&tests);
    let all_held = failures.is_empty();
    print!("{failures}");
    if order.long_minutes.is_some() {
        let minutes = (progress.elapsed().as_secs() + 30) / 60;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        // Another run may have ended meanwhile.
        let mut runs = record::read(&root)?;
        let (commit, is_clean) = state_of(&root)?;
        let is_clean = is_clean && began == (commit.clone(), true);
        let commit = began.0;
        runs.push(LongRun { date: date::today(), commit, is_clean, minutes, seed, processors, tests });
        record::write(&root, &runs)?;
        page::write(&root, &runs)?;
        println!("{} and {} are written", record::RECORD, page::PAGE);
    }
    println!("{}", if all_held { "every proof held" } else { "a proof failed" });
    Ok(all_held)
}

/// A run of the command.
struct ProofSession {
    root: PathBuf,
    binaries: Vec<TestBinary>,
    progress: Progress,
    /// The results so far.
    tests: Vec<TestResult>,
    /// The proof that needed the most space for temporary files.
    scratch: Option<(&'static str, ScratchUse)>,
}

impl ProofSession {
    /// Runs a proof as `scripts/test` does.
    fn as_in_every_submission(
        &mut self,
        proof: &'static ProofEntry,
        seed: Option<u64>,
    ) -> Result<(), String> {
        let seed = seed.map(|seed| ("EVERTURN_PROOF_SEED", seed.to_string()));
        let before = self.tests.len();
        for command in self.commands(proof) {
            self.run(proof, command, seed.as_slice())?;
        }
        if self.tests.len() == before {
            return Err(format!("there is no test of {}", proof.id));
        }
        Ok(())
    }

    /// Gives every proof that counts cases an equal share of the remaining time, on other seeds.
    fn at_length(&mut self, total: Duration, seed: u64) -> Result<(), String> {
        let once = |id: &str| PROOFS.iter().any(|proof| proof.id == id && proof.is_run_once());
        let counting = |test: &TestResult| test.seconds > 0.0 && !once(&test.proof);
        let mut tests: Vec<(String, String)> = self
            .tests
            .iter()
            .filter(|test| counting(test))
            .map(|t| (t.proof.clone(), t.test.clone()))
            .collect();
        while let Some((id, _)) = tests.first().cloned() {
            let proofs_left =
                PROOFS.iter().filter(|proof| tests.iter().any(|(id, _)| id == proof.id)).count();
            let tests_left = tests.iter().filter(|(other, _)| *other == id).count();
            let (_, test) = tests.remove(0);
            let left = total.saturating_sub(self.progress.elapsed());
            let seconds = left.as_secs() / (proofs_left * tests_left).max(1) as u64;
            let Some(proof) = PROOFS.iter().find(|proof| proof.id == id) else { continue };
            if seconds == 0 {
                self.progress.print(&format!("{id} {test}: no time was left"));
                continue;
            }
            let variables =
                [("EVERTURN_PROOF_SECONDS", seconds.to_string()), ("EVERTURN_PROOF_SEED", seed.to_string())];
            for command in self.commands_of(|name| name.ends_with(&test)) {
                self.run(proof, command, &variables)?;
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        proof: &'static ProofEntry,
        mut command: Command,
        variables: &[(&str, String)],
    ) -> Result<(), String> {
        self.progress.show(&format!("{}: {}", proof.id, proof.what));
        command.env("EVERTURN_PROOF_PROGRESS", "1");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let scratch = ScratchFolder::new()?;
        command.env("TMPDIR", scratch.path());
        let tests = test_run::follow(proof.id, command, &mut self.progress);
        // Whatever became of the tests, their files are removed before the next begin.
        let used = scratch.remove()?;
        if used.files_left > 0 {
            self.progress
                .print(&format!("{}: {} files were left and are removed", proof.id, used.files_left));
        }
        if self.scratch.is_none_or(|(_, most)| most.peak_bytes < used.peak_bytes) {
            self.scratch = Some((proof.id, used));
        }
        for test in tests? {
            record::add(&mut self.tests, test);
        }
        Ok(())
    }

    fn commands(&self, proof: &ProofEntry) -> Vec<Command> {
        match proof.how {
            HowToRun::Tests(_) => self.commands_of(|test| proof.has(test)),
            HowToRun::StressSettings => {
                let mut suite = cargo(&self.root);
                suite
                    .args(["test", "--test", "it", "--locked", "--no-fail-fast"])
                    .env("EVERTURN_STRESS", "1");
                suite.args(STRESS_TESTED.iter().flat_map(|package| ["--package", package]));
                vec![suite]
            }
        }
    }

    /// The commands that run these tests, one for each binary with such tests.
    fn commands_of(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Command> {
        let commands = self.binaries.iter().filter_map(|binary| {
            let tests: Vec<&String> = binary.tests.iter().filter(|test| is_wanted(test)).collect();
            let mut command = Command::new(&binary.executable);
            command.args(&tests).args(["--exact", "--nocapture"]).current_dir(&binary.folder);
            (!tests.is_empty()).then_some(command)
        });
        commands.collect()
    }
}

/// The root of the workspace: the folder above this package.
pub(crate) fn root() -> Result<PathBuf, String> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run it as: cargo xtask")?;
    Path::new(&package)
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| "the package has no folder above it".to_owned())
}

/// The commit, and whether the sources are unchanged since.
pub(crate) fn state_of(root: &Path) -> Result<(String, bool), String> {
    let git = |arguments: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(arguments).current_dir(root).output();
        let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "git {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"])?;
    Ok((commit, changed.is_empty()))
}

fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
