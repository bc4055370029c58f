//! Every bug, and the proof that must catch it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use everturn_built::BuiltBinary;
use everturn_planted_bugs::{BUGS, KEPT_MODULES, ProofBinaries, ProofRun, TRIALS, build, plant, run};
use everturn_proof::{Counts, ProofReport, ProofState};

/// How many proofs run at the same time. Each keeps all processors busy, but not all the time.
const SIDE_BY_SIDE: usize = 2;

/// The time limit for all proofs together, once they are built. It allows for a busy machine.
const BUDGET: Duration = Duration::from_secs(300);

/// The copy is built once, by the test that needs it first.
static BINARIES: LazyLock<Result<ProofBinaries, String>> = LazyLock::new(|| {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = scratch.parent().unwrap_or(scratch);
    let copy = target.join("planted").join("tree");
    plant(&workspace(), &copy, BUGS, KEPT_MODULES)?;
    build(&copy, target)
});

/// Some proofs measure time: the two tests here do not run at the same time.
static ALONE: Mutex<()> = Mutex::new(());

/// The folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn binary(proof: &ProofRun) -> &'static BuiltBinary {
    match &*BINARIES {
        Ok(binaries) => binaries.of(proof).unwrap(),
        Err(error) => panic!("{error}"),
    }
}

/// Calls `run` for each item, a few at a time. Returns how long that took.
fn each<T: Copy + Send>(items: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) -> Duration {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    let waiting = Mutex::new(items.into_iter().collect::<Vec<T>>().into_iter());
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(next) = next else { return };
                    run(next);
                }
            });
        }
    });
    began.elapsed()
}

/// Prints a line at once, past the test runner.
fn print_now(line: &str) {
    // The test must not fail because its output is closed.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

#[test]
fn r15_without_a_bug_every_proof_holds() {
    binary(&TRIALS[0].proof);
    let mut proofs: Vec<ProofRun> = Vec::new();
    for proof in TRIALS.iter().map(|trial| trial.proof) {
        if !proofs.contains(&proof) {
            proofs.push(proof);
        }
    }
    let failures = Mutex::new(Vec::new());
    each(&proofs, |proof| {
        let result = run(binary(proof), proof, None, &[]).unwrap();
        let (id, tests, seconds) = (proof.id, proof.tests, result.took.as_secs_f64());
        print_now(&format!("  no bug: {id} {tests} holds: {seconds:.1} s"));
        if !result.held || result.output.contains("running 0 tests") {
            failures.lock().unwrap().push(format!("{id} {tests}:\n{}", result.output));
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "without a bug these do not hold:\n{}", failures.join("\n"));
}

#[test]
fn r15_every_planted_bug_is_caught() {
    binary(&TRIALS[0].proof);
    let failures = Mutex::new(Vec::new());
    let took = each(TRIALS, |trial| {
        let (bug, proof) = (trial.bug, &trial.proof);
        let result = run(binary(proof), proof, Some(bug), trial.prints).unwrap();
        let verdict = if result.caught { "caught" } else { "NOT CAUGHT" };
        let (id, tests, seconds) = (proof.id, proof.tests, result.took.as_secs_f64());
        print_now(&format!("  {bug}: {verdict} by {id} {tests}: {seconds:.1} s"));
        if !result.caught {
            let why = if result.held { "the proof held" } else { "the proof failed for another reason" };
            let breaks = trial.breaks;
            failures.lock().unwrap().push(format!("{bug} ({breaks}): {why}\n{}", result.output));
        }
    });
    let failures = failures.into_inner().unwrap();
    let (tried, caught) = (TRIALS.len(), TRIALS.len() - failures.len());
    let seconds = took.as_secs_f64();
    let mut counts = Counts::default();
    counts.add("bugs planted", BUGS.len() as u64);
    counts.add("times tried", tried as u64);
    counts.add("times caught", caught as u64);
    let (id, test) = ("R15".to_owned(), "r15_every_planted_bug_is_caught".to_owned());
    let state = ProofState::Done { seed: 1, seconds };
    print_now(&ProofReport { id, test, state, counts }.to_string());
    assert!(failures.is_empty(), "{} bugs were not caught:\n{}", failures.len(), failures.join("\n"));
    assert!(took < BUDGET, "all were caught, but it took {seconds:.0} s");
}

#[test]
fn every_bug_is_tried_and_no_pair_is_tried_twice() {
    let pairs: BTreeSet<(&str, &str)> = TRIALS.iter().map(|trial| (trial.bug, trial.proof.tests)).collect();
    assert_eq!(pairs.len(), TRIALS.len(), "a bug is tried twice with one proof");
    let tried: BTreeSet<&str> = pairs.iter().map(|(bug, _)| *bug).collect();
    let planted: BTreeSet<&str> = BUGS.iter().map(|bug| bug.name).collect();
    assert_eq!(tried, planted);
    assert_eq!(planted.len(), BUGS.len(), "two bugs have one name");
    assert!(planted.len() >= 61 && pairs.len() >= 65, "no bug and no trial may get lost");
    let is_kebab = |name: &&str| {
        name.split('-').all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()))
    };
    assert!(planted.iter().all(is_kebab), "{planted:?}");
}

#[test]
fn every_bug_finds_its_place_in_the_sources() {
    let folder = tempfile::tempdir().unwrap();
    let failures: Vec<String> = BUGS
        .iter()
        .filter_map(|bug| plant(&workspace(), &folder.path().join("tree"), &[*bug], &[]).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
