//! The harness itself: it notices stores that violate the contract.

use everturn_simulation::{Plan, STORE_BUGS, StoreBug, Theme, run, shrink};

/// How many seeds may pass until each way around a lock was tried.
const SEEDS: u64 = 160;

/// How many seeds may pass until a node uses a lock that has ended.
const SEEDS_UNTIL_STALE: u64 = 5;

/// The violations of the first seed with this bug of the store. Only a node that uses a lock that has ended notices a store
/// that accepts any token: it is tried for a few seeds.
fn violations(bug: StoreBug) -> Vec<String> {
    let seeds = if bug == StoreBug::AcceptsAnyToken { SEEDS_UNTIL_STALE } else { 1 };
    (1..=seeds).map(|seed| violations_of_seed(bug, seed)).find(|found| !found.is_empty()).unwrap_or_default()
}

fn violations_of_seed(bug: StoreBug, seed: u64) -> Vec<String> {
    let plan = Plan { store_bug: Some(bug), ..Plan::new(Theme::Faults, seed) };
    run(&plan).violations
}

#[test]
fn every_bug_of_a_store_is_noticed_by_the_first_seeds() {
    for bug in STORE_BUGS {
        let violations = violations(bug);
        println!("{bug:?}: {:?}", violations.first());
        assert!(!violations.is_empty(), "{bug:?} was not noticed");
    }
}

#[test]
fn a_violation_names_the_guarantee() {
    for (bug, guarantee) in [
        (StoreBug::LosesMessages, "G1"),
        (StoreBug::RewritesHistory, "G2"),
        (StoreBug::AnswersLostCommits, "G2: acknowledged, never committed"),
        (StoreBug::AnswersLostCommits, "G3"),
        (StoreBug::KeepsWithdrawn, "G2"),
        (StoreBug::DispatchesBeforeCommit, "G3"),
        (StoreBug::ChangesOutcomes, "G3"),
        (StoreBug::AcceptsAnyToken, "G4"),
        (StoreBug::OffersLockedRows, "G4"),
        (StoreBug::SplitsCommits, "G5"),
        (StoreBug::ForgetsTimers, "G5"),
        (StoreBug::HastensTimers, "G6"),
        (StoreBug::TellsNodeTime, "G6"),
    ] {
        let violations = violations(bug);
        let named = violations.iter().any(|violation| violation.starts_with(guarantee));
        assert!(named, "{bug:?} violates {guarantee}, but this was reported: {violations:#?}");
    }
}

#[test]
fn every_way_around_a_lock_is_noticed() {
    const WAYS: [(StoreBug, &str); 5] = [
        (StoreBug::AcceptsAnyToken, "G4: commit_turn succeeded"),
        (StoreBug::AcceptsAnyToken, "G4: settle_work succeeded"),
        (StoreBug::AcceptsAnyToken, "G4: renew of an instance succeeded"),
        (StoreBug::OffersLockedRows, "G4: i"),
        (StoreBug::OffersLockedRows, "G4: (\"i"),
    ];
    let mut unnoticed = WAYS.to_vec();
    for seed in 1..=SEEDS {
        if unnoticed.is_empty() {
            return;
        }
        for bug in [StoreBug::AcceptsAnyToken, StoreBug::OffersLockedRows] {
            if !unnoticed.iter().any(|(by, _)| *by == bug) {
                continue;
            }
            let violations = violations_of_seed(bug, seed);
            unnoticed.retain(|(by, way)| {
                *by != bug || !violations.iter().any(|violation| violation.contains(way))
            });
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[test]
fn a_failing_plan_shrinks_to_something_one_can_read() {
    let plan = Plan { store_bug: Some(StoreBug::ForgetsTimers), ..Plan::new(Theme::Faults, 1) };
    let violation = run(&plan).violations.remove(0);
    let (small, outcome) = shrink(&plan, &violation);
    println!("{small}\n{}\n{:#?}", outcome.faults, outcome.violations);
    assert!(!outcome.violations.is_empty());
    let steps: usize = small.roots.iter().map(|root| root.program.steps_in_all()).sum();
    assert!(small.roots.len() <= 2 && steps <= 3, "{small}");
}
