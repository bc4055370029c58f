//! What goes wrong, how often, and what of it took effect.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::SeededRandom;

/// One kind of bad luck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A call fails and nothing was done.
    ErrorBefore,
    /// A call fails for good, though nothing is wrong with it, and nothing was done.
    Refusal,
    /// A call took effect, but the caller hears of an error.
    ErrorAfter,
    /// A call fails, and takes effect a while later.
    Late,
    /// A batch of the store is lost: calls that were not answered fail or are made again, and whoever began a turn in it
    /// does not know that its lock is void.
    LostBatch,
    /// A node was given a turn in a batch that was lost: what a fault of the store came to.
    LostTurn,
    /// A node dies just before a call.
    CrashBefore,
    /// A node dies just after a call, before it hears of it.
    CrashAfter,
    /// A call begins so late that the lock it relies on may have ended, while its node goes on.
    StallBefore,
    /// The answer of a call comes so late that the lock it speaks of may have ended, while its node goes on.
    StallAfter,
    /// A node stands still for longer than its locks last, and then goes on.
    Freeze,
    /// A node is stopped in order and started again.
    Restart,
    /// The wall clock of a node is set: it shows in the time stamps of events, and nowhere else.
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
    /// The power fails, in the middle of whatever happens: everybody dies, and what was not synced is lost, torn or out
    /// of order.
    PowerCut,
}

impl Fault {
    /// Whether it counts as a fault of its own, or matters too little, or comes of another.
    pub fn counts(self) -> bool {
        !matches!(self, Self::NodeClock | Self::LostTurn)
    }
}

/// All kinds of fault that calls, processes, clocks and batches have.
pub const FAULTS: [Fault; 13] = [
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
];

/// Those of a disk, for stores that have one.
pub const DISK_FAULTS: [Fault; 5] =
    [Fault::ReadError, Fault::WriteError, Fault::SyncError, Fault::DiskFull, Fault::PowerCut];

/// How likely each fault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weather {
    /// Of a hundred thousand calls (for restarts, clocks, batches and disks: of a thousand tenths of a second) so many.
    pub rates: BTreeMap<Fault, u64>,
    /// No more faults than this altogether, those that matter little apart.
    pub faults_max: u64,
    /// These of them, counted from 0, do not happen after all.
    pub spared: BTreeSet<u64>,
    /// How far clocks are set, at most.
    pub clock_jump_ms_max: u64,
    /// Of a hundred calls so many take a moment.
    pub slow_calls: u64,
    /// How long calls wait for others to be committed with; `None` if the store commits each by itself. A store on a disk
    /// decides that for itself.
    pub batch_ms: Option<u64>,
}

/// What a call of the store allows to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// It changes nothing.
    Read,
    /// It changes something.
    Write,
    /// It changes something, and could be under way for a while.
    Sent,
    /// So does this, and what it brings is brought again if it is refused.
    Outcome,
}

impl Call {
    fn allows(self, fault: Fault) -> bool {
        match fault {
            Fault::ErrorBefore | Fault::ErrorAfter | Fault::CrashBefore | Fault::Freeze => true,
            Fault::CrashAfter | Fault::StallBefore | Fault::StallAfter => self != Self::Read,
            Fault::Late => matches!(self, Self::Sent | Self::Outcome),
            Fault::Refusal => matches!(self, Self::Write | Self::Outcome),
            Fault::LostBatch | Fault::LostTurn => false,
            Fault::Restart | Fault::NodeClock | Fault::StoreClock => false,
            Fault::ReadError | Fault::WriteError | Fault::SyncError | Fault::DiskFull | Fault::PowerCut => {
                false
            }
        }
    }
}

/// The weather as it happens.
#[derive(Debug)]
pub(crate) struct Sky {
    weather: Weather,
    chance: SeededRandom,
    drawn: u64,
    calm: bool,
    took_effect: BTreeMap<Fault, u64>,
}

impl Sky {
    pub(crate) fn new(weather: Weather, chance: SeededRandom) -> Self {
        Self { weather, chance, drawn: 0, calm: false, took_effect: BTreeMap::new() }
    }

    pub(crate) fn chance(&mut self) -> &mut SeededRandom {
        &mut self.chance
    }

    pub(crate) fn clock_jump_ms_max(&self) -> u64 {
        self.weather.clock_jump_ms_max
    }

    /// From now on nothing goes wrong.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm || self.drawn >= self.weather.faults_max
    }

    /// What is to go wrong with a call. Clients neither die nor stand still nor wait.
    pub(crate) fn fault_for(&mut self, call: Call, of_a_node: bool) -> Option<Fault> {
        let of_nodes_only = |fault| !matches!(fault, Fault::ErrorBefore | Fault::ErrorAfter | Fault::Late);
        let mut drawn = self.chance.below(100_000);
        for (fault, rate) in &self.weather.rates {
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

    /// Whether this fault, which no call brings about, is to happen in this tenth of a second.
    pub(crate) fn happens(&mut self, fault: Fault) -> bool {
        let drawn = self.chance.below(1_000);
        self.weather.rates.get(&fault).is_some_and(|rate| drawn < *rate) && self.draw(fault).is_some()
    }

    fn draw(&mut self, fault: Fault) -> Option<Fault> {
        if self.is_calm() {
            return None;
        }
        if !fault.counts() {
            return Some(fault);
        }
        let number = self.drawn;
        self.drawn += 1;
        (!self.weather.spared.contains(&number)).then_some(fault)
    }

    /// How long a call takes, if it takes any time.
    pub(crate) fn delay_ms(&mut self) -> Option<u64> {
        let slow = self.chance.below(100) < self.weather.slow_calls;
        let ms = self.chance.pick([0, 0, 0, 1, 1, 3, 10, 40]);
        slow.then_some(ms)
    }

    /// Notes that a fault was not only drawn but made a difference.
    pub(crate) fn took_effect(&mut self, fault: Fault) {
        *self.took_effect.entry(fault).or_default() += 1;
    }

    pub(crate) fn effects(&self) -> &BTreeMap<Fault, u64> {
        &self.took_effect
    }
}
