//! Time that costs nothing: it follows tokio's paused clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use everturn::providers::Clock;
use tokio::time::Instant;

use crate::chance::Chance;

/// The clock of the machine in one of its lives, with randomness from a seed.
#[derive(Debug)]
pub struct SimTime {
    origin: Instant,
    began_ms: u64,
    chance: Mutex<Chance>,
}

impl SimTime {
    /// A clock that shows `began_ms` now. It works inside the async runtime it was made in.
    pub fn new(began_ms: u64, chance: Chance) -> Self {
        Self { origin: Instant::now(), began_ms, chance: Mutex::new(chance) }
    }
}

impl Clock for SimTime {
    fn wall_ms(&self) -> u64 {
        self.began_ms + u64::try_from(self.monotonic().as_millis()).unwrap_or(0)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn random_u128(&self) -> u128 {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        (u128::from(chance.next_u64()) << 64) | u128::from(chance.next_u64())
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}
