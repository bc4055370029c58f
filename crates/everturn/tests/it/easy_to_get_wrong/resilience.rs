//! Panics, failing disks and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn::providers::ProviderError;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, AppErrorKind, ErrorDetails, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, echo};
use crate::stores::{Store, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(
    a_panic_in_an_orchestration_fails_that_instance_with_its_text,
    a_panic_in_an_activity_is_an_error_the_orchestration_can_handle,
    a_disk_that_fails_for_half_a_second_fails_no_instance,
    shutdown_returns_with_nothing_left_holding_the_provider,
);

async fn a_panic_in_an_orchestration_fails_that_instance_with_its_text(store: Store) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Panics", |_: OrchestrationContext, input: String| async move {
            assert!(input != "now", "the sky fell");
            Ok(input)
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), echo(), orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Panics", "now").await.unwrap();
    let details = node.failure_of("one").await;
    let ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. } = &details else {
        panic!("{details:?}")
    };
    assert_eq!(message, "the sky fell");
    assert_eq!(details.display_message(), "orchestration panicked: the sky fell");
    node.client.start_orchestration("two", "Panics", "later").await.unwrap();
    assert_eq!(node.output_of("two").await, "later");
    node.runtime.shutdown(None).await;
}

async fn a_panic_in_an_activity_is_an_error_the_orchestration_can_handle(store: Store) {
    let activities = ActivityRegistry::builder()
        .register("Panics", |_: ActivityContext, input: String| async move {
            match input.as_str() {
                "text" => panic!("the sky fell"),
                _ => std::panic::panic_any(7_u8),
            }
            #[expect(unreachable_code, reason = "gives the future its type")]
            Ok(input)
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            let with_text = ctx.schedule_activity("Panics", "text").await.unwrap_err();
            let without = ctx.schedule_activity("Panics", "number").await.unwrap_err();
            Ok(format!("{with_text} / {without}"))
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), activities, orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    assert_eq!(node.output_of("one").await, "activity panicked: the sky fell / activity panicked");
    node.runtime.shutdown(None).await;
}

async fn a_disk_that_fails_for_half_a_second_fails_no_instance(store: Store) {
    let failing = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&failing);
    let tampering = TamperingStore::new(store.provider(), move |operation| {
        switch.load(Ordering::SeqCst).then(|| ProviderError::retryable(operation, "disk I/O error"))
    });
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, input: String| async move {
            let mut text = input;
            for _ in 0..20 {
                text = ctx.schedule_activity("Echo", text).await?;
            }
            Ok(text)
        })
        .build();
    let node = NodeUnderTest::start(tampering, echo(), orchestrations, RuntimeOptions::default()).await;
    for number in 0..20 {
        node.client.start_orchestration(format!("i-{number}"), "Test", number.to_string()).await.unwrap();
    }
    failing.store(true, Ordering::SeqCst);
    // The fault itself lasts half a second; nothing is waited for.
    tokio::time::sleep(Duration::from_millis(500)).await;
    failing.store(false, Ordering::SeqCst);
    for number in 0..20 {
        assert_eq!(node.output_of(&format!("i-{number}")).await, number.to_string());
    }
    node.runtime.shutdown(None).await;
}

async fn shutdown_returns_with_nothing_left_holding_the_provider(store: Store) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("waiting");
            let wait = ctx.schedule_wait("never");
            ctx.select2(wait, ctx.schedule_activity("Stays", "")).await;
            Ok(String::new())
        })
        .build();
    let activities = ActivityRegistry::builder()
        .register("Stays", |ctx: ActivityContext, _: String| async move {
            // Holds a client, and through it the store, until it is aborted.
            let _client = ctx.get_client();
            std::future::pending::<Result<String, String>>().await
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), activities, orchestrations, RuntimeOptions::default()).await;
    for number in 0..10 {
        node.client.start_orchestration(format!("i-{number}"), "Test", "").await.unwrap();
        node.says(&format!("i-{number}"), "waiting").await;
    }
    drop(node.client);
    node.runtime.shutdown(None).await;
    assert_eq!(store.other_handles(), 0);
}
