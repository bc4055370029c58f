//! The runner fails when it must fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Proof, text_of};
use crate::counts::{Counts, FINISHED, INSTANCES};

/// A proof that does not look at the environment.
fn proof(cases: u64) -> Proof {
    Proof { id: "R0", package: "p", test: "r0_test", cases, time: None, seed: 7, prints_progress: false }
}

fn one(name: &str) -> Counts {
    let mut counts = Counts::default();
    counts.add(name, 1);
    counts
}

/// The message of a proof that fails.
fn failure(cases: u64, case: impl Fn(u64) -> Result<Counts, String> + Sync) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| proof(cases).run("cases", case))).expect_err("it must fail");
    text_of(panic.as_ref()).to_owned()
}

#[test]
fn seeds_follow_one_another_and_counts_add_up() {
    let seeds = std::sync::Mutex::new(Vec::new());
    let counts = proof(20).run("cases", |seed| {
        seeds.lock().unwrap().push(seed);
        Ok::<_, String>(one("cases"))
    });
    assert!(counts.get("cases") >= 20);
    let mut seeds = seeds.into_inner().unwrap();
    seeds.sort_unstable();
    assert_eq!(seeds[..20], (7..27).collect::<Vec<u64>>());
}

#[test]
fn a_case_that_fails_fails_the_proof_with_its_seed_and_the_command_to_run_it_again() {
    let text = failure(50, |seed| if seed == 12 { Err("it broke".to_owned()) } else { Ok(one("cases")) });
    assert!(text.contains("seed 12: it broke"), "{text}");
    assert!(
        text.contains("EVERTURN_PROOF_SEED=12 EVERTURN_PROOF_CASES=1 cargo test -p p --test it r0_test"),
        "{text}"
    );
}

#[test]
fn a_case_that_panics_is_a_failure_with_its_seed() {
    let text = failure(50, |seed| if seed == 9 { panic!("no {seed}") } else { Ok(one("cases")) });
    assert!(text.contains("seed 9: it panicked: no 9"), "{text}");
}

#[test]
fn cases_in_which_nothing_happens_do_not_count() {
    let text = failure(3, |_| Ok(one("something else")));
    assert!(text.contains("0 cases, 3 are needed"), "{text}");
}

#[test]
fn ninety_five_of_a_hundred_instances_must_finish() {
    let with = |finished: u64| {
        move |_| {
            let mut counts = one("cases");
            counts.add(INSTANCES, 100);
            counts.add(FINISHED, finished);
            Ok::<_, String>(counts)
        }
    };
    proof(1).run("cases", with(95));
    let text = failure(1, with(94));
    assert!(text.contains("94 of 100 instances finished"), "{text}");
}
