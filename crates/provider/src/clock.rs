//! The source of time and randomness.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

/// Wall time, monotonic time and randomness of one node.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Wall time in milliseconds since the epoch. It may jump.
    fn wall_ms(&self) -> u64;

    /// Time since some fixed moment. It never goes back.
    fn monotonic(&self) -> Duration;

    /// A random number that cannot be guessed.
    fn random_u128(&self) -> u128;

    /// Ends when a test moved the time; never on a real clock. Code that waits for a moment waits for this too.
    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The operating system's clock and randomness.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// The clock of this machine.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

/// How many random numbers one call of the operating system brings: a step of an instance needs several.
const RANDOM_RESERVE: usize = 32;

/// Random numbers of the operating system, drawn ahead. Each is used once.
struct RandomReserve {
    bytes: [u8; RANDOM_RESERVE * 16],
    unused: usize,
    /// The process that drew them: after a fork there are two with the same.
    process_id: u32,
}

thread_local! {
    static RANDOM: RefCell<RandomReserve> = const {
        RefCell::new(RandomReserve { bytes: [0; RANDOM_RESERVE * 16], unused: 0, process_id: 0 })
    };
}

impl RandomReserve {
    fn next(&mut self) -> u128 {
        let process_id = std::process::id();
        if self.unused == 0 || self.process_id != process_id {
            #[expect(clippy::expect_used, reason = "without randomness no lock token is safe")]
            getrandom::fill(&mut self.bytes).expect("the operating system gives random bytes");
            (self.unused, self.process_id) = (RANDOM_RESERVE, process_id);
        }
        self.unused -= 1;
        let (numbers, _) = self.bytes.as_chunks_mut::<16>();
        let next = numbers.get_mut(self.unused).map(std::mem::take);
        u128::from_le_bytes(next.unwrap_or_default())
    }
}

/// The system's wall time in milliseconds since the epoch.
pub(crate) fn system_wall_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        system_wall_ms()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn random_u128(&self) -> u128 {
        RANDOM.with_borrow_mut(RandomReserve::next)
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

/// A clock for tests: time changes only when a test moves it, and random numbers are drawn from a seed.
///
/// ```
/// use std::time::Duration;
/// use everturn_provider::{Clock, ManualClock};
///
/// let clock = ManualClock::new(1_000);
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.wall_ms(), 3_000);
/// ```
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    monotonic: Mutex<Duration>,
    random_state: AtomicU64,
    moved: Arc<Notify>,
}

impl ManualClock {
    /// A clock that shows `wall_ms` until it is moved.
    pub fn new(wall_ms: u64) -> Self {
        Self::seeded(wall_ms, 0)
    }

    /// The same, with its random numbers drawn from `seed`.
    pub fn seeded(wall_ms: u64, seed: u64) -> Self {
        Self {
            wall_ms: AtomicU64::new(wall_ms),
            monotonic: Mutex::new(Duration::ZERO),
            random_state: AtomicU64::new(seed),
            moved: Arc::new(Notify::new()),
        }
    }

    /// Advances both clocks.
    pub fn advance(&self, by: Duration) {
        *self.monotonic.lock().unwrap_or_else(PoisonError::into_inner) += by;
        self.wall_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Sets the wall clock, as an administrator would; the monotonic clock does not change.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.wall_ms.store(wall_ms, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// The next number of a splitmix64 sequence.
    fn next_u64(&self) -> u64 {
        let state = self
            .random_state
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst)
            .wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        *self.monotonic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random_u128(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let moved = Arc::clone(&self.moved).notified_owned();
        Box::pin(moved)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_random_number_of_the_system_comes_twice_on_any_thread() {
        let draw = || -> Vec<u128> {
            let clock = SystemClock::new();
            (0..RANDOM_RESERVE * 3 + 1).map(|_| clock.random_u128()).collect()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let drawn: Vec<u128> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let different: HashSet<&u128> = drawn.iter().collect();
        assert_eq!(different.len(), drawn.len());
        assert!(!different.contains(&0), "a number that was used is taken out of the reserve");
    }
}
