//! R1, R8 and R13 on the SQLite provider: the simulated world, with the writer over a disk that fails.

use everturn_crash_tests::simulated::{found, found_carelessly};
use everturn_proof::{Counts, proof};
use everturn_simulation::{Fault, Plan, Theme, prove_on, run_on, run_traced_on};

/// What a disk does wrong, and what it costs: batches with turns in them that had begun.
const DISK_FAULTS: [&str; 6] = ["ReadError", "WriteError", "SyncError", "DiskFull", "PowerCut", "LostTurn"];

/// Three nodes on one file; calls, processes, clocks, disk and power fail.
#[test]
fn r1_no_promise_breaks_in_any_storm_on_sqlite() {
    let proof = proof!("R1", "r1_no_promise_breaks_in_any_storm_on_sqlite", 120);
    let counts =
        proof.run("seeds", |seed| prove_on(found, Theme::Storms, Plan::on_disk(Theme::Storms, seed)));
    // One seed alone need not have them all.
    if counts.get("seeds") >= 100 {
        for fault in DISK_FAULTS {
            proof.require(&counts, fault, 20);
        }
    }
}

/// Random programs, killed again and again, come to what the model says.
#[test]
fn r13_random_programs_end_as_predicted_on_sqlite() {
    let proof = proof!("R13", "r13_random_programs_end_as_predicted_on_sqlite", 60);
    proof.run("seeds", |seed| prove_on(found, Theme::Programs, Plan::on_disk(Theme::Programs, seed)));
}

/// Clocks a day apart, set back and forth, over a file whose locks tell the time of the wall.
#[test]
fn r8_no_timer_is_early_or_lost_whatever_the_clocks_say_on_sqlite() {
    let proof = proof!("R8", "r8_no_timer_is_early_or_lost_whatever_the_clocks_say_on_sqlite", 40);
    let counts =
        proof.run("seeds", |seed| prove_on(found, Theme::Clocks, Plan::on_disk(Theme::Clocks, seed)));
    // One seed alone need not have so many.
    if counts.get("seeds") >= 40 {
        proof.require(&counts, "StoreClock", 5 * counts.get("seeds"));
    }
}

/// What the long runs found: a renewal that its holder had stopped waiting for came into effect, and the harness took the
/// holder for one whose lock had ended.
#[test]
fn seeds_that_once_broke_something_on_sqlite() {
    for seed in [1_794_813_409_000_094] {
        if let Err(failure) = prove_on(found, Theme::Storms, Plan::on_disk(Theme::Storms, seed)) {
            panic!("seed {seed}: {}", failure.what());
        }
    }
}

#[test]
fn r1_the_same_seed_gives_the_same_trace_on_sqlite() {
    const TWICE: &str = "worlds lived through twice";
    const LINES_MIN: usize = 1_000;
    let proof = proof!("R1", "r1_the_same_seed_gives_the_same_trace_on_sqlite", 20);
    proof.run(TWICE, |seed| {
        let plan = Plan::on_disk(Theme::Storms, seed);
        let (once, again) = (run_traced_on(found, &plan).1, run_traced_on(found, &plan).1);
        if once.lines().count() < LINES_MIN {
            return Err(format!("only {} lines were written", once.lines().count()));
        }
        if once != again {
            let difference = once.lines().zip(again.lines()).find(|(a, b)| a != b);
            return Err(format!("it went two ways, first difference: {difference:#?}"));
        }
        let mut counts = Counts::default();
        counts.add(TWICE, 1);
        counts.add("equal lines", once.lines().count() as u64);
        Ok(counts)
    });
}

#[test]
fn what_kills_every_node_is_poisoned_on_sqlite_and_nothing_else_is() {
    for seed in 1..=20 {
        let outcome = run_on(found, &Plan::poisoned(seed));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}\n{}", outcome.violations, outcome.faults);
        assert_eq!(
            outcome.counts.faults.get(&Fault::CrashBefore),
            Some(&10),
            "seed {seed}: one death an attempt"
        );
    }
}

/// The harness itself: a store that acknowledges what is not on the disk is caught.
#[test]
fn a_store_that_does_not_sync_is_noticed() {
    let noticed = (1..=20).filter(|seed| {
        let violations = run_on(found_carelessly, &Plan::on_disk(Theme::Storms, *seed)).violations;
        violations.iter().any(|violation| violation.contains("after a power cut: G2"))
    });
    assert!(noticed.count() >= 3, "power cuts must take back what was not synced");
}
