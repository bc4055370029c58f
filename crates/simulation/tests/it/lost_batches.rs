//! The store in memory loses batches as a real one does: with calls that wait for them, and with turns that have begun.

use everturn_simulation::{Fault, Plan, Theme, run};

#[test]
fn batches_are_lost_with_turns_that_had_begun_in_them() {
    let (mut lost, mut with_turns, mut turns_lost) = (0, 0, 0);
    for seed in 1..=30 {
        let mut plan = Plan::new(Theme::Faults, seed);
        plan.faults.batch_ms = Some(seed % 4);
        plan.faults.rates.insert(Fault::LostBatch, 200);
        for node in &mut plan.nodes {
            node.warm_instances_max = 1_000;
        }
        let outcome = run(&plan);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        let losses = || outcome.faults.lines().filter(|line| line.contains("LostBatch"));
        lost += losses().count();
        with_turns += losses().filter(|line| !line.contains(" 0 turns begun")).count();
        turns_lost += outcome.counts.faults.get(&Fault::LostTurn).copied().unwrap_or_default();
    }
    let happened =
        format!("{lost} batches lost, {with_turns} with turns begun, {turns_lost} turns known to be lost");
    println!("{happened} in 30 worlds");
    assert!(lost >= 300 && with_turns >= 30 && turns_lost >= 30, "too little happened: {happened}");
}

#[test]
fn seeds_that_once_failed_with_batches_pass() {
    // A timer that was due when its turn was sent and not when that was committed; a late commit recorded twice; a timer that
    // was due when its turn was first sent, and not when it was sent again; an outage that used up the faults.
    let worlds = [
        (Theme::Faults, 402),
        (Theme::Clocks, 87),
        (Theme::Clocks, 137),
        (Theme::Faults, 10_033),
        (Theme::Clocks, 1_795_017_764_000_327),
        (Theme::Faults, 1_795_017_764_000_496),
    ];
    for (theme, seed) in worlds {
        let outcome = run(&Plan::new(theme, seed));
        assert!(outcome.violations.is_empty(), "{theme:?}, seed {seed}: {:#?}", outcome.violations);
        let short = outcome.counts.shortfalls();
        assert!(short.is_empty(), "{theme:?}, seed {seed}: {short:?}");
    }
}
