//! An activity or turn that kills every node that runs it is poisoned after its last attempt, and nothing else is.

use everturn_simulation::{Fault, Plan, run};

#[test]
fn what_kills_every_node_is_poisoned_after_its_last_attempt_and_nothing_else_is() {
    for seed in 1..=40 {
        let outcome = run(&Plan::poisoned(seed));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}\n{}", outcome.violations, outcome.faults);
        assert_eq!(
            outcome.counts.faults.get(&Fault::CrashBefore),
            Some(&10),
            "seed {seed}: one crash per attempt"
        );
        assert_eq!(outcome.counts.instances, outcome.counts.instances_ended, "seed {seed}");
    }
}
