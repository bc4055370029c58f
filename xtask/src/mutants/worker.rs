//! One copy of the tree, in which one mutant after the other is tried.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use everturn_built::cargo;

use super::judged::JudgedMutants;
use super::sample::MutantName;
use super::tests_of_crates::{MUTATED_CRATES, MutatedCrate, TestChoice};

/// How many mutants one call of `cargo-mutants` tries: an interrupted run loses as many.
const MUTANTS_A_CALL: usize = 8;
/// The folder that `cargo-mutants` makes in its output folder.
const OUTPUT: &str = "mutants.out";

/// What became of mutants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdicts {
    /// A test failed.
    pub(crate) caught: Vec<MutantName>,
    /// A test hung until its time was up.
    pub(crate) hung: Vec<MutantName>,
    /// All tests passed.
    pub(crate) missed: Vec<MutantName>,
    /// They do not compile.
    pub(crate) unviable: Vec<MutantName>,
}

impl Verdicts {
    pub(crate) fn viable(&self) -> usize {
        self.caught.len() + self.hung.len() + self.missed.len()
    }

    pub(crate) fn has(&self, name: &MutantName) -> bool {
        [&self.caught, &self.hung, &self.missed, &self.unviable].iter().any(|names| names.contains(name))
    }

    fn retain(&mut self, keep: impl Fn(&MutantName) -> bool) {
        for names in [&mut self.caught, &mut self.hung, &mut self.missed, &mut self.unviable] {
            names.retain(&keep);
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.caught.extend(other.caught);
        self.hung.extend(other.hung);
        self.missed.extend(other.missed);
        self.unviable.extend(other.unviable);
    }
}

/// Tries these mutants, each worker a part of them.
pub(crate) fn try_all(workers: &[Worker], names: &[MutantName]) -> Result<Verdicts, String> {
    let mut verdicts = Verdicts::default();
    thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter()
            .map(|worker| {
                // Every crate's mutants are dealt out in turn, so that all workers end at about the same time.
                let part = MUTATED_CRATES.iter().flat_map(|mutated| {
                    let of_crate = names.iter().filter(move |name| mutated.has(name));
                    of_crate.skip(worker.number).step_by(workers.len()).cloned()
                });
                let part: Vec<MutantName> = part.collect();
                scope.spawn(move || worker.try_each(&part))
            })
            .collect();
        for thread in running {
            verdicts.add(thread.join().map_err(|_| "a worker panicked".to_owned())??);
        }
        Ok::<(), String>(())
    })?;
    let judged = verdicts.viable() + verdicts.unviable.len();
    if judged != names.len() {
        return Err(format!("cargo-mutants judged {judged} of {} mutants", names.len()));
    }
    Ok(verdicts)
}

/// A copy of the tree with a target folder of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    number: usize,
    tree: PathBuf,
    target: PathBuf,
    output: PathBuf,
    judged: JudgedMutants,
}

impl Worker {
    /// Brings the copy up to date. What an interrupted run left mutated in it is written again.
    pub(crate) fn new(root: &Path, number: usize, judged: JudgedMutants) -> Result<Self, String> {
        let folder = root.join("target/mutants").join(number.to_string());
        let worker = Self {
            number,
            tree: folder.join("tree"),
            target: folder.join("target"),
            output: folder.join("out"),
            judged,
        };
        everturn_planted_bugs::plant(root, &worker.tree, &[], &[])?;
        std::fs::create_dir_all(&worker.output)
            .map_err(|error| format!("{} cannot be made: {error}", worker.output.display()))?;
        Ok(worker)
    }

    /// All mutants of all crates that are mutated.
    pub(crate) fn list(&self) -> Result<Vec<MutantName>, String> {
        let mut list = self.cargo();
        list.arg("mutants").arg("--dir").arg(&self.tree).args(["--list", "--colors", "never"]);
        list.args(MUTATED_CRATES.iter().flat_map(|mutated| ["--package", mutated.package]));
        let output = list.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cargo mutants cannot be run: {error}"))?;
        if !output.status.success() {
            return Err(format!("{list:?} failed"));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter(|line| line.contains(": ")).map(|line| MutantName(line.to_owned()));
        Ok(names.filter(|name| MUTATED_CRATES.iter().any(|mutated| mutated.has(name))).collect())
    }

    /// Tries mutants with the fast tests of their crate, then those that survive with more tests.
    fn try_each(&self, names: &[MutantName]) -> Result<Verdicts, String> {
        let mut all = Verdicts::default();
        // The packages whose tests hold without a mutant.
        let mut holding = BTreeSet::new();
        for mutated in &MUTATED_CRATES {
            let mut left: Vec<MutantName> = names.iter().filter(|name| mutated.has(name)).cloned().collect();
            for tests in mutated.tests {
                let mut verdicts = self.judged.of(tests.package, &left)?;
                let untried: Vec<MutantName> =
                    left.iter().filter(|name| !verdicts.has(name)).cloned().collect();
                if !untried.is_empty() && holding.insert(tests.package) {
                    self.run_without_mutant(tests)?;
                }
                for part in untried.chunks(MUTANTS_A_CALL) {
                    let tried = self.try_with(mutated, tests, part)?;
                    self.judged.add(tests.package, &tried)?;
                    verdicts.add(tried);
                }
                left = std::mem::take(&mut verdicts.missed);
                all.add(verdicts);
            }
            all.missed.extend(left);
        }
        Ok(all)
    }

    /// Runs tests that are about to be run with mutants: if they fail without one, they say nothing.
    fn run_without_mutant(&self, tests: &TestChoice) -> Result<(), String> {
        let mut command = self.cargo();
        command.args(["test", "--quiet", "--package", tests.package]).args(tests.arguments);
        let output = command.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Err(format!("the tests of {} fail without a mutant:\n{printed}", tests.package))
    }

    /// Tries mutants with these tests.
    fn try_with(
        &self,
        mutated: &MutatedCrate,
        tests: &TestChoice,
        names: &[MutantName],
    ) -> Result<Verdicts, String> {
        match std::fs::remove_dir_all(self.output.join(OUTPUT)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("{} cannot be removed: {error}", self.output.display()));
            }
            _ => {}
        }
        let mut command = self.cargo();
        command.arg("mutants").arg("--dir").arg(&self.tree);
        command.args(["--in-place", "--no-shuffle", "--caught", "--unviable", "--colors", "never"]);
        command.args(["--package", mutated.package, "--test-package", tests.package]);
        // They were run without a mutant above, the right ones once.
        command.args(["--baseline", "skip"]);
        command.arg("--output").arg(&self.output);
        command.args(["--timeout", &tests.seconds_max.to_string(), "--build-timeout", "600"]);
        command.args(names.iter().flat_map(|name| ["--re".to_owned(), name.pattern()]));
        // Some kinds of mutants ignore the patterns, so the files are named as well, and others are left out below.
        let files: BTreeSet<&str> = names.iter().map(MutantName::file).collect();
        command.args(files.into_iter().flat_map(|file| ["--file", file]));
        command.arg("--").args(tests.arguments);
        let status = command.status().map_err(|error| format!("cargo mutants cannot be run: {error}"))?;
        // 2: mutants were missed. 3: tests timed out. Everything else is a failure of the run itself.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            let package = mutated.package;
            return Err(format!(
                "cargo mutants ended with {status} on {package}, see above; the same command goes on with what is left"
            ));
        }
        let mut verdicts = Verdicts {
            caught: self.read("caught")?,
            hung: self.read("timeout")?,
            missed: self.read("missed")?,
            unviable: self.read("unviable")?,
        };
        verdicts.retain(|name| names.contains(name));
        Ok(verdicts)
    }

    /// The mutants of the last run with this outcome.
    fn read(&self, outcome: &str) -> Result<Vec<MutantName>, String> {
        let path = self.output.join(OUTPUT).join(format!("{outcome}.txt"));
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Ok(text.lines().map(|line| MutantName(line.to_owned())).collect())
    }

    /// Tests are built as fast as possible: what they cost is mostly the build.
    fn cargo(&self) -> Command {
        let mut command = cargo(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.target);
        command.envs([
            ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
            ("CARGO_PROFILE_DEV_DEBUG", "0"),
            ("CARGO_INCREMENTAL", "1"),
            ("RUST_BACKTRACE", "0"),
        ]);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            // The variables of the cargo that runs this command describe another package.
            if text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
                || text.starts_with("EVERTURN_")
            {
                command.env_remove(name);
            }
        }
        command
    }
}
