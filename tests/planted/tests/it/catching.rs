//! Every bug of the catalogue, and the proof that must catch it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use everturn_core::Bug;
use everturn_planted_bugs::{Binary, CATALOGUE, Proof, built, try_out};
use everturn_proof::{Counts, Report, State};

/// How many proofs run at the same time. Each keeps all processors busy, but not all the time.
const SIDE_BY_SIDE: usize = 2;

/// All proofs together may take no longer, once they are built, on a machine that has other things to do too.
const BUDGET: Duration = Duration::from_secs(300);

/// The proofs are built once; whoever comes first waits for it.
static BINARIES: LazyLock<Result<BTreeMap<&'static str, Binary>, String>> = LazyLock::new(|| {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    built(scratch.parent().unwrap())
});

/// Some proofs measure time: the two tests here do not run at the same time.
static ALONE: Mutex<()> = Mutex::new(());

fn binary(proof: &Proof) -> &'static Binary {
    match &*BINARIES {
        Ok(binaries) => &binaries[proof.package.name],
        Err(error) => panic!("{error}"),
    }
}

/// Does something with each of them, a few at a time. Says how long that took.
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

/// Says something at once, past the test runner. Nobody may be there to read it.
fn say(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

#[test]
fn r15_without_a_bug_every_proof_holds() {
    binary(&CATALOGUE[0].proof);
    let mut proofs: Vec<Proof> = CATALOGUE.iter().map(|planted| planted.proof).collect();
    proofs.sort_by_key(|proof| proof.tests);
    proofs.dedup();
    let failures = Mutex::new(Vec::new());
    each(&proofs, |proof| {
        let trial = try_out(binary(proof), proof, None, &[]).unwrap();
        say(&format!("  no bug: {} {} holds: {:.1} s", proof.id, proof.tests, trial.took.as_secs_f64()));
        if !trial.held || trial.output.contains("running 0 tests") {
            failures.lock().unwrap().push(format!("{} {}:\n{}", proof.id, proof.tests, trial.output));
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "without a bug these do not hold:\n{}", failures.join("\n"));
}

#[test]
fn r15_every_planted_bug_is_caught() {
    binary(&CATALOGUE[0].proof);
    let failures = Mutex::new(Vec::new());
    let took = each(CATALOGUE, |planted| {
        let (name, proof) = (planted.bug.name(), &planted.proof);
        let trial = try_out(binary(proof), proof, Some(planted.bug), planted.says).unwrap();
        let verdict = if trial.caught { "caught" } else { "NOT CAUGHT" };
        let (id, tests, seconds) = (proof.id, proof.tests, trial.took.as_secs_f64());
        say(&format!("  {name}: {verdict} by {id} {tests}: {seconds:.1} s"));
        if !trial.caught {
            let why = if trial.held { "the proof held" } else { "the proof failed for another reason" };
            let breaks = planted.breaks;
            failures.lock().unwrap().push(format!("{name} ({breaks}): {why}\n{}", trial.output));
        }
    });
    let failures = failures.into_inner().unwrap();
    let (tried, caught) = (CATALOGUE.len(), CATALOGUE.len() - failures.len());
    let seconds = took.as_secs_f64();
    let mut counts = Counts::default();
    counts.add("bugs planted", Bug::ALL.len() as u64);
    counts.add("times tried", tried as u64);
    counts.add("times caught", caught as u64);
    let (id, test) = ("R15".to_owned(), "r15_every_planted_bug_is_caught".to_owned());
    let state = State::Done { seed: 1, seconds };
    say(&Report { id, test, state, counts }.to_string());
    assert!(failures.is_empty(), "{} bugs were not caught:\n{}", failures.len(), failures.join("\n"));
    assert!(took < BUDGET, "all were caught, but it took {seconds:.0} s");
}

#[test]
fn the_catalogue_names_every_bug_and_no_pair_twice() {
    let mut pairs: Vec<(&str, &str)> =
        CATALOGUE.iter().map(|planted| (planted.bug.name(), planted.proof.tests)).collect();
    pairs.sort_unstable();
    let all_pairs = pairs.len();
    pairs.dedup();
    assert_eq!(pairs.len(), all_pairs, "a bug is tried twice in one proof");
    let mut named: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
    named.dedup();
    let mut all: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    all.sort_unstable();
    assert_eq!(named, all);
    all.dedup();
    assert_eq!(named, all, "two bugs have one name");
    assert!(all.len() >= 12, "a dozen bugs at least");
    let is_kebab = |name: &&str| {
        name.split('-').all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()))
    };
    assert!(all.iter().all(is_kebab), "{all:?}");
}
