//! Retrying calls that failed with a retryable error.

use std::future::Future;
use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::time::{Instant, sleep};

use super::deadline::after;
use super::lock_keeper::LockGuard;

/// Wait before the first retry.
const RETRY_MIN: Duration = Duration::from_millis(10);
/// Longest wait before a retry while a failure is young.
const RETRY_MAX: Duration = Duration::from_millis(160);
/// A failure that has lasted this long is retried less often.
const LONG_FAILURE: Duration = Duration::from_secs(10);
/// Longest wait before a retry of a long failure.
const RETRY_OF_LONG_FAILURE_MAX: Duration = Duration::from_secs(1);
/// How long a call is retried while its lock is renewed. A store that renews locks works: what fails then is not the store,
/// but a row of this instance, and its holder must serve other instances.
const RETRIED_UNDER_LOCK_MAX: Duration = Duration::from_secs(600);

/// Delay before work is offered again that failed for so long although its lock was renewed.
pub(crate) const AFTER_LONG_FAILURE: Duration = Duration::from_secs(60);

/// The waits between retries. They double up to a limit.
struct RetryBackoff {
    wait: Duration,
    /// The sum of all waits.
    waited: Duration,
}

impl RetryBackoff {
    fn new() -> Self {
        Self { wait: RETRY_MIN, waited: Duration::ZERO }
    }

    /// How long to wait before the next retry.
    fn next_wait(&mut self) -> Duration {
        let wait = self.wait;
        self.waited += wait;
        let longest = if self.waited < LONG_FAILURE { RETRY_MAX } else { RETRY_OF_LONG_FAILURE_MAX };
        self.wait = (wait * 2).min(longest);
        wait
    }
}

/// Makes a call until it succeeds, fails with an error that `may_pass` refuses, the lock is lost, or it has failed for
/// [`RETRIED_UNDER_LOCK_MAX`]. Returns the last error then. `on_retry` is called with each error that is retried and the wait
/// before the retry.
pub(crate) async fn retry_while_locked<T, F>(
    lock: &LockGuard,
    may_pass: impl Fn(&ProviderError) -> bool,
    mut on_retry: impl FnMut(&ProviderError, Duration),
    mut call: impl FnMut() -> F,
) -> Result<T, ProviderError>
where
    F: Future<Output = Result<T, ProviderError>>,
{
    let mut backoff = RetryBackoff::new();
    let retried_until = after(Instant::now(), RETRIED_UNDER_LOCK_MAX);
    loop {
        let error = match call().await {
            Err(error) if may_pass(&error) && Instant::now() < retried_until => error,
            answer => return answer,
        };
        let wait = backoff.next_wait();
        on_retry(&error, wait);
        tokio::select! {
            biased;
            () = lock.lost() => return Err(error),
            () = sleep(wait) => {}
        }
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
    fn waits_double_up_to_a_sixth_of_a_second_and_after_ten_seconds_to_one() {
        let mut backoff = RetryBackoff::new();
        let waits: Vec<u128> = (0..6).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 160]);
        while backoff.waited < LONG_FAILURE {
            assert_eq!(backoff.next_wait(), RETRY_MAX);
        }
        let waits: Vec<u128> = (0..4).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [320, 640, 1_000, 1_000]);
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
