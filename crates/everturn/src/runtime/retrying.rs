//! Retrying calls that failed with a retryable error.

use std::future::Future;
use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::time::{Instant, sleep};

/// Wait before the first retry.
const RETRY_MIN: Duration = Duration::from_millis(10);
/// Longest wait before a retry.
const RETRY_MAX: Duration = Duration::from_millis(160);

/// The waits between retries. They double up to a limit.
pub(crate) struct RetryBackoff(Duration);

impl RetryBackoff {
    pub(crate) fn new() -> Self {
        Self(RETRY_MIN)
    }

    /// How long to wait before the next retry.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(RETRY_MAX);
        wait
    }
}

/// Makes a call until it succeeds, fails with a permanent error, or `at_most` has passed: the duration of the lock that
/// the call depends on.
pub(crate) async fn retrying<F>(at_most: Duration, mut call: impl FnMut() -> F) -> Result<(), ProviderError>
where
    F: Future<Output = Result<(), ProviderError>>,
{
    let began = Instant::now();
    let mut backoff = RetryBackoff::new();
    loop {
        let answer = call().await;
        let wait = backoff.next_wait();
        match answer {
            Err(error) if error.is_retryable() && began.elapsed() + wait < at_most => sleep(wait).await,
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn waits_double_up_to_a_sixth_of_a_second() {
        let mut backoff = RetryBackoff::new();
        let waits: Vec<u128> = (0..6).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 160]);
    }

    #[tokio::test(start_paused = true)]
    async fn retryable_errors_are_retried_until_the_call_succeeds() {
        let mut tries = 0;
        let answer = retrying(Duration::from_secs(30), || {
            tries += 1;
            ready(if tries < 5 { Err(ProviderError::retryable("op", "busy")) } else { Ok(()) })
        });
        assert_eq!(answer.await, Ok(()));
        assert_eq!(tries, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_with_the_time_and_permanent_errors_end_at_once() {
        let began = Instant::now();
        let busy = retrying(Duration::from_secs(1), || ready(Err(ProviderError::retryable("op", "busy"))));
        assert!(busy.await.is_err());
        assert!(began.elapsed() < Duration::from_secs(1));
        let mut tries = 0;
        let refused = retrying(Duration::from_secs(1), || {
            tries += 1;
            ready(Err(ProviderError::lock_lost("op", "gone")))
        });
        assert!(refused.await.is_err());
        assert_eq!(tries, 1);
    }
}
