//! Pauses of a fetch loop when there is no work, or when fetching fails.

use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Base of the back-off after a fetch that failed with a retryable error.
const RETRY_BASE_MS: u64 = 100;
/// Longest back-off.
const RETRY_MAX_MS: u64 = 3_000;
/// Pause after a fetch that failed with a permanent error. The next fetch may succeed nevertheless.
const PERMANENT_PAUSE: Duration = Duration::from_millis(100);

/// The pauses of one fetch loop.
pub(crate) struct FetchPace {
    min_poll_interval: Duration,
    failures: u32,
}

impl FetchPace {
    pub(crate) fn new(min_poll_interval: Duration) -> Self {
        Self { min_poll_interval, failures: 0 }
    }

    /// Call after a fetch that returned work.
    pub(crate) fn found(&mut self) {
        self.failures = 0;
    }

    /// Call after a fetch that returned nothing. Waits if the fetch returned early, as providers do that cannot wait.
    pub(crate) async fn found_nothing(&mut self, fetched_at: Instant, stop: &CancellationToken) {
        self.failures = 0;
        let rest = self.min_poll_interval.saturating_sub(fetched_at.elapsed());
        if rest.is_zero() {
            tokio::task::yield_now().await;
        } else {
            pause(rest, stop).await;
        }
    }

    /// Call after a fetch that failed. Waits with exponential back-off.
    pub(crate) async fn failed(&mut self, error: &ProviderError, stop: &CancellationToken) {
        pause(self.back_off(error), stop).await;
    }

    fn back_off(&mut self, error: &ProviderError) -> Duration {
        if !error.is_retryable() {
            return PERMANENT_PAUSE;
        }
        self.failures = self.failures.saturating_add(1);
        let factor = 1_u64.checked_shl(self.failures.min(32)).unwrap_or(u64::MAX);
        Duration::from_millis(RETRY_BASE_MS.saturating_mul(factor).min(RETRY_MAX_MS))
    }
}

async fn pause(rest: Duration, stop: &CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = tokio::time::sleep(rest) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retryable_failures_back_off_up_to_three_seconds() {
        let mut pace = FetchPace::new(Duration::ZERO);
        let error = ProviderError::retryable("fetch", "busy");
        let waits: Vec<u128> = (0..7).map(|_| pace.back_off(&error).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3000, 3000, 3000]);
        pace.found();
        assert_eq!(pace.back_off(&error).as_millis(), 200);
    }

    #[test]
    fn permanent_failures_pause_for_a_tenth_of_a_second() {
        let mut pace = FetchPace::new(Duration::ZERO);
        let error = ProviderError::permanent("fetch", "broken");
        assert_eq!(pace.back_off(&error).as_millis(), 100);
        assert_eq!(pace.back_off(&error).as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_empty_fetch_waits_for_the_rest_of_the_interval() {
        let mut pace = FetchPace::new(Duration::from_millis(100));
        let fetched_at = Instant::now();
        pace.found_nothing(fetched_at, &CancellationToken::new()).await;
        assert!(fetched_at.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_ends_a_pause() {
        let stop = CancellationToken::new();
        stop.cancel();
        let before = Instant::now();
        FetchPace::new(Duration::from_secs(60)).found_nothing(before, &stop).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
