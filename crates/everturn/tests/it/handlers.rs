//! What can be registered as a handler, and how a panic in one is reported.

use std::sync::Arc;

use async_trait::async_trait;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::runtime::{ActivityHandler, FnActivity, FnOrchestration, OrchestrationHandler};
use everturn::{ActivityContext, AppErrorKind, ErrorDetails, OrchestrationContext};

use crate::node_under_test::{NodeUnderTest, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_panic_of_an_activity_is_an_error_with_its_text,
    a_panic_of_an_orchestration_fails_its_instance,
    a_user_defined_handler_type_works_like_a_closure,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Calls", |ctx: OrchestrationContext, how: String| async move {
            Ok(ctx.schedule_activity("Panics", how).await.unwrap_err())
        })
        .register("Panics", |_: OrchestrationContext, how: String| async move { panics(&how) })
        .build()
}

fn panics(how: &str) -> Result<String, String> {
    match how {
        "literal" => panic!("a literal"),
        "text" => panic!("a text with {how}"),
        _ => std::panic::panic_any(42_u32),
    }
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("Panics", |_: ActivityContext, how: String| async move { panics(&how) })
        .build()
}

async fn a_panic_of_an_activity_is_an_error_with_its_text(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), activities(), orchestrations(), quick()).await;
    for (how, text) in [
        ("literal", "activity panicked: a literal"),
        ("text", "activity panicked: a text with text"),
        ("any", "activity panicked"),
    ] {
        node.client.start_orchestration(how, "Calls", how).await.unwrap();
        assert_eq!(node.output_of(how).await, text);
    }
    node.runtime.shutdown(None).await;
}

async fn a_panic_of_an_orchestration_fails_its_instance(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), activities(), orchestrations(), quick()).await;
    for (how, text) in [
        ("literal", "orchestration panicked: a literal"),
        ("text", "orchestration panicked: a text with text"),
    ] {
        node.client.start_orchestration(how, "Panics", how).await.unwrap();
        let details = node.failure_of(how).await;
        assert!(matches!(&details, ErrorDetails::Application { kind: AppErrorKind::Panicked, .. }));
        assert_eq!(details.display_message(), text);
    }
    node.client.start_orchestration("any", "Panics", "any").await.unwrap();
    let text = node.failure_of("any").await.display_message();
    assert!(text.starts_with("orchestration panicked"), "{text}");
    node.runtime.shutdown(None).await;
}

struct Doubles;

#[async_trait]
impl ActivityHandler for Doubles {
    async fn invoke(&self, _ctx: ActivityContext, input: String) -> Result<String, String> {
        Ok(input.repeat(2))
    }
}

struct CallsDoubles;

#[async_trait]
impl OrchestrationHandler for CallsDoubles {
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String> {
        ctx.schedule_activity("Doubles", input).await
    }
}

async fn a_user_defined_handler_type_works_like_a_closure(store: TestStore) {
    let (activity, orchestration) = (Arc::new(Doubles), Arc::new(CallsDoubles));
    let activities = ActivityRegistry::builder()
        .register("Doubles", move |ctx, input| {
            let activity = Arc::clone(&activity);
            async move { activity.invoke(ctx, input).await }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Calls", move |ctx, input| {
            let orchestration = Arc::clone(&orchestration);
            async move { orchestration.invoke(ctx, input).await }
        })
        .build();
    let node = NodeUnderTest::start(store.provider(), activities, orchestrations, quick()).await;
    node.client.start_orchestration("i", "Calls", "ab").await.unwrap();
    assert_eq!(node.output_of("i").await, "abab");
    node.runtime.shutdown(None).await;
}

/// The wrappers around functions are handlers themselves.
#[test]
fn wrapped_functions_are_handlers() {
    fn is_activity(_: &impl ActivityHandler) {}
    fn is_orchestration(_: &impl OrchestrationHandler) {}
    is_activity(&FnActivity(|_: ActivityContext, input: String| async move { Ok(input) }));
    is_orchestration(&FnOrchestration(|_: OrchestrationContext, input: String| async move { Ok(input) }));
}
