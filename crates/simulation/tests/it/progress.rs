//! G5: work is done at once, or as soon as the lock of a crashed worker has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everturn_simulation::{Action, Ending, Fault, FaultPlan, Plan, Program, Root, Step, Theme, run};

/// The longest lock of these worlds.
const LOCK_MS: u64 = 2_000;
/// How long everything but waiting takes; a call that failed is made again within this time.
const SLACK: Duration = Duration::from_millis(500);
/// A parked fetch looks at least so often.
const POLL: Duration = Duration::from_secs(1);

/// A world in which nothing takes time, except this fault, at most once.
fn plan(seed: u64, fault: Option<Fault>) -> Plan {
    let steps = (0..20).map(|n| Step {
        key: format!("i0.{n}"),
        action: if n % 2 == 0 { Action::Timer { ms: 0 } } else { Action::SystemCalls },
    });
    let program = Program { steps: steps.collect(), ending: Ending::Complete };
    let mut plan = Plan::new(Theme::Faults, seed);
    plan.roots = vec![Root { id: "i0".into(), start_after_ms: 0, cancel_after_ms: None, program }];
    for node in &mut plan.nodes {
        node.lock_ms = LOCK_MS;
    }
    plan.faults = FaultPlan {
        rates: fault.map(|fault| (fault, 2_000)).into_iter().collect::<BTreeMap<_, _>>(),
        faults_max: 1,
        spared: BTreeSet::new(),
        clock_jump_ms_max: 0,
        slow_calls: 0,
        batch_ms: seed.is_multiple_of(2).then_some(0),
    };
    plan
}

#[test]
fn queued_work_is_fetched_at_once() {
    for seed in 1..10 {
        let outcome = run(&plan(seed, None));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert_eq!(outcome.took, Duration::ZERO, "seed {seed}: every wake-up came at once");
    }
}

#[test]
fn a_worker_that_crashes_or_freezes_delays_by_its_lock_and_a_poll_at_most() {
    let bound = Duration::from_millis(LOCK_MS) + POLL + SLACK;
    for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Freeze, Fault::ErrorBefore, Fault::ErrorAfter]
    {
        let mut longest = Duration::ZERO;
        let mut took_effect = 0;
        for seed in 1..40 {
            let outcome = run(&plan(seed, Some(fault)));
            assert!(outcome.violations.is_empty(), "{fault:?}, seed {seed}: {:#?}", outcome.violations);
            assert!(
                outcome.took <= bound,
                "{fault:?}, seed {seed} took {:?}\n{}",
                outcome.took,
                outcome.faults
            );
            longest = longest.max(outcome.took);
            took_effect += outcome.counts.faults_in_all();
        }
        println!("{fault:?}: {took_effect} in 39 worlds, the longest took {longest:?}");
        assert!(took_effect >= 20, "{fault:?} took effect {took_effect} times only");
    }
}
