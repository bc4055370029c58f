//! Warm and cold turns write the same: with the same messages in the same order, an instance that is replayed from its
//! history in every turn writes what it wrote while it stayed in memory.

use everturn_proof::{Counts, proof};
use everturn_simulation::{Plan, Theme, check_replay};

/// Programs in a world without faults, on one node that has room for all of them.
fn plan(seed: u64) -> Plan {
    let mut plan = Plan::new(Theme::Programs, seed);
    plan.faults.rates.clear();
    plan.nodes.truncate(1);
    for node in &mut plan.nodes {
        node.warm_instances_max = 1_000;
        node.lock_ms = 5_000;
    }
    plan
}

#[test]
fn r13_warm_and_cold_write_the_same_history() {
    let proof = proof!("R13", "r13_warm_and_cold_write_the_same_history", 2_000);
    let counts = proof.run("programs replayed", |seed| {
        let plan = plan(seed);
        let check = check_replay(&plan);
        if let Some(difference) = check.differences.first() {
            return Err(format!("{difference}\nthe plan:\n{plan}"));
        }
        let mut counts = Counts::default();
        counts.add("programs replayed", plan.roots.len() as u64);
        counts.add("turns", check.turns);
        counts.add("warm turns", check.warm_turns);
        counts.add("equal events", check.events);
        Ok(counts)
    });
    assert!(counts.get("warm turns") * 2 > counts.get("turns"), "too few turns were warm: {counts}");
}
