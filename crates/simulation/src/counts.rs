//! How much happened in a world, and whether it was enough.

use std::collections::BTreeMap;

use everturn_proof::{FINISHED, INSTANCES};

use crate::fault_plan::Fault;

/// Fewest nodes of a seed that counts.
const NODES_MIN: u64 = 3;
/// Fewest instances of a seed that counts.
const INSTANCES_MIN: u64 = 20;
/// Fewest turns of a seed that counts.
const TURNS_MIN: u64 = 200;
/// Fewest faults that took effect in a seed that counts.
pub(crate) const FAULTS_MIN: u64 = 10;
/// Fewest actions of a program in a seed that counts.
const ACTIONS_MIN: u64 = 12;
/// So many of a hundred instances must have ended.
const ENDED_PERCENT_MIN: u64 = 95;

/// How much happened in the world of a seed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldCounts {
    /// How many nodes.
    pub nodes: u64,
    /// How many instances there should have been.
    pub instances: u64,
    /// How many of them have ended.
    pub instances_ended: u64,
    /// How many turns were committed.
    pub turns: u64,
    /// How often an activity was fetched.
    pub activities_fetched: u64,
    /// How often an activity ran.
    pub activity_runs: u64,
    /// How many actions the programs had.
    pub actions: u64,
    /// How many the shortest program had that a client started.
    pub actions_min: u64,
    /// How many of them were committed in fused steps.
    pub fused_steps: u64,
    /// How many turns were fetched and committed in one batch, as far as the store can tell.
    pub turns_in_one_batch: u64,
    /// How many faults of each kind took effect.
    pub faults: BTreeMap<Fault, u64>,
}

impl WorldCounts {
    /// How many faults took effect, without those that do not count.
    pub fn faults_in_all(&self) -> u64 {
        self.faults.iter().filter(|(fault, _)| fault.counts()).map(|(_, count)| count).sum()
    }

    /// What a seed has too little of.
    pub fn shortfalls(&self) -> Vec<String> {
        let least = [
            ("nodes", self.nodes, NODES_MIN),
            ("instances", self.instances, INSTANCES_MIN),
            ("turns", self.turns, TURNS_MIN),
            ("actions in the shortest program", self.actions_min, ACTIONS_MIN),
            ("faults that took effect", self.faults_in_all(), FAULTS_MIN),
        ];
        let mut short: Vec<String> = least
            .iter()
            .filter(|(_, count, least)| count < least)
            .map(|(what, count, least)| format!("{count} {what}, at least {least} are needed"))
            .collect();
        if self.instances_ended * 100 < self.instances * ENDED_PERCENT_MIN {
            short.push(format!("{} of {} instances have ended", self.instances_ended, self.instances));
        }
        short
    }

    /// The same by name, for a proof to add up.
    pub fn named(&self) -> everturn_proof::Counts {
        let mut counts = everturn_proof::Counts::default();
        counts.add("seeds", 1);
        counts.add("nodes", self.nodes);
        counts.add(INSTANCES, self.instances);
        counts.add(FINISHED, self.instances_ended);
        counts.add("turns", self.turns);
        counts.add("fused steps", self.fused_steps);
        counts.add("activity runs", self.activity_runs);
        counts.add("actions", self.actions);
        counts.add("turns in one batch", self.turns_in_one_batch);
        counts.add("faults that took effect", self.faults_in_all());
        for (fault, count) in &self.faults {
            counts.add(&format!("{fault:?}"), *count);
        }
        counts
    }
}
