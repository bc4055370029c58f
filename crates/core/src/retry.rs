//! Retry policies of activities.

use std::time::Duration;

/// A retry policy for `schedule_activity_with_retry`.
///
/// ```
/// use std::time::Duration;
/// use everturn_core::{BackoffStrategy, RetryPolicy};
///
/// let policy = RetryPolicy::new(5)
///     .with_timeout(Duration::from_secs(10))
///     .with_backoff(BackoffStrategy::Fixed { delay: Duration::from_secs(1) });
/// assert_eq!(policy.delay_for_attempt(3), Duration::from_secs(1));
/// ```
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// The most attempts that are made.
    pub max_attempts: u32,
    /// The wait between attempts.
    pub backoff: BackoffStrategy,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
}

impl RetryPolicy {
    /// At most `max_attempts` attempts with the default back-off and no timeout.
    ///
    /// # Panics
    /// If `max_attempts` is 0.
    pub fn new(max_attempts: u32) -> Self {
        assert!(max_attempts >= 1, "max_attempts must be at least 1");
        Self { max_attempts, backoff: BackoffStrategy::default(), timeout: None }
    }

    /// Sets a time limit for each attempt; an attempt that exceeds it ends the retries with an error.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The former name of [`RetryPolicy::with_timeout`].
    #[doc(hidden)]
    #[must_use]
    pub fn with_total_timeout(self, timeout: Duration) -> Self {
        self.with_timeout(timeout)
    }

    /// Sets the wait between attempts.
    #[must_use]
    pub fn with_backoff(mut self, backoff: BackoffStrategy) -> Self {
        self.backoff = backoff;
        self
    }

    /// The wait after the given failed attempt; the first is 1.
    pub fn delay_for_attempt(&self, attempt: u32) -> Duration {
        self.backoff.delay_for_attempt(attempt)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new(3)
    }
}

/// The wait between attempts.
#[derive(Debug, Clone)]
pub enum BackoffStrategy {
    /// No wait.
    None,
    /// The same wait each time.
    Fixed {
        /// The wait.
        delay: Duration,
    },
    /// `base` times the attempt.
    Linear {
        /// The first wait.
        base: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// `base`, multiplied after each attempt.
    Exponential {
        /// The first wait.
        base: Duration,
        /// What each further wait is multiplied with.
        multiplier: f64,
        /// The longest wait.
        max: Duration,
    },
}

impl Default for BackoffStrategy {
    fn default() -> Self {
        Self::Exponential { base: Duration::from_millis(100), multiplier: 2.0, max: Duration::from_secs(30) }
    }
}

impl BackoffStrategy {
    /// The wait after the given failed attempt; the first is 1.
    pub fn delay_for_attempt(&self, attempt: u32) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Fixed { delay } => *delay,
            Self::Linear { base, max } => base.saturating_mul(attempt).min(*max),
            Self::Exponential { base, multiplier, max } => {
                let exponent = f64::from(attempt.saturating_sub(1));
                let nanos = base.as_nanos() as f64 * multiplier.powf(exponent);
                // The cast saturates: infinity becomes the largest wait, NaN becomes 0.
                Duration::from_nanos(nanos as u64).min(*max)
            }
        }
    }
}
