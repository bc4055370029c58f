//! What is tried again: how long it waits, and how often that is logged.

use std::time::Duration;

use tokio::time::Instant;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The shortest time between two warnings of the same kind.
const WARN_EVERY: Duration = Duration::from_secs(5);

/// How long the next try waits after so many failures in a row: at first 50 ms, then twice as long each time, up to 1 s.
pub(crate) fn pause_after(failures: u32) -> Duration {
    let doubled = failures.saturating_sub(1).min(8);
    PAUSE_MIN.saturating_mul(1 << doubled).min(PAUSE_MAX)
}

/// Says which of many failures are logged: the first one, and then one every few seconds.
#[derive(Debug, Default)]
pub(crate) struct RareWarning {
    last: Option<Instant>,
    left_out: u64,
}

impl RareWarning {
    /// Something failed. Returns how many failures were left out since the last warning, if there is to be one now.
    pub(crate) fn is_due(&mut self) -> Option<u64> {
        if self.last.is_some_and(|last| last.elapsed() < WARN_EVERY) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_second() {
        let pauses = [1, 2, 3, 5, 6, u32::MAX].map(|failures| pause_after(failures).as_millis());
        assert_eq!(pauses, [50, 100, 200, 800, 1000, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_is_logged_and_then_one_every_few_seconds() {
        let mut warning = RareWarning::default();
        assert_eq!([warning.is_due(), warning.is_due(), warning.is_due()], [Some(0), None, None]);
        tokio::time::advance(WARN_EVERY).await;
        assert_eq!([warning.is_due(), warning.is_due()], [Some(2), None]);
    }
}
