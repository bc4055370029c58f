//! Messages for instances that are never started do not stay for ever.

use std::time::Duration;

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Client, OrchestrationContext, RuntimeOptions};
use tracing::Level;

use crate::log_lines::LogLines;
use crate::node_under_test::{NodeUnderTest, echo, quick, until};
use crate::stores::{TestStore, on_every_store, on_every_store_in_paused_time};

on_every_store!(a_message_for_an_unknown_instance_is_dead_lettered_after_its_time,);
on_every_store_in_paused_time!(a_dead_letter_is_logged_and_counted,);

fn waits() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register(
            "Waits",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .build()
}

/// Sweeps often.
fn sweeping() -> RuntimeOptions {
    RuntimeOptions { session_cleanup_interval: Duration::from_millis(5), ..quick() }
}

async fn a_message_for_an_unknown_instance_is_dead_lettered_after_its_time(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let client = Client::new(store.provider());
    client.start_orchestration("runs", "Waits", "").await.unwrap();
    client.raise_event("ghost", "go", "too early").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), waits(), sweeping()).await;
    node.committed("runs").await;
    clock.advance(Duration::from_secs(24 * 60 * 60));
    let dead_lettered = || node.runtime.metrics_snapshot().unwrap().messages_dead_lettered;
    until("the message is dead-lettered", async || dead_lettered() == 1).await;
    assert_eq!(client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    client.raise_event("runs", "go", "on").await.unwrap();
    assert_eq!(node.output_of("runs").await, "on", "instances that exist are not concerned");
    node.runtime.shutdown(None).await;
}

async fn a_dead_letter_is_logged_and_counted(store: TestStore) {
    let (lines, _guard) = LogLines::capture();
    let client = Client::new(store.provider());
    client.raise_event("ghost", "go", "").await.unwrap();
    let options = RuntimeOptions { dead_letter_after: Duration::from_secs(60), ..RuntimeOptions::default() };
    let node = NodeUnderTest::start(store.provider(), echo(), waits(), options).await;
    tokio::time::sleep(Duration::from_secs(310)).await;
    let line = lines.only(
        "message for an instance that was never started was dead-lettered; check the id that its sender used",
    );
    assert_eq!((line.level, line.field("instance_id")), (Level::WARN, "ghost"));
    assert_eq!(line.field("kind"), "ExternalRaised");
    assert_eq!(node.runtime.metrics_snapshot().unwrap().messages_dead_lettered, 1);
    node.runtime.shutdown(None).await;
}
