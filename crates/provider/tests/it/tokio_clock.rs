//! A clock on tokio's time: pausing tokio's time pauses this clock.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everturn_provider::Clock;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct TokioClock {
    origin: Instant,
    drawn: AtomicU64,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), drawn: AtomicU64::new(0) }
    }
}

impl Clock for TokioClock {
    fn wall_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn random_u128(&self) -> u128 {
        u128::from(self.drawn.fetch_add(1, Ordering::SeqCst))
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(pending())
    }
}
