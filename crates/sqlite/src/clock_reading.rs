//! Times and lengths of time as the database stores them.

use std::time::Duration;

use everturn_provider::Clock;
use everturn_provider::encoded::{length_ms, stored_ms};

/// Both clocks, read at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    /// Wall time in milliseconds since the epoch.
    pub(crate) wall_ms: i64,
    /// Monotonic time.
    pub(crate) monotonic: Duration,
}

impl ClockReading {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { wall_ms: stored_ms(clock.wall_ms()), monotonic: clock.monotonic() }
    }

    /// The wall time `length` later.
    pub(crate) fn wall_after(self, length: Duration) -> i64 {
        self.wall_ms.saturating_add(stored_ms(length_ms(length)))
    }
}
