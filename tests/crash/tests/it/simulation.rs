//! R1, R8 and R13 on the SQLite provider: the simulation, with the writer on a failing disk.

use everturn_crash_tests::simulated_store::{sqlite_store, sqlite_store_without_sync};
use everturn_proof::{Counts, is_stress_run, proof};
use everturn_simulation::{Fault, Plan, Theme, prove_on, run_on, run_traced_on};

/// The faults of a disk, and their effect: lost batches with turns in them.
const DISK_FAULTS: [&str; 6] = ["ReadError", "WriteError", "SyncError", "DiskFull", "PowerCut", "LostTurn"];

/// Three nodes on one file; calls, processes, clocks, disk and power fail.
#[test]
fn r1_no_promise_breaks_under_faults_on_sqlite() {
    let proof = proof!("R1", "r1_no_promise_breaks_under_faults_on_sqlite", 120);
    let counts =
        proof.run("seeds", |seed| prove_on(sqlite_store, Theme::Faults, Plan::on_disk(Theme::Faults, seed)));
    // A single seed need not have them all.
    if counts.get("seeds") >= 100 {
        for fault in DISK_FAULTS {
            proof.require(&counts, fault, 20);
        }
        if !is_stress_run() {
            proof.require(&counts, "fused steps", 1_000);
        }
    }
}

/// Random programs end as the model predicts, although processes are killed again and again.
#[test]
fn r13_random_programs_end_as_predicted_on_sqlite() {
    let proof = proof!("R13", "r13_random_programs_end_as_predicted_on_sqlite", 60);
    proof.run("seeds", |seed| prove_on(sqlite_store, Theme::Programs, Plan::on_disk(Theme::Programs, seed)));
}

/// Clocks are a day apart and are set back and forth; the locks in the file use the wall clock.
#[test]
fn r8_no_timer_is_early_or_lost_whatever_the_clocks_say_on_sqlite() {
    let proof = proof!("R8", "r8_no_timer_is_early_or_lost_whatever_the_clocks_say_on_sqlite", 40);
    let counts =
        proof.run("seeds", |seed| prove_on(sqlite_store, Theme::Clocks, Plan::on_disk(Theme::Clocks, seed)));
    // A single seed need not have so many.
    if counts.get("seeds") >= 40 {
        proof.require(&counts, "StoreClock", 5 * counts.get("seeds"));
    }
}

/// Once the simulation counted a lock as expired although a renewal had taken effect whose answer the holder did not wait
/// for, and once it did not count the attempts of processes that died before a fetch was answered.
#[test]
fn seeds_that_once_failed_on_sqlite() {
    for (theme, seed) in [(Theme::Faults, 1_794_813_409_000_094), (Theme::Programs, 1_795_130_994_000_006)] {
        if let Err(failure) = prove_on(sqlite_store, theme, Plan::on_disk(theme, seed)) {
            panic!("seed {seed}: {}", failure.what());
        }
    }
}

#[test]
fn r1_the_same_seed_gives_the_same_trace_on_sqlite() {
    const TWICE: &str = "worlds run twice";
    const LINES_MIN: usize = 1_000;
    let proof = proof!("R1", "r1_the_same_seed_gives_the_same_trace_on_sqlite", 20);
    proof.run(TWICE, |seed| {
        let plan = Plan::on_disk(Theme::Faults, seed);
        let (once, again) = (run_traced_on(sqlite_store, &plan).1, run_traced_on(sqlite_store, &plan).1);
        if once.lines().count() < LINES_MIN {
            return Err(format!("the trace has only {} lines", once.lines().count()));
        }
        if once != again {
            let difference = once.lines().zip(again.lines()).find(|(a, b)| a != b);
            return Err(format!("two runs differ, first difference: {difference:#?}"));
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
        let outcome = run_on(sqlite_store, &Plan::poisoned(seed));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}\n{}", outcome.violations, outcome.faults);
        assert_eq!(
            outcome.counts.faults.get(&Fault::CrashBefore),
            Some(&10),
            "seed {seed}: one crash an attempt"
        );
    }
}

/// The simulation catches a store that acknowledges commits before they are on the disk.
#[test]
fn a_store_that_does_not_sync_is_noticed() {
    let noticed = (1..=20).filter(|seed| {
        let violations = run_on(sqlite_store_without_sync, &Plan::on_disk(Theme::Faults, *seed)).violations;
        violations.iter().any(|violation| violation.contains("after a power cut: G2"))
    });
    assert!(noticed.count() >= 3, "power cuts must lose commits that were not synced");
}
