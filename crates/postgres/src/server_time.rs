//! The time of the server, as this process knows it between two readings.
//!
//! The wall clock of this process plays no part: it may be wrong, and it may jump. The server's time goes on with the monotonic
//! clock of this process since the server last said it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a reading counts because of its short round trip.
const READING_LASTS: Duration = Duration::from_secs(60);
/// How far a reading may lie outside of what the one before it allows: clocks do not run equally fast.
const DRIFT_MS_MAX: i64 = 20;
/// The time stands still until the server has caught up with it, but not for longer than this: a server whose clock was set
/// back is followed.
const STANDS_STILL_MS_MAX: i64 = 1_000;

/// The server said its time between two moments of this process's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeReading {
    pub(crate) server_ms: i64,
    pub(crate) asked: Duration,
    pub(crate) heard: Duration,
}

impl TimeReading {
    fn round_trip(&self) -> Duration {
        self.heard.saturating_sub(self.asked)
    }

    /// The latest time that the server can have at this moment. A timer that is set by it never fires early.
    fn latest_ms_at(&self, moment: Duration) -> i64 {
        let since = moment.saturating_sub(self.asked).as_nanos().div_ceil(1_000_000);
        self.server_ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// The earliest time that the server can have at this moment.
    fn earliest_ms_at(&self, moment: Duration) -> i64 {
        let since = moment.saturating_sub(self.heard).as_millis();
        self.server_ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// Whether the server's clock cannot have shown what `later` says if it showed this: it was set, this process was
    /// suspended, or it is another server.
    fn contradicts(&self, later: &Self) -> bool {
        later.server_ms > self.latest_ms_at(later.heard).saturating_add(DRIFT_MS_MAX)
            || later.server_ms < self.earliest_ms_at(later.asked).saturating_sub(DRIFT_MS_MAX)
    }
}

/// What the server said of its time.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    state: Mutex<ServerTimeState>,
}

#[derive(Debug, Default)]
struct ServerTimeState {
    reading: Option<TimeReading>,
    last_ms: i64,
}

impl ServerTime {
    fn state(&self) -> MutexGuard<'_, ServerTimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server said its time. Of the readings of a minute the one with the shortest round trip counts.
    pub(crate) fn note(&self, reading: TimeReading) {
        let mut state = self.state();
        let is_better = state.reading.is_none_or(|known| {
            reading.round_trip() <= known.round_trip()
                || reading.heard.saturating_sub(known.heard) >= READING_LASTS
                || known.contradicts(&reading)
        });
        if is_better {
            state.reading = Some(reading);
        }
    }

    /// The time of the server at this moment; `None` if the server has not said it yet. It does not step back, unless the clock
    /// of the server did.
    pub(crate) fn now_ms(&self, moment: Duration) -> Option<i64> {
        let mut state = self.state();
        let now_ms = state.reading?.latest_ms_at(moment);
        if now_ms >= state.last_ms || state.last_ms.saturating_sub(now_ms) > STANDS_STILL_MS_MAX {
            state.last_ms = now_ms;
        }
        Some(state.last_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn reading(server_ms: i64, asked: u64, heard: u64) -> TimeReading {
        TimeReading { server_ms, asked: ms(asked), heard: ms(heard) }
    }

    #[test]
    fn time_goes_on_with_the_monotonic_clock() {
        let time = ServerTime::default();
        assert_eq!(time.now_ms(ms(10)), None);
        time.note(reading(5_000, 10, 12));
        assert_eq!(time.now_ms(ms(12)), Some(5_002));
        assert_eq!(time.now_ms(ms(1_010)), Some(6_000));
        assert_eq!(
            time.now_ms(Duration::from_micros(1_010_001)),
            Some(6_001),
            "never earlier than the server's"
        );
    }

    #[test]
    fn the_shortest_round_trip_of_a_minute_counts() {
        let time = ServerTime::default();
        time.note(reading(5_000, 10, 12));
        time.note(reading(5_050, 30, 90));
        assert_eq!(time.now_ms(ms(100)), Some(5_090), "the first");
        time.note(reading(65_040, 60_040, 60_100));
        assert_eq!(time.now_ms(ms(60_100)), Some(65_100), "the first is old");
    }

    #[test]
    fn time_stands_still_rather_than_step_back() {
        let time = ServerTime::default();
        time.note(reading(5_040, 10, 100));
        assert_eq!(time.now_ms(ms(100)), Some(5_130));
        time.note(reading(5_090, 100, 101));
        assert_eq!(time.now_ms(ms(101)), Some(5_130));
        assert_eq!(time.now_ms(ms(200)), Some(5_190));
    }

    #[test]
    fn a_server_whose_clock_was_set_is_followed() {
        let time = ServerTime::default();
        time.note(reading(5_000, 10, 11));
        assert_eq!(time.now_ms(ms(11)), Some(5_001));
        time.note(reading(3_605_000, 20, 40));
        assert_eq!(time.now_ms(ms(40)), Some(3_605_020));
        time.note(reading(6_000, 50, 90));
        assert_eq!(time.now_ms(ms(90)), Some(6_040));
    }
}
