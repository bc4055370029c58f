//! Built-in activities: new GUIDs and the current time.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use everturn::providers::ManualClock;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Either2, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    every_guid_is_a_different_version_4_uuid,
    a_guid_and_a_time_are_recorded_and_replayed,
    utc_now_is_the_time_of_the_node_in_milliseconds,
    a_system_call_that_loses_a_race_is_cancelled,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("TwoGuids", |ctx: OrchestrationContext, _: String| async move {
            let (one, other) = ctx.join2(ctx.new_guid(), ctx.new_guid()).await;
            Ok(format!("{} {}", one?, other?))
        })
        .register("GuidAndTime", |ctx: OrchestrationContext, _: String| async move {
            let guid = ctx.new_guid().await?;
            let now = ctx.utc_now().await?.duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
            let first = format!("{guid} {}", now.as_millis());
            ctx.set_custom_status(first.clone());
            ctx.schedule_wait("go").await;
            Ok(first)
        })
        .register("Race", |ctx: OrchestrationContext, _: String| async move {
            // A call that is dropped in the turn that made it never runs.
            drop(ctx.new_guid());
            match ctx.select2(ctx.utc_now(), ctx.schedule_wait("never")).await {
                Either2::First(now) => now.map(|_| "time".to_owned()),
                Either2::Second(signal) => Ok(signal),
            }
        })
        .build()
}

async fn every_guid_is_a_different_version_4_uuid(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "TwoGuids", "").await.unwrap();
    let output = node.output_of("i").await;
    let (one, other) = output.split_once(' ').unwrap();
    assert_ne!(one, other);
    for guid in [one, other] {
        let parts: Vec<usize> = guid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{guid}");
        assert_eq!(&guid[14..15], "4", "{guid}");
        assert!(["8", "9", "a", "b"].contains(&&guid[19..20]), "{guid}");
    }
    node.runtime.shutdown(None).await;
}

async fn a_guid_and_a_time_are_recorded_and_replayed(store: TestStore) {
    // Nothing stays in memory: every turn calls both again and gets the recorded values.
    let options = RuntimeOptions { warm_instances_max: 0, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
    node.client.start_orchestration("i", "GuidAndTime", "").await.unwrap();
    let status = node.client.wait_for_status_change("i", 0, Duration::from_millis(5), PATIENCE).await;
    let OrchestrationStatus::Running { custom_status: Some(first), .. } = status.unwrap() else {
        panic!("it ended early")
    };
    node.client.raise_event("i", "go", "").await.unwrap();
    assert_eq!(node.output_of("i").await, first);
    let history = node.history("i", 1).await;
    let calls: Vec<(&str, &str)> = history
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ActivityScheduled { name, input, .. } => Some((name.as_str(), input.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [("__everturn_syscall:new_guid", ""), ("__everturn_syscall:utc_now_ms", "")]);
    node.runtime.shutdown(None).await;
}

async fn utc_now_is_the_time_of_the_node_in_milliseconds(store: TestStore) {
    let options = RuntimeOptions { clock: Arc::new(ManualClock::new(1_234_567)), ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
    node.client.start_orchestration("i", "GuidAndTime", "").await.unwrap();
    let shows_the_time = async || {
        let status = node.client.get_orchestration_status("i").await.unwrap();
        matches!(status, OrchestrationStatus::Running { custom_status: Some(text), .. }
            if text.ends_with(" 1234567"))
    };
    until("the custom status shows the time", shows_the_time).await;
    node.runtime.shutdown(None).await;
}

async fn a_system_call_that_loses_a_race_is_cancelled(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Race", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "time");
    let history = node.history("i", 1).await;
    let cancelled: Vec<Option<u64>> = history
        .iter()
        .filter(|event| matches!(&event.kind, EventKind::ActivityCancelRequested { reason } if reason == "dropped_future"))
        .map(|event| event.source_event_id)
        .collect();
    assert_eq!(cancelled, [Some(2)]);
    node.runtime.shutdown(None).await;
}
