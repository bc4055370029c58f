//! Defaults and validation of `RuntimeOptions`.

use std::time::Duration;

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::runtime::{LogFormat, ObservabilityConfig, ShadowReplay, UnregisteredBackoffConfig};
use everturn::{OrchestrationContext, RuntimeOptions, TagFilter};

use crate::node_under_test::{NodeUnderTest, echo};
use crate::stores::{TestStore, on_every_store};

on_every_store!(unbounded_durations_are_accepted,);

#[test]
fn defaults_are_as_documented() {
    let options = RuntimeOptions::default();
    assert_eq!(options.dispatcher_min_poll_interval, Duration::from_millis(100));
    assert_eq!(options.dispatcher_long_poll_timeout, Duration::from_secs(30));
    assert_eq!((options.orchestration_concurrency, options.worker_concurrency), (8, 64));
    assert_eq!(options.orchestrator_lock_timeout, Duration::from_secs(5));
    assert_eq!(options.orchestrator_lock_renewal_buffer, Duration::from_secs(2));
    assert_eq!(options.worker_lock_timeout, Duration::from_secs(30));
    assert_eq!(options.worker_lock_renewal_buffer, Duration::from_secs(5));
    assert_eq!(options.max_attempts, 10);
    assert_eq!(options.activity_cancellation_grace_period, Duration::from_secs(10));
    assert_eq!(options.supported_replay_versions, None);
    assert_eq!(options.session_lock_timeout, Duration::from_secs(30));
    assert_eq!(options.session_lock_renewal_buffer, Duration::from_secs(5));
    assert_eq!(options.session_idle_timeout, Duration::from_secs(300));
    assert_eq!(options.session_cleanup_interval, Duration::from_secs(300));
    assert_eq!(options.max_sessions_per_runtime, 10);
    assert_eq!(options.dead_letter_after, Duration::from_secs(24 * 60 * 60));
    assert_eq!(options.worker_node_id, None);
    assert_eq!(options.worker_tag_filter, TagFilter::DefaultOnly);
    assert_eq!(options.shadow_replay, ShadowReplay::Off);
    options.validate();
}

#[test]
fn observability_defaults_are_as_documented() {
    let observability = RuntimeOptions::default().observability;
    assert_eq!(observability.log_format, LogFormat::Pretty);
    assert_eq!(observability.log_level, "info");
    assert_eq!(observability.service_name, "everturn");
    assert_eq!(observability.service_version, None);
    assert_eq!(observability.gauge_poll_interval, Duration::from_secs(60));
    assert_eq!(LogFormat::default(), LogFormat::Compact);
}

#[test]
fn unregistered_work_waits_longer_each_time_up_to_a_limit() {
    let seconds = |attempt| UnregisteredBackoffConfig::default().delay(attempt).as_secs();
    assert_eq!([0, 1, 2, 3, 6, 7, 8, u32::MAX].map(seconds), [1, 1, 2, 4, 32, 60, 60, 60]);
    let uncapped = UnregisteredBackoffConfig { base_delay: Duration::from_secs(1), max_delay: Duration::MAX };
    assert_eq!(uncapped.delay(100), Duration::from_secs(64));
}

#[test]
#[should_panic(expected = "orchestrator_lock_timeout")]
fn a_short_instance_lock_is_refused() {
    let short = Duration::from_millis(199);
    RuntimeOptions { orchestrator_lock_timeout: short, ..Default::default() }.validate();
}

#[test]
#[should_panic(expected = "worker_lock_timeout")]
fn a_short_activity_lock_is_refused() {
    RuntimeOptions { worker_lock_timeout: Duration::from_millis(199), ..Default::default() }.validate();
}

#[test]
#[should_panic(expected = "session_lock_timeout")]
fn a_short_session_lease_is_refused() {
    RuntimeOptions { session_lock_timeout: Duration::from_millis(199), ..Default::default() }.validate();
}

#[test]
fn the_shortest_locks_are_accepted() {
    let shortest = Duration::from_millis(200);
    RuntimeOptions {
        orchestrator_lock_timeout: shortest,
        worker_lock_timeout: shortest,
        session_lock_timeout: shortest,
        ..Default::default()
    }
    .validate();
}

#[test]
#[should_panic(expected = "session_idle_timeout")]
fn a_session_may_not_be_idle_between_two_renewals() {
    RuntimeOptions { session_idle_timeout: Duration::from_secs(25), ..Default::default() }.validate();
}

#[test]
#[should_panic(expected = "session_idle_timeout")]
fn an_underflowing_renewal_counts_as_one_second() {
    RuntimeOptions {
        worker_lock_timeout: Duration::from_secs(2),
        session_idle_timeout: Duration::from_secs(1),
        ..Default::default()
    }
    .validate();
}

async fn unbounded_durations_are_accepted(store: TestStore) {
    let endless = Duration::MAX;
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: endless,
        dispatcher_long_poll_timeout: endless,
        orchestrator_lock_timeout: endless,
        worker_lock_timeout: endless,
        session_lock_timeout: endless,
        session_idle_timeout: endless,
        session_cleanup_interval: endless,
        activity_cancellation_grace_period: endless,
        unregistered_backoff: UnregisteredBackoffConfig { base_delay: endless, max_delay: endless },
        observability: ObservabilityConfig { gauge_poll_interval: endless, ..Default::default() },
        ..Default::default()
    };
    let orchestrations = OrchestrationRegistry::builder()
        .register("Echo", |ctx: OrchestrationContext, input: String| async move {
            let on_session = ctx.schedule_activity_on_session("Echo", input, "s").await?;
            drop(ctx.schedule_timer(Duration::MAX));
            ctx.schedule_activity("Echo", on_session).await
        })
        .build();
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations, options).await;
    node.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "x");
    node.runtime.shutdown(None).await;
}
