//! Limits on sizes and counts: the failure each violation causes, and which instances are notified.

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{
    AppErrorKind, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions,
};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;
use crate::turn_by_hand::child_start;

on_every_store!(
    a_violation_fails_the_instance_with_its_text,
    exactly_the_limit_is_allowed,
    keys_of_earlier_turns_and_executions_count,
    a_violation_discards_the_turns_work,
    a_parent_is_notified_of_its_childs_violation,
    a_violating_turn_still_notifies_a_colliding_parent,
    a_violation_cancels_open_children,
    payloads_without_a_result_fail_the_instance,
    payloads_of_activities_and_children_are_errors_of_their_calls,
    replay_of_a_refused_call_does_not_read_the_limit,
    texts_of_failures_are_cut_to_the_limit,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Breaks", |ctx: OrchestrationContext, limit: String| async move {
            breaks(&ctx, &limit, 1);
            Ok("within".to_owned())
        })
        .register("Reaches", |ctx: OrchestrationContext, limit: String| async move {
            breaks(&ctx, &limit, 0);
            ctx.schedule_activity("Echo", "within").await
        })
        .register("Grows", |ctx: OrchestrationContext, execution: String| async move {
            for turn in 0..5 {
                for key in 0..15 {
                    ctx.set_kv_value(format!("{execution}-{turn}-{key}"), "");
                }
                ctx.schedule_activity("Echo", "").await?;
            }
            if execution == "second" {
                ctx.set_kv_value("one too many", "");
            }
            ctx.continue_as_new("second").await
        })
        .register("BreaksAfterCalls", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_wait("go").await;
            ctx.schedule_orchestration("Waits", "detached", "");
            let child = ctx.schedule_sub_orchestration_with_id("Waits", "new child", "");
            let activity = ctx.schedule_activity("Echo", "");
            breaks(&ctx, "status", 1);
            drop((child.await, activity.await));
            Ok(String::new())
        })
        .register("HoldsAChild", |ctx: OrchestrationContext, _: String| async move {
            let child = ctx.schedule_sub_orchestration_with_id("Waits", "child", "");
            ctx.schedule_wait("go").await;
            breaks(&ctx, "status", 1);
            child.await
        })
        .register("BreaksOnSignal", |ctx: OrchestrationContext, _: String| async move {
            let signal = ctx.schedule_wait("go").await;
            breaks(&ctx, "status", 1);
            Ok(signal)
        })
        .register("Parent", |ctx: OrchestrationContext, limit: String| async move {
            Ok(ctx.schedule_sub_orchestration("Breaks", limit).await.unwrap_err())
        })
        .register("Adopts", |ctx: OrchestrationContext, child: String| async move {
            ctx.schedule_sub_orchestration_with_id("Waits", child, "").await
        })
        .register(
            "Waits",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .build()
}

/// Exceeds a limit by this number of bytes or keys.
fn breaks(ctx: &OrchestrationContext, limit: &str, above: usize) {
    match limit {
        "status" => ctx.set_custom_status("x".repeat(262_144 + above)),
        "tag" => std::mem::forget(ctx.schedule_activity("Echo", "").with_tag("x".repeat(256 + above))),
        "value" => ctx.set_kv_value("k", "x".repeat(65_536 + above)),
        _ => (0..150 + above).for_each(|key| ctx.set_kv_value(key.to_string(), "")),
    }
}

const VIOLATIONS: [(&str, &str); 4] = [
    ("status", "Custom status size (262145 bytes) exceeds limit (262144 bytes)"),
    ("tag", "Activity 'Echo' tag size (257 bytes) exceeds limit (256 bytes)"),
    ("value", "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)"),
    ("keys", "KV key count (151) exceeds limit (150)"),
];

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn a_violation_fails_the_instance_with_its_text(store: TestStore) {
    let node = node_on(&store).await;
    for (limit, text) in VIOLATIONS {
        node.client.start_orchestration(limit, "Breaks", limit).await.unwrap();
        let details = node.failure_of(limit).await;
        assert_eq!(details, ErrorDetails::orchestration_failed(text));
        assert!(matches!(
            details,
            ErrorDetails::Application { kind: AppErrorKind::OrchestrationFailed, retryable: false, .. }
        ));
    }
    node.runtime.shutdown(None).await;
}

async fn exactly_the_limit_is_allowed(store: TestStore) {
    let node = node_on(&store).await;
    for (limit, _) in VIOLATIONS {
        node.client.start_orchestration(limit, "Reaches", limit).await.unwrap();
        assert_eq!(node.output_of(limit).await, "within", "{limit}");
    }
    node.runtime.shutdown(None).await;
}

async fn keys_of_earlier_turns_and_executions_count(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Grows", "first").await.unwrap();
    assert_eq!(node.failure_of("i").await.display_message(), "KV key count (151) exceeds limit (150)");
    assert_eq!(node.client.list_executions("i").await.unwrap(), [1, 2]);
    node.runtime.shutdown(None).await;
}

async fn a_violation_discards_the_turns_work(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "BreaksAfterCalls", "").await.unwrap();
    node.committed("i").await;
    node.client.raise_event("i", "go", "").await.unwrap();
    node.failure_of("i").await;
    assert_eq!(node.client.list_all_instances().await.unwrap(), ["i"]);
    let depths = node.client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0));
    assert_eq!(node.runtime.metrics_snapshot().unwrap().activity_success, 0);
    node.runtime.shutdown(None).await;
}

async fn a_parent_is_notified_of_its_childs_violation(store: TestStore) {
    let node = node_on(&store).await;
    for (limit, text) in VIOLATIONS {
        node.client.start_orchestration(limit, "Parent", limit).await.unwrap();
        assert_eq!(node.output_of(limit).await, text);
        let history = node.history(limit, 1).await;
        assert!(history.iter().any(|event| matches!(&event.kind,
            EventKind::SubOrchestrationFailed { details } if *details == ErrorDetails::orchestration_failed(text))));
    }
    node.runtime.shutdown(None).await;
}

async fn a_violating_turn_still_notifies_a_colliding_parent(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "BreaksOnSignal", "").await.unwrap();
    node.client.start_orchestration("p", "Waits", "").await.unwrap();
    node.committed("i").await;
    node.committed("p").await;
    node.runtime.shutdown(None).await;
    // One batch holds the signal that makes the turn break its limit and a child start for the same id.
    node.client.raise_event("i", "go", "").await.unwrap();
    let start = child_start("p", "i");
    store.provider().enqueue_for_orchestrator(start, None).await.unwrap();
    let node = node_on(&store).await;
    assert!(node.failure_of("i").await.display_message().starts_with("Custom status size"));
    // The notice names event 2 of the parent, which is a wait. The failure shows that the notice arrived.
    assert_eq!(
        node.failure_of("p").await.display_message(),
        "nondeterministic: no matching schedule for sub-orchestration id=2"
    );
    node.runtime.shutdown(None).await;
}

async fn a_violation_cancels_open_children(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "HoldsAChild", "").await.unwrap();
    node.committed("child").await;
    node.client.raise_event("i", "go", "").await.unwrap();
    node.failure_of("i").await;
    assert_eq!(node.failure_of("child").await.display_message(), "canceled: parent failed");
    node.runtime.shutdown(None).await;
}

/// `Large` exceeds a limit of 200 bytes in the way its input names.
fn large() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Large", |ctx: OrchestrationContext, way: String| async move {
            let payload = "x".repeat(201);
            match way.as_str() {
                "detached" => ctx.schedule_orchestration("Large", "never", payload),
                "kv" => ctx.set_kv_value("k", payload),
                "status" => ctx.set_custom_status(payload),
                "continue" => return ctx.continue_as_new(payload).await,
                "output" => return Ok(payload),
                "error" => return Err(payload),
                "result" => return ctx.schedule_activity("Double", "x".repeat(101)).await,
                "failure" => return ctx.schedule_activity("Fails", "x".repeat(101)).await,
                "activity" => return ctx.schedule_activity("Echo", payload).await,
                "child" => return ctx.schedule_sub_orchestration("Large", payload).await,
                other => return Ok(other.to_owned()),
            }
            ctx.schedule_activity("Echo", "not dispatched").await
        })
        .register("Refused", |ctx: OrchestrationContext, _: String| async move {
            let refused = ctx.schedule_activity("Echo", "x".repeat(201)).await.unwrap_err();
            Ok(format!("{refused}{}", ctx.schedule_wait("go").await))
        })
        .build()
}

fn too_large(what: &str, bytes: usize) -> String {
    format!(
        "{what}: Payload size ({bytes} bytes) exceeds limit (200 bytes); see the provider option payload_bytes_max"
    )
}

async fn payloads_without_a_result_fail_the_instance(store: TestStore) {
    let store = store.with_payload_bytes_max(200).await;
    let node = NodeUnderTest::start(store.provider(), echo(), large(), quick()).await;
    for (way, what) in [
        ("detached", "input of detached orchestration Large"),
        ("kv", "value of key k"),
        ("status", "custom status"),
        ("continue", "input of continue_as_new"),
        ("output", "output of the orchestration"),
        ("error", "error of the orchestration"),
    ] {
        node.client.start_orchestration(way, "Large", way).await.unwrap();
        assert_eq!(node.failure_of(way).await, ErrorDetails::orchestration_failed(too_large(what, 201)));
        assert_eq!(node.client.list_executions(way).await.unwrap(), [1], "{way}");
    }
    let status = node.client.get_orchestration_status("never").await.unwrap();
    assert_eq!(status, OrchestrationStatus::NotFound);
    node.runtime.shutdown(None).await;
}

async fn payloads_of_activities_and_children_are_errors_of_their_calls(store: TestStore) {
    let store = store.with_payload_bytes_max(200).await;
    let activities = ActivityRegistry::builder()
        .register("Double", |_ctx, input: String| async move { Ok(format!("{input}{input}")) })
        .register("Fails", |_ctx, input: String| async move { Err(format!("{input}{input}")) })
        .build();
    let node = NodeUnderTest::start(store.provider(), activities, large(), quick()).await;
    for (way, text) in [
        ("result", too_large("result of activity Double", 202)),
        ("failure", too_large("error of activity Fails", 202)),
        ("activity", too_large("input of activity Echo", 201)),
        ("child", too_large("input of child orchestration Large", 201)),
    ] {
        node.client.start_orchestration(way, "Large", way).await.unwrap();
        assert_eq!(node.failure_of(way).await.display_message(), text, "{way}");
    }
    let history = node.history("child", 1).await;
    assert!(
        matches!(&history[1].kind, EventKind::SubOrchestrationScheduled { input, .. } if input.is_empty())
    );
    assert!(matches!(&history[2].kind, EventKind::SubOrchestrationFailed { .. }));
    assert_eq!(node.client.list_all_instances().await.unwrap().len(), 4, "no child was started");
    node.runtime.shutdown(None).await;
}

async fn replay_of_a_refused_call_does_not_read_the_limit(store: TestStore) {
    let store = store.with_payload_bytes_max(200).await;
    let node = NodeUnderTest::start(store.provider(), echo(), large(), quick()).await;
    node.client.start_orchestration("i", "Refused", "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
    // The same data behind a store with the default limit, under which the call would have been allowed.
    let roomy = TamperingStore::with_default_limits(store.provider());
    let options = RuntimeOptions { warm_instances_max: 0, ..quick() };
    let node = NodeUnderTest::start(roomy, echo(), large(), options).await;
    node.client.raise_event("i", "go", " still").await.unwrap();
    assert_eq!(node.output_of("i").await, format!("{} still", too_large("input of activity Echo", 201)));
    node.runtime.shutdown(None).await;
}

async fn texts_of_failures_are_cut_to_the_limit(store: TestStore) {
    let store = store.with_payload_bytes_max(2_000).await;
    let orchestrations = OrchestrationRegistry::builder()
        .register(
            "Panics",
            |_: OrchestrationContext, _: String| async move { panic!("{}", "p".repeat(3_000)) },
        )
        .register("Calls", |ctx: OrchestrationContext, _: String| async move {
            // Twice as long as JSON.
            ctx.schedule_activity("Unregistered", "\"".repeat(1_500)).await
        })
        .build();
    let options = RuntimeOptions { max_attempts: 1, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations, options).await;
    for orchestration in ["Panics", "Calls", "Missing"] {
        node.client.start_orchestration(orchestration, orchestration, "\"".repeat(1_500)).await.unwrap();
        let details = node.failure_of(orchestration).await;
        let (ErrorDetails::Application { message, .. } | ErrorDetails::Poison { message, .. }) = &details
        else {
            panic!("{details:?}")
        };
        assert_eq!(message.len(), 2_000, "{orchestration}");
        assert!(message.ends_with(" bytes in all)"), "{orchestration}: {message}");
    }
    node.runtime.shutdown(None).await;
}
