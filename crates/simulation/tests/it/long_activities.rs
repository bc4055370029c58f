//! G3, G5: an activity that takes longer than its lock is neither lost nor recorded twice, whatever faults its renewals
//! have.

use std::collections::{BTreeMap, BTreeSet};

use everturn_simulation::{Ending, Fault, FaultPlan, Plan, Program, ProgramAction, Root, Step, Theme, run};

/// How long locks last in these worlds. Of forty activities one takes up to two and a half times as long.
const LOCK_MS: u64 = 2_000;
/// How many worlds have each fault.
const WORLDS: u64 = 12;

/// A world of activities, in which one of ten calls has this fault.
fn plan(seed: u64, fault: Fault) -> Plan {
    let mut plan = Plan::new(Theme::Faults, seed);
    let roots = (0..8).map(|root| {
        let id = format!("i{root}");
        let step = |n| Step { key: format!("{id}.{n}"), action: ProgramAction::FanOut { width: 10 } };
        let program = Program { steps: (0..5).map(step).collect(), ending: Ending::Complete };
        Root { id, start_after_ms: 0, cancel_after_ms: None, program }
    });
    plan.roots = roots.collect();
    for node in &mut plan.nodes {
        node.lock_ms = LOCK_MS;
        node.activities = 8;
        if fault == Fault::Freeze {
            // A node that is frozen past its locks is dead to the others: they count its attempts. Here that happens more
            // often to one activity than anything is usually tried.
            node.max_attempts *= 4;
        }
    }
    plan.faults = FaultPlan {
        rates: BTreeMap::from([(fault, 10_000)]),
        faults_max: 300,
        spared: BTreeSet::new(),
        clock_jump_ms_max: 0,
        slow_calls: 5,
        batch_ms: seed.is_multiple_of(2).then_some(1),
    };
    plan
}

#[test]
fn an_activity_longer_than_its_lock_is_not_lost_whatever_faults_its_renewals_have() {
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::StallBefore, Fault::StallAfter, Fault::Freeze]
    {
        for seed in 1..=WORLDS {
            let outcome = run(&plan(seed, fault));
            assert!(
                outcome.violations.is_empty(),
                "{fault:?}, seed {seed}: {:#?}\n{}",
                outcome.violations,
                outcome.faults
            );
            assert!(outcome.counts.faults_in_all() >= 20, "{fault:?}, seed {seed}: too little happened");
        }
    }
}
