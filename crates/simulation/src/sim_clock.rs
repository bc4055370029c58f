//! The clock of one machine of the simulated world.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn::providers::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::random::SeededRandom;

/// What the true time of the simulated world begins with, in milliseconds since the epoch.
const BEGINNING_MS: u64 = 1_800_000_000_000;

/// A clock that follows tokio's paused time, as far off as it was set, with randomness from a seed.
#[derive(Debug)]
pub struct SimClock {
    origin: Instant,
    offset_ms: AtomicI64,
    jumps: Mutex<Vec<Jump>>,
    chance: Mutex<SeededRandom>,
    moved: Arc<Notify>,
}

/// When a clock was set, and what it showed just before and just after.
#[derive(Debug, Clone, Copy)]
struct Jump {
    at: Duration,
    from_ms: u64,
    to_ms: u64,
}

impl SimClock {
    /// A clock that shows `now_ms` now. It works inside the async runtime it was made in.
    pub fn starting_at(now_ms: u64, chance: SeededRandom) -> Self {
        Self::new(Instant::now(), now_ms.cast_signed() - BEGINNING_MS.cast_signed(), chance)
    }

    pub(crate) fn new(origin: Instant, offset_ms: i64, chance: SeededRandom) -> Self {
        Self {
            origin,
            offset_ms: AtomicI64::new(offset_ms),
            jumps: Mutex::default(),
            chance: Mutex::new(chance),
            moved: Arc::new(Notify::new()),
        }
    }

    /// Sets the wall clock forward or back, as an administrator would.
    pub(crate) fn jump(&self, by_ms: i64) {
        let (at, from_ms) = (self.monotonic(), self.wall_ms());
        self.offset_ms.fetch_add(by_ms, Ordering::SeqCst);
        let jump = Jump { at, from_ms, to_ms: self.wall_ms() };
        self.jumps.lock().unwrap_or_else(PoisonError::into_inner).push(jump);
        self.moved.notify_waiters();
    }

    /// How often the clock was set.
    pub(crate) fn jumps(&self) -> usize {
        self.jumps.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The latest time the clock has shown since a moment of its monotonic clock.
    pub(crate) fn latest_ms_since(&self, since: Duration) -> u64 {
        let jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        let before_jumps = jumps.iter().filter(|jump| jump.at >= since).map(|jump| jump.from_ms);
        before_jumps.fold(self.wall_ms(), u64::max)
    }

    /// What the clock has shown from one moment to another, each given by what it showed and how often it had been set:
    /// one stretch, and one more for each time it was set between.
    pub(crate) fn shown_between(
        &self,
        (first_ms, jumps_before): (u64, usize),
        (last_ms, jumps_until): (u64, usize),
    ) -> Vec<RangeInclusive<u64>> {
        let jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        let between = jumps.get(jumps_before..jumps_until).unwrap_or_default();
        let firsts = [first_ms].into_iter().chain(between.iter().map(|jump| jump.to_ms));
        let lasts = between.iter().map(|jump| jump.from_ms).chain([last_ms]);
        firsts.zip(lasts).map(|(first, last)| first..=last).collect()
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        let passed = u64::try_from(self.monotonic().as_millis()).unwrap_or(u64::MAX);
        (BEGINNING_MS + passed).saturating_add_signed(self.offset_ms.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn random_u128(&self) -> u128 {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        (u128::from(chance.next_u64()) << 64) | u128::from(chance.next_u64())
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Arc::clone(&self.moved).notified_owned())
    }
}
