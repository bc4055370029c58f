//! A clock that stands still unless everything waits for it.

use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everturn_provider::Clock;
use tokio::time::Instant;

/// What the clock shows first.
const BEGINNING_MS: u64 = 1_700_000_000_000;

/// A clock on tokio's time. If that is paused, it moves only while every task waits, and then to the next timer.
#[derive(Debug)]
pub(crate) struct PausedTime {
    origin: Instant,
    drawn: AtomicU64,
}

impl PausedTime {
    pub(crate) fn begin() -> Self {
        Self { origin: Instant::now(), drawn: AtomicU64::new(0) }
    }
}

impl Clock for PausedTime {
    fn wall_ms(&self) -> u64 {
        BEGINNING_MS + u64::try_from(self.origin.elapsed().as_millis()).expect("a short time")
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn random_u128(&self) -> u128 {
        u128::from(self.drawn.fetch_add(1, Ordering::SeqCst))
    }

    /// Never: it is not set, it only passes.
    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(pending())
    }
}
