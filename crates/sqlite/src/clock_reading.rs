//! Times and lengths of time as the database stores them.

use std::time::Duration;

use everturn_provider::Clock;

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

/// A length of time in whole milliseconds, rounded up, so that nothing ends early.
pub(crate) fn length_ms(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A time as it is stored: SQLite's integers are signed.
pub(crate) fn stored_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A stored number that is never negative.
pub(crate) fn unsigned(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}
