//! The plan of a world, drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use everturn::RuntimeOptions;
use everturn::runtime::ShadowReplay;

use crate::fault_plan::{DISK_FAULTS, FAULTS, Fault, FaultPlan};
use crate::generate::{added_step, root_program};
use crate::program::{Ending, Program, ProgramAction, Step};
use crate::random::SeededRandom;
use crate::store_bugs::StoreBug;

/// How many nodes a world has.
pub(crate) const NODES: usize = 3;
/// How many instances clients start.
const ROOTS: u64 = 20;
/// How long locks last under stress settings.
const STRESS_LOCK_MS: u64 = 200;
/// How many sessions a node owns at most: fewer than there are sessions in most worlds.
const SESSIONS_MAX: usize = 3;
/// A day, in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// What a run of seeds proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// R1: all kinds of fault.
    Faults,
    /// R8: clocks differ by a day, and jump back and forth.
    Clocks,
    /// R13: nodes are killed while random programs run.
    Programs,
}

/// Everything that happens in a world, except what is drawn later from its seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all further choices.
    pub seed: u64,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// What clients start.
    pub roots: Vec<Root>,
    /// The faults.
    pub faults: FaultPlan,
    /// How the store violates its contract; it does not, unless the harness itself is tested.
    pub store_bug: Option<StoreBug>,
}

/// The settings of a node, which is started again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// How far its clock is off at the start.
    pub skew_ms: i64,
    /// How many instances it keeps in memory.
    pub warm_instances_max: usize,
    /// How long its locks last.
    pub lock_ms: u64,
    /// How many orchestrations it runs side by side.
    pub orchestrations: usize,
    /// How many activities it runs side by side.
    pub activities: usize,
    /// How many sessions it owns at most.
    pub sessions_max: usize,
    /// Whether its worker slots own sessions together.
    pub is_named: bool,
    /// How often it tries a turn or an activity: as often as a runtime does by default.
    pub max_attempts: u32,
    /// How often it compares a turn that began in memory with its history. That waits for the history to be committed, so
    /// a turn that began early is not committed with its own beginning.
    pub shadow_replay: ShadowReplay,
}

/// An instance that a client starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its id.
    pub id: String,
    /// When.
    pub start_after_ms: u64,
    /// When a client cancels it, whatever it does then; such an outcome is not predicted.
    pub cancel_after_ms: Option<u64>,
    /// What it runs.
    pub program: Program,
}

/// The root that an instance belongs to, by its name.
pub(crate) fn root_of(instance: &str) -> &str {
    instance.split(['.', '/', ':']).next().unwrap_or(instance)
}

impl Plan {
    /// The world of a seed.
    pub fn new(theme: Theme, seed: u64) -> Self {
        let skew_ms_max = if theme == Theme::Clocks { DAY_MS } else { 3_000 };
        let mut random = SeededRandom::of(seed, "nodes");
        let mut shadows = SeededRandom::of(seed, "shadows");
        let nodes = (0..NODES).map(|_| {
            let shadow_replay = match theme {
                Theme::Programs => ShadowReplay::Always,
                Theme::Faults | Theme::Clocks => shadows.pick([ShadowReplay::Off, ShadowReplay::Always]),
            };
            NodePlan { shadow_replay, ..NodePlan::drawn(&mut random, skew_ms_max) }
        });
        let nodes = nodes.collect();
        let roots = (0..ROOTS).map(|n| {
            let id = format!("i{n}");
            let mut random = SeededRandom::of(seed, &id);
            let start_after_ms = random.below(3_000);
            let cancel_after_ms = random.one_in(10).then(|| random.below(10_000));
            let mut program = root_program(&mut random, &id);
            // From a sequence of its own, so that the rest of the program is what the seed always meant.
            let (place, step) =
                added_step(&mut SeededRandom::of(seed, &format!("{id} added")), &id, &program);
            program.steps.insert(place, step);
            Root { id, start_after_ms, cancel_after_ms, program }
        });
        let roots = roots.collect();
        // The names of the sequences are part of what a seed means.
        let mut faults = fault_plan(theme, &mut SeededRandom::of(seed, "weather"));
        let outages = SeededRandom::of(seed, "outages").pick([0, 1, 2]);
        faults.rates.insert(Fault::VerbOutage, outages * usual(Fault::VerbOutage));
        Self { seed, nodes, roots, faults, store_bug: None }
    }

    /// A world without faults, except that one instance kills every node that runs it, until its attempts are used up.
    pub fn poisoned(seed: u64) -> Self {
        let mut plan = Self::new(Theme::Faults, seed);
        plan.faults.rates.clear();
        for node in &mut plan.nodes {
            // A crash counts as an attempt of everything the node has locked. With more than one turn at a time another
            // instance can be locked at every crash, and is poisoned as well: that is the contract.
            node.orchestrations = 1;
        }
        if let Some(root) = plan.roots.first_mut() {
            let action = if seed.is_multiple_of(2) {
                ProgramAction::DeadlyActivity
            } else {
                ProgramAction::DeadlyChild
            };
            let deadly = Step { key: format!("{}.0", root.id), action };
            root.cancel_after_ms = None;
            root.program = Program { steps: vec![deadly], ending: Ending::Complete };
        }
        plan
    }

    /// The world of a seed on a store with a disk, which has faults too.
    pub fn on_disk(theme: Theme, seed: u64) -> Self {
        let mut plan = Self::new(theme, seed);
        let mut random = SeededRandom::of(seed, "disk weather");
        for fault in DISK_FAULTS {
            let strength = match theme {
                Theme::Faults => random.pick([0, 1, 2, 3]),
                Theme::Clocks | Theme::Programs => random.pick([0, 0, 1, 2]),
            };
            plan.faults.rates.insert(fault, strength * usual(fault));
        }
        // Batches are lost by faults of the disk.
        plan.faults.rates.remove(&Fault::LostBatch);
        plan
    }

    /// The same under stress settings: nothing stays in memory, locks are short, and every call is committed by itself.
    #[must_use]
    pub fn with_stress_settings(mut self) -> Self {
        for node in &mut self.nodes {
            node.warm_instances_max = 0;
            node.lock_ms = STRESS_LOCK_MS;
        }
        self.faults.batch_ms = None;
        self.faults.rates.remove(&Fault::LostBatch);
        self
    }
}

impl NodePlan {
    fn drawn(random: &mut SeededRandom, skew_ms_max: u64) -> Self {
        let skew_ms = random.below(2 * skew_ms_max).cast_signed() - skew_ms_max.cast_signed();
        Self {
            skew_ms,
            warm_instances_max: random.pick([0, 1, 2, 5, 1_000, 1_000]),
            lock_ms: random.pick([300, 1_000, 1_000, 2_000]),
            orchestrations: random.between(1, 3) as usize,
            activities: random.between(2, 4) as usize,
            sessions_max: SESSIONS_MAX,
            is_named: random.one_in(2),
            max_attempts: RuntimeOptions::default().max_attempts,
            shadow_replay: ShadowReplay::Always,
        }
    }
}

/// How likely a fault is where it happens at all.
fn usual(fault: Fault) -> u64 {
    match fault {
        Fault::ErrorBefore | Fault::ErrorAfter => 1_000,
        Fault::Refusal => 500,
        Fault::Late => 1_500,
        Fault::CrashBefore | Fault::CrashAfter => 150,
        Fault::StallBefore | Fault::StallAfter | Fault::Freeze => 150,
        Fault::Restart | Fault::StoreClock => 5,
        Fault::VerbOutage => 6,
        Fault::PowerCut => 15,
        Fault::NodeClock => 20,
        Fault::LostBatch => 40,
        // A consequence of other faults.
        Fault::LostTurn => 0,
        Fault::ReadError | Fault::WriteError | Fault::SyncError | Fault::DiskFull => 20,
    }
}

/// Each seed has rates of its own: some faults often, others not at all.
fn fault_plan(theme: Theme, random: &mut SeededRandom) -> FaultPlan {
    let mut rates: BTreeMap<Fault, u64> = BTreeMap::new();
    for fault in FAULTS.into_iter().filter(|fault| *fault != Fault::VerbOutage) {
        let strength = match (theme, fault) {
            (Theme::Faults, _) => random.pick([0, 1, 1, 2, 3]),
            (Theme::Clocks, Fault::NodeClock) => random.pick([2, 4, 8]),
            (Theme::Clocks, Fault::StoreClock) => random.pick([20, 40, 80]),
            (Theme::Programs, Fault::CrashBefore | Fault::CrashAfter) => random.pick([3, 5]),
            (Theme::Programs, Fault::ErrorBefore | Fault::ErrorAfter) => 1,
            (Theme::Clocks | Theme::Programs, _) => random.pick([0, 0, 1]),
        };
        rates.insert(fault, strength * usual(fault));
    }
    let mut plan = FaultPlan {
        rates,
        faults_max: random.between(40, 120),
        spared: BTreeSet::new(),
        clock_jump_ms_max: if theme == Theme::Clocks { DAY_MS } else { 10_000 },
        slow_calls: random.pick([5, 20, 50]),
        batch_ms: random.pick([None, Some(0), Some(0), Some(1), Some(2), Some(5), Some(20)]),
    };
    if plan.batch_ms.is_none() {
        plan.rates.remove(&Fault::LostBatch);
    }
    plan
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            writeln!(f, "  node {index}: {node:?}")?;
        }
        writeln!(f, "  {:?}", self.faults)?;
        for Root { id, start_after_ms, cancel_after_ms, program } in &self.roots {
            write!(f, "  {id}, started after {start_after_ms} ms")?;
            if let Some(cancel_after_ms) = cancel_after_ms {
                write!(f, ", cancelled {cancel_after_ms} ms later")?;
            }
            writeln!(f, ":\n{program}")?;
        }
        Ok(())
    }
}
