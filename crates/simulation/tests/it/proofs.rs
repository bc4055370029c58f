//! The proofs of `GUARANTEES.md` that need no disk and no other process.

use everturn_proof::proof;
use everturn_simulation::{Theme, prove};

/// Three nodes, everything goes wrong.
#[test]
fn r1_no_promise_breaks_in_any_storm() {
    let proof = proof!("R1", "r1_no_promise_breaks_in_any_storm", 500);
    proof.run("seeds", |seed| prove(Theme::Storms, seed));
}

/// Clocks a day apart, set back and forth.
#[test]
fn r8_no_timer_is_early_or_lost_whatever_the_clocks_say() {
    let proof = proof!("R8", "r8_no_timer_is_early_or_lost_whatever_the_clocks_say", 200);
    proof.run("seeds", |seed| prove(Theme::Clocks, seed));
}

/// Random programs, killed again and again, come to what the model says.
#[test]
fn r13_random_programs_end_as_predicted() {
    let proof = proof!("R13", "r13_random_programs_end_as_predicted", 300);
    proof.run("seeds", |seed| prove(Theme::Programs, seed));
}
