//! The proofs of `GUARANTEES.md` that need no disk and no other process.

use everturn_proof::{is_stress_run, proof};
use everturn_simulation::{FAULTS, Fault, Theme, prove};

/// With so many seeds every kind of fault must have come up; fewer need not have them all.
const SEEDS_FOR_ALL: u64 = 100;

/// Three nodes, all kinds of fault.
#[test]
fn r1_no_promise_breaks_under_faults() {
    let proof = proof!("R1", "r1_no_promise_breaks_under_faults", 500);
    let counts = proof.run("seeds", |seed| prove(Theme::Faults, seed));
    if counts.get("seeds") >= SEEDS_FOR_ALL {
        // Under stress settings there are no batches to be lost.
        for fault in FAULTS.into_iter().filter(|fault| !is_stress_run() || *fault != Fault::LostBatch) {
            proof.require(&counts, &format!("{fault:?}"), 20);
        }
        if !is_stress_run() {
            proof.require(&counts, "LostTurn", 20);
            proof.require(&counts, "turns in one batch", 1_000);
            proof.require(&counts, "fused steps", 1_000);
        }
    }
}

/// Clocks a day apart, set back and forth.
#[test]
fn r8_no_timer_is_early_or_lost_whatever_the_clocks_say() {
    let proof = proof!("R8", "r8_no_timer_is_early_or_lost_whatever_the_clocks_say", 200);
    let counts = proof.run("seeds", |seed| prove(Theme::Clocks, seed));
    if counts.get("seeds") >= SEEDS_FOR_ALL {
        proof.require(&counts, "StoreClock", 5 * counts.get("seeds"));
    }
}

/// Random programs on nodes that crash again and again end as the model predicts.
#[test]
fn r13_random_programs_end_as_predicted() {
    let proof = proof!("R13", "r13_random_programs_end_as_predicted", 300);
    let counts = proof.run("seeds", |seed| prove(Theme::Programs, seed));
    if counts.get("seeds") >= SEEDS_FOR_ALL {
        let crashes = counts.get("CrashBefore") + counts.get("CrashAfter");
        assert!(crashes >= 100, "only {crashes} crashes");
        if !is_stress_run() {
            proof.require(&counts, "fused steps", 1_000);
        }
    }
}
