//! How a runtime works.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::SemverRange;
use everturn_core::limits::MIN_LOCK_TIMEOUT_MS;
use everturn_provider::{Clock, SystemClock, TagFilter};

use super::observability::ObservabilityConfig;

/// How a runtime works. Every field has a default that suits most programs.
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
    /// How long one fetch waits for work.
    pub dispatcher_long_poll_timeout: Duration,
    /// How many orchestrations' code runs at the same time. Beyond these, turns may be waiting for their commit.
    pub orchestration_concurrency: usize,
    /// How many activities run at the same time.
    pub worker_concurrency: usize,
    /// How long an instance stays locked without renewal. At least 200 ms.
    pub orchestrator_lock_timeout: Duration,
    /// How long before its end an instance's lock is renewed.
    pub orchestrator_lock_renewal_buffer: Duration,
    /// How long an activity stays locked without renewal. At least 200 ms.
    pub worker_lock_timeout: Duration,
    /// How long before its end an activity's lock is renewed.
    pub worker_lock_renewal_buffer: Duration,
    /// Logs and metrics.
    pub observability: ObservabilityConfig,
    /// How long work waits for which this runtime has no handler.
    pub unregistered_backoff: UnregisteredBackoffConfig,
    /// How often a message is tried before it counts as poison.
    pub max_attempts: u32,
    /// How long a cancelled activity may go on before it is aborted.
    pub activity_cancellation_grace_period: Duration,
    /// Which engine versions' executions this runtime takes; by default all up to its own.
    pub supported_replay_versions: Option<SemverRange>,
    /// How long a session stays with its owner without renewal. At least 200 ms.
    pub session_lock_timeout: Duration,
    /// How long before its end a session's lease is renewed.
    pub session_lock_renewal_buffer: Duration,
    /// How long a session stays with its owner without activities. Longer than the renewal interval of activities.
    pub session_idle_timeout: Duration,
    /// How often sessions nobody needs are removed.
    pub session_cleanup_interval: Duration,
    /// How many sessions may be in flight at the same time.
    pub max_sessions_per_runtime: usize,
    /// A stable name of this node: its worker slots then own sessions together, across restarts.
    pub worker_node_id: Option<String>,
    /// Which activities this runtime takes.
    pub worker_tag_filter: TagFilter,
    /// Where this node gets time and randomness from.
    pub clock: Arc<dyn Clock>,
    /// How many waiting instances stay in memory, so that their next turn needs no replay.
    pub warm_instances_max: usize,
    /// How many bytes they may hold together, by estimate.
    pub warm_bytes_max: usize,
    /// How often a turn that began in memory is replayed from storage and compared.
    pub shadow_replay: ShadowReplay,
}

/// How often a turn that began in memory is replayed from storage and compared, to find code that is not deterministic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShadowReplay {
    /// Never.
    #[default]
    Off,
    /// Once in so many turns; 0 means never.
    OneIn(u32),
    /// After every turn.
    Always,
}

/// How long work waits for which a runtime has no handler: longer with each attempt.
#[derive(Debug, Clone)]
pub struct UnregisteredBackoffConfig {
    /// The first wait.
    pub base_delay: Duration,
    /// The longest wait.
    pub max_delay: Duration,
}

/// After so many doublings the wait no longer grows, whatever its limit.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

impl UnregisteredBackoffConfig {
    /// The wait after the given attempt; the first is 1.
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
    /// Checks what a runtime relies on; it does so when it starts.
    ///
    /// # Panics
    /// If a lock timeout is below 200 ms, or a session would count as idle between two renewals of its activity.
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
