//! The harness itself: what breaks the contract is noticed.

use everturn_simulation::{Plan, SABOTAGES, Sabotage, Theme, run, shrink};

/// How many seeds may pass until each way around a lock was tried.
const SEEDS: u64 = 10;

/// What the first seed says of a store that breaks the contract in this way.
fn violations(sabotage: Sabotage) -> Vec<String> {
    violations_of_seed(sabotage, 1)
}

fn violations_of_seed(sabotage: Sabotage, seed: u64) -> Vec<String> {
    let plan = Plan { sabotage: Some(sabotage), ..Plan::new(Theme::Storms, seed) };
    run(&plan).violations
}

#[test]
fn every_sabotage_is_noticed_by_the_first_seed() {
    for sabotage in SABOTAGES {
        let violations = violations(sabotage);
        println!("{sabotage:?}: {:?}", violations.first());
        assert!(!violations.is_empty(), "nobody noticed that the store {sabotage:?}");
    }
}

#[test]
fn sabotage_is_called_by_the_promise_it_breaks() {
    for (sabotage, promise) in [
        (Sabotage::LosesMessages, "G1"),
        (Sabotage::RewritesHistory, "G2"),
        (Sabotage::AnswersLostCommits, "G2: told committed, never landed"),
        (Sabotage::AnswersLostCommits, "G3"),
        (Sabotage::KeepsWithdrawn, "G2"),
        (Sabotage::RunsAhead, "G3"),
        (Sabotage::ChangesOutcomes, "G3"),
        (Sabotage::AcceptsAnyToken, "G4"),
        (Sabotage::HandsOutLocked, "G4"),
        (Sabotage::SplitsCommits, "G5"),
        (Sabotage::ForgetsTimers, "G5"),
        (Sabotage::HastensTimers, "G6"),
        (Sabotage::TellsNodeTime, "G6"),
    ] {
        let violations = violations(sabotage);
        let named = violations.iter().any(|violation| violation.starts_with(promise));
        assert!(named, "{sabotage:?} breaks {promise}, but they say {violations:#?}");
    }
}

#[test]
fn every_way_around_a_lock_is_noticed() {
    const WAYS: [(Sabotage, &str); 5] = [
        (Sabotage::AcceptsAnyToken, "G4: commit_turn succeeded"),
        (Sabotage::AcceptsAnyToken, "G4: ack_work_item succeeded"),
        (Sabotage::AcceptsAnyToken, "G4: renew_orchestration_item_lock succeeded"),
        (Sabotage::HandsOutLocked, "G4: i"),
        (Sabotage::HandsOutLocked, "G4: (\"i"),
    ];
    let mut unnoticed = WAYS.to_vec();
    for seed in 1..=SEEDS {
        if unnoticed.is_empty() {
            return;
        }
        for sabotage in [Sabotage::AcceptsAnyToken, Sabotage::HandsOutLocked] {
            let violations = violations_of_seed(sabotage, seed);
            unnoticed.retain(|(by, way)| {
                *by != sabotage || !violations.iter().any(|violation| violation.contains(way))
            });
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[test]
fn a_failing_plan_shrinks_to_something_one_can_read() {
    let plan = Plan { sabotage: Some(Sabotage::ForgetsTimers), ..Plan::new(Theme::Storms, 1) };
    let violation = run(&plan).violations.remove(0);
    let (small, outcome) = shrink(&plan, &violation);
    println!("{small}\n{}\n{:#?}", outcome.faults, outcome.violations);
    assert!(!outcome.violations.is_empty());
    let steps: usize = small.roots.iter().map(|root| root.program.steps_in_all()).sum();
    assert!(small.roots.len() <= 2 && steps <= 3, "{small}");
}
