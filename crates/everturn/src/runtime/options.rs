//! Options of a runtime.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::SemverRange;
use everturn_core::limits::MIN_LOCK_TIMEOUT_MS;
use everturn_provider::{Clock, SystemClock, TagFilter};

use super::observability::ObservabilityConfig;

/// Options of a [`Runtime`](super::Runtime). The defaults suit most programs.
///
/// ```
/// use std::time::Duration;
/// use everturn::RuntimeOptions;
///
/// let options = RuntimeOptions {
///     worker_concurrency: 16,
///     activity_cancellation_grace_period: Duration::from_secs(3),
///     ..Default::default()
/// };
/// assert_eq!(options.max_attempts, 10);
/// ```
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Shortest time between two empty fetches, for providers whose fetch does not wait.
    pub dispatcher_min_poll_interval: Duration,
    /// Longest wait of one fetch for work.
    pub dispatcher_long_poll_timeout: Duration,
    /// Number of orchestrations whose code runs at the same time. Turns that wait for their commit are not counted.
    pub orchestration_concurrency: usize,
    /// Number of activities that run at the same time.
    pub worker_concurrency: usize,
    /// Duration of an instance's lock without renewal. At least 200 ms.
    pub orchestrator_lock_timeout: Duration,
    /// Time before its end at which an instance's lock is renewed.
    pub orchestrator_lock_renewal_buffer: Duration,
    /// Duration of an activity's lock without renewal. At least 200 ms.
    pub worker_lock_timeout: Duration,
    /// Time before its end at which an activity's lock is renewed.
    pub worker_lock_renewal_buffer: Duration,
    /// Logs and metrics.
    pub observability: ObservabilityConfig,
    /// Delay before work without a registered handler is offered again.
    pub unregistered_backoff: UnregisteredBackoffConfig,
    /// Number of attempts at a message before it counts as poison.
    pub max_attempts: u32,
    /// Time that a cancelled activity has to end by itself before it is aborted.
    pub activity_cancellation_grace_period: Duration,
    /// Engine versions whose executions this runtime replays. By default all versions up to its own.
    pub supported_replay_versions: Option<SemverRange>,
    /// Duration of a session's lease without renewal. At least 200 ms.
    pub session_lock_timeout: Duration,
    /// Time before its end at which a session's lease is renewed.
    pub session_lock_renewal_buffer: Duration,
    /// Time without activities after which a session is released. Must exceed the renewal interval of activities.
    pub session_idle_timeout: Duration,
    /// Interval at which idle sessions are removed, and messages for instances that were never started are dead-lettered.
    pub session_cleanup_interval: Duration,
    /// Number of sessions that may have activities running at the same time.
    pub max_sessions_per_runtime: usize,
    /// Time after which a message for an instance that was never started is dead-lettered.
    pub dead_letter_after: Duration,
    /// Stable name of this node. With a name, all its worker slots share their sessions, also across restarts.
    pub worker_node_id: Option<String>,
    /// Tags of the activities that this runtime runs.
    pub worker_tag_filter: TagFilter,
    /// Source of time and randomness of this node.
    pub clock: Arc<dyn Clock>,
    /// Number of waiting instances that stay in memory, so that their next turn needs no replay.
    pub warm_instances_max: usize,
    /// Estimated bytes that these instances may use together.
    pub warm_bytes_max: usize,
    /// Which turns of instances in memory are replayed from the stored history and compared.
    pub shadow_replay: ShadowReplay,
}

/// Which turns of instances in memory are replayed from the stored history and compared, to find nondeterministic code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShadowReplay {
    /// None.
    #[default]
    Off,
    /// One in this many turns, chosen at random; 0 means none.
    OneIn(u32),
    /// Every turn.
    Always,
}

/// Delay before work without a registered handler is offered again. It doubles with each attempt.
#[derive(Debug, Clone)]
pub struct UnregisteredBackoffConfig {
    /// Delay after the first attempt.
    pub base_delay: Duration,
    /// Longest delay.
    pub max_delay: Duration,
}

/// Number of doublings after which the delay no longer grows.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

impl UnregisteredBackoffConfig {
    /// The delay after the given attempt, counted from 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn::runtime::UnregisteredBackoffConfig;
    ///
    /// assert_eq!(UnregisteredBackoffConfig::default().delay(3), Duration::from_secs(4));
    /// ```
    pub fn delay(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        self.base_delay.saturating_mul(1 << doublings).min(self.max_delay)
    }
}

impl Default for UnregisteredBackoffConfig {
    fn default() -> Self {
        Self { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(60) }
    }
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            dispatcher_min_poll_interval: Duration::from_millis(100),
            dispatcher_long_poll_timeout: Duration::from_secs(30),
            orchestration_concurrency: 8,
            worker_concurrency: 64,
            orchestrator_lock_timeout: Duration::from_secs(5),
            orchestrator_lock_renewal_buffer: Duration::from_secs(2),
            worker_lock_timeout: Duration::from_secs(30),
            worker_lock_renewal_buffer: Duration::from_secs(5),
            observability: ObservabilityConfig::default(),
            unregistered_backoff: UnregisteredBackoffConfig::default(),
            max_attempts: 10,
            activity_cancellation_grace_period: Duration::from_secs(10),
            supported_replay_versions: None,
            session_lock_timeout: Duration::from_secs(30),
            session_lock_renewal_buffer: Duration::from_secs(5),
            session_idle_timeout: Duration::from_secs(300),
            session_cleanup_interval: Duration::from_secs(300),
            max_sessions_per_runtime: 10,
            dead_letter_after: Duration::from_secs(24 * 60 * 60),
            worker_node_id: None,
            worker_tag_filter: TagFilter::DefaultOnly,
            clock: Arc::new(SystemClock::new()),
            warm_instances_max: 10_000,
            warm_bytes_max: 256 * 1024 * 1024,
            shadow_replay: ShadowReplay::Off,
        }
    }
}

impl RuntimeOptions {
    /// Checks that the options fit together. A runtime calls it when it starts.
    ///
    /// # Panics
    /// If a lock timeout is below 200 ms, or if a session would become idle between two renewals of its activity.
    pub fn validate(&self) {
        let lock_timeout_min = Duration::from_millis(MIN_LOCK_TIMEOUT_MS);
        for (field, timeout) in [
            ("orchestrator_lock_timeout", self.orchestrator_lock_timeout),
            ("worker_lock_timeout", self.worker_lock_timeout),
            ("session_lock_timeout", self.session_lock_timeout),
        ] {
            assert!(
                timeout >= lock_timeout_min,
                "{field} is {timeout:?}, it must be at least {lock_timeout_min:?}"
            );
        }
        let renewed_after = self
            .worker_lock_timeout
            .checked_sub(self.worker_lock_renewal_buffer)
            .unwrap_or(Duration::from_secs(1));
        assert!(
            self.session_idle_timeout > renewed_after,
            "session_idle_timeout is {:?}, it must be longer than worker_lock_timeout - worker_lock_renewal_buffer ({renewed_after:?})",
            self.session_idle_timeout
        );
    }
}
