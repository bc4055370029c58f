//! Which faults are injected, how often, and how many of them took effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::counts::FAULTS_MIN;
use crate::faulty_store::CallKind;
use crate::random::SeededRandom;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A call fails and nothing was done.
    ErrorBefore,
    /// A call fails with a permanent error, and nothing was done.
    Refusal,
    /// A call took effect, but the caller gets an error.
    ErrorAfter,
    /// A call fails, and takes effect a while later.
    Late,
    /// A batch of the store is lost: calls that were not answered fail or run again, and a node that began a turn in it
    /// does not know that its lock is void.
    LostBatch,
    /// A node got a turn in a batch that was lost: a consequence of another fault.
    LostTurn,
    /// A node crashes just before a call.
    CrashBefore,
    /// A node crashes just after a call, before it gets the answer.
    CrashAfter,
    /// A call begins so late that the lock it relies on may have ended, while its node goes on.
    StallBefore,
    /// The answer of a call comes so late that its lock may have ended, while its node goes on.
    StallAfter,
    /// A node is frozen for longer than its locks last, and then goes on.
    Freeze,
    /// A node is shut down and started again.
    Restart,
    /// The wall clock of a node is set: only the time stamps of events show it.
    NodeClock,
    /// The wall clock of the store is set.
    StoreClock,
    /// Reads of the disk fail.
    ReadError,
    /// Writes of the disk fail.
    WriteError,
    /// What was written does not reach the disk, or not all of it.
    SyncError,
    /// The disk is full.
    DiskFull,
    /// The power fails at any moment: all processes end, and what was not synced is lost, torn or out of order.
    PowerCut,
    /// One verb of the store fails for a while, for all processes; the others work.
    VerbOutage,
}

impl Fault {
    /// Whether it counts as a fault: some have little effect, or are consequences of others.
    pub fn counts(self) -> bool {
        !matches!(self, Self::NodeClock | Self::LostTurn)
    }
}

/// All faults of calls, processes, clocks and batches.
pub const FAULTS: [Fault; 14] = [
    Fault::ErrorBefore,
    Fault::Refusal,
    Fault::ErrorAfter,
    Fault::Late,
    Fault::LostBatch,
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::StallBefore,
    Fault::StallAfter,
    Fault::Freeze,
    Fault::Restart,
    Fault::NodeClock,
    Fault::StoreClock,
    Fault::VerbOutage,
];

/// The faults of a disk, for stores that have one.
pub const DISK_FAULTS: [Fault; 5] =
    [Fault::ReadError, Fault::WriteError, Fault::SyncError, Fault::DiskFull, Fault::PowerCut];

/// How likely each fault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// How many of 100,000 calls have the fault; for restarts, clocks, batches and disks: of 1,000 tenths of a second.
    pub rates: BTreeMap<Fault, u64>,
    /// The most faults altogether, not counting those with little effect.
    pub faults_max: u64,
    /// These of them, counted from 0, are left out.
    pub spared: BTreeSet<u64>,
    /// How far clocks are set, at most.
    pub clock_jump_ms_max: u64,
    /// How many of 100 calls take some time.
    pub slow_calls: u64,
    /// How long a batch of calls stays open; `None` if the store commits each call by itself. A store on a disk decides
    /// that for itself.
    pub batch_ms: Option<u64>,
}

/// Draws the faults of a plan.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    plan: FaultPlan,
    random: SeededRandom,
    drawn: u64,
    has_ended: bool,
    took_effect: BTreeMap<Fault, u64>,
}

impl FaultInjector {
    pub(crate) fn new(plan: FaultPlan, random: SeededRandom) -> Self {
        Self { plan, random, drawn: 0, has_ended: false, took_effect: BTreeMap::new() }
    }

    pub(crate) fn random(&mut self) -> &mut SeededRandom {
        &mut self.random
    }

    pub(crate) fn clock_jump_ms_max(&self) -> u64 {
        self.plan.clock_jump_ms_max
    }

    /// From now on there are no faults.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// The fault of a call. Clients neither crash nor freeze nor stall.
    pub(crate) fn fault_for(&mut self, call: CallKind, of_a_node: bool) -> Option<Fault> {
        let of_nodes_only = |fault| !matches!(fault, Fault::ErrorBefore | Fault::ErrorAfter | Fault::Late);
        let mut drawn = self.random.below(100_000 / call.calls());
        for (fault, rate) in &self.plan.rates {
            if !call.allows(*fault) || (of_nodes_only(*fault) && !of_a_node) {
                continue;
            }
            if drawn < *rate {
                return self.draw(*fault);
            }
            drawn -= *rate;
        }
        None
    }

    /// Whether this fault, which does not belong to a call, happens in this tenth of a second.
    pub(crate) fn happens(&mut self, fault: Fault) -> bool {
        let drawn = self.random.below(1_000);
        self.plan.rates.get(&fault).is_some_and(|rate| drawn < *rate) && self.draw(fault).is_some()
    }

    /// A fault that belongs to no call, for a world in which too few have taken effect for the share of its instances that have
    /// ended: a world with fewer than [`FAULTS_MIN`] proves nothing.
    pub(crate) fn overdue(&mut self, ended: usize, started: usize) -> Option<Fault> {
        // All of them before the last fifth of the instances ends.
        let due = FAULTS_MIN * (5 * ended as u64) / (4 * started as u64).max(1);
        let effects: u64 =
            self.took_effect.iter().filter(|(fault, _)| fault.counts()).map(|(_, count)| count).sum();
        if effects >= due.min(FAULTS_MIN) || self.plan.rates.values().all(|rate| *rate == 0) {
            return None;
        }
        let sets_clock = self.plan.rates.get(&Fault::StoreClock).is_some_and(|rate| *rate > 0);
        self.draw(if sets_clock { Fault::StoreClock } else { Fault::Restart })
    }

    fn draw(&mut self, fault: Fault) -> Option<Fault> {
        if self.has_ended || self.drawn >= self.plan.faults_max {
            return None;
        }
        if !fault.counts() {
            return Some(fault);
        }
        let number = self.drawn;
        self.drawn += 1;
        (!self.plan.spared.contains(&number)).then_some(fault)
    }

    /// A fault that was drawn cannot take effect.
    pub(crate) fn give_back(&mut self, fault: Fault) {
        self.drawn -= u64::from(fault.counts());
    }

    /// How long a call takes, if it takes any time.
    pub(crate) fn delay(&mut self) -> Option<Duration> {
        let slow = self.random.below(100) < self.plan.slow_calls;
        let ms = self.random.pick([0, 0, 0, 1, 1, 3, 10, 40]);
        slow.then_some(Duration::from_millis(ms))
    }

    /// Counts a fault that was not only drawn but took effect.
    pub(crate) fn took_effect(&mut self, fault: Fault) {
        *self.took_effect.entry(fault).or_default() += 1;
    }

    pub(crate) fn effects(&self) -> &BTreeMap<Fault, u64> {
        &self.took_effect
    }
}
