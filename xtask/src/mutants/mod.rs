//! `cargo xtask mutants`: small changes of the sources, one at a time, and whether the fast tests notice each.
//!
//! `cargo-mutants` makes the changes and runs the tests. A seed chooses the sample, so that the same seed on the same commit
//! tries the same mutants, and goes on with what is left if it was interrupted. All of it happens in copies of the tree, one
//! for each worker; the copies and what is built in them are kept below `target/mutants` for the next run.

mod accepted;
mod judged;
mod sample;
mod tests_of_crates;
mod worker;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use everturn_built::cargo;

use crate::command_line::MutantsOrder;
use crate::proof::{root, state_of};
use crate::record::{self, LongRun, RecordedFailure, TestResult};
use crate::{date, page};
use judged::JudgedMutants;
use sample::{MutantName, shuffled};
use worker::{Verdicts, Worker};

pub(crate) use sample::without_position;

/// Two workers keep two processors busy: one builds while the other runs tests that mostly wait.
const WORKERS: usize = 2;
/// The percentage of viable mutants that the tests must notice.
const CAUGHT_PERCENT_MIN: usize = 90;
/// The name of the result in the record.
const RECORDED_AS: &str = "mutants";

/// Tries mutants. Returns whether enough were caught. A survivor needs a test, or a reason in `accepted.rs`: the tests of this
/// package require one for each of the last sample.
pub(crate) fn run(order: &MutantsOrder) -> Result<bool, String> {
    let root = root()?;
    record::read(&root)?;
    let (commit, was_clean) = state_of(&root)?;
    require_cargo_mutants(&root)?;
    let began = Instant::now();
    let judged = JudgedMutants::of_commit(&root, &commit, was_clean);
    let workers = (0..WORKERS)
        .map(|number| Worker::new(&root, number, judged.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let all = workers.first().ok_or("there is no worker")?.list()?;
    let verdicts = match &order.only {
        Some(text) => {
            let chosen: Vec<MutantName> = all.into_iter().filter(|name| name.0.contains(text)).collect();
            println!("{} mutants contain {text:?}", chosen.len());
            worker::try_all(&workers, &chosen)?
        }
        None => sampled(&workers, all, order)?,
    };
    let result = result_of(&verdicts, order, began.elapsed().as_secs_f64());
    print(&result);
    let is_held = result.failures.is_empty();
    if order.only.is_none() {
        let minutes = (began.elapsed().as_secs() + 30) / 60;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let is_clean = was_clean && state_of(&root)? == (commit.clone(), true);
        let (date, seed, tests) = (date::today(), order.seed, vec![result]);
        // A proof run may have ended meanwhile.
        let mut runs = record::read(&root)?;
        runs.push(LongRun { date, commit, is_clean, minutes, seed, processors, tests });
        record::write(&root, &runs)?;
        page::write(&root, &runs)?;
        println!("{} and {} are written", record::RECORD, page::PAGE);
    }
    Ok(is_held)
}

/// Tries mutants in the order of the seed until enough of them were viable. Whether one is viable, only a build can tell.
fn sampled(workers: &[Worker], all: Vec<MutantName>, order: &MutantsOrder) -> Result<Verdicts, String> {
    println!(
        "{} mutants are possible; {} viable ones are tried, seed {}",
        all.len(),
        order.sample,
        order.seed
    );
    let mut waiting = shuffled(all, order.seed);
    let mut verdicts = Verdicts::default();
    while verdicts.viable() < order.sample as usize && !waiting.is_empty() {
        let missing = order.sample as usize - verdicts.viable();
        let chosen: Vec<MutantName> = waiting.drain(..missing.min(waiting.len())).collect();
        verdicts.add(worker::try_all(workers, &chosen)?);
    }
    Ok(verdicts)
}

fn result_of(verdicts: &Verdicts, order: &MutantsOrder, seconds: f64) -> TestResult {
    let hung = verdicts.hung.len();
    let (viable, caught) = (verdicts.viable(), verdicts.caught.len() + hung);
    let counts = [
        ("viable mutants", viable),
        ("mutants caught", caught),
        ("of them by a test that hangs", hung),
        ("mutants that survived", verdicts.missed.len()),
        ("mutants that do not compile", verdicts.unviable.len()),
    ];
    let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count as u64)).collect();
    let survivors = verdicts.missed.iter().map(|name| name.0.clone()).collect();
    let mut failures = Vec::new();
    if caught * 100 < viable * CAUGHT_PERCENT_MIN {
        let what = format!("{caught} of {viable} mutants were caught");
        let command = format!("cargo xtask mutants --sample {} --seed {}", order.sample, order.seed);
        failures.push(RecordedFailure { seed: Some(order.seed), command, what });
    }
    TestResult { seconds, counts, failures, survivors, ..TestResult::new("R15", RECORDED_AS) }
}

/// Why no test noticed a mutant, or which one does since.
pub(crate) fn survivor_reason(mutant: &str) -> Option<&'static str> {
    accepted::reason(&without_position(mutant))
}

fn print(result: &TestResult) {
    println!("\n{}", result.counts());
    let caught = result.counts().get("mutants caught");
    let viable = result.counts().get("viable mutants").max(1);
    println!("score: {} %", caught * 100 / viable);
    for mutant in &result.survivors {
        let reason = survivor_reason(mutant).unwrap_or("no test notices it, and no reason is given");
        println!("survived: {mutant}\n    {reason}");
    }
    for failure in &result.failures {
        println!("{}", failure.what);
    }
}

/// Installs `cargo-mutants` if it is missing.
fn require_cargo_mutants(root: &Path) -> Result<(), String> {
    let is_installed = || {
        let mut version = cargo(root);
        version.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    if is_installed() {
        return Ok(());
    }
    println!("cargo-mutants is not installed; cargo install --locked cargo-mutants takes a few minutes");
    let mut install: Command = cargo(root);
    install.args(["install", "--locked", "cargo-mutants"]);
    let status = install.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() || !is_installed() {
        return Err("cargo-mutants cannot be installed (see above). Install it by hand: \
                    cargo install --locked cargo-mutants"
            .to_owned());
    }
    Ok(())
}
