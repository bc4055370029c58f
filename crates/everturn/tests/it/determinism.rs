//! Code that changed while its instances were running: which changes replay detects and which it tolerates.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{AppErrorKind, ConfigErrorKind, ErrorDetails, OrchestrationContext, OrchestrationStatus};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_changed_activity_is_detected,
    a_changed_order_or_kind_is_detected,
    a_changed_wait_or_queue_name_is_detected,
    a_changed_child_is_detected,
    a_changed_detached_start_is_detected,
    a_changed_key_or_value_is_detected,
    a_removed_call_is_detected,
    a_removed_drop_is_detected,
    a_function_that_returns_early_is_tolerated,
    what_follows_the_end_of_history_may_change,
    timer_durations_and_status_texts_may_change,
    a_childs_version_and_explicit_id_may_change,
    a_wait_on_something_that_is_not_durable_fails_at_once,
    a_wait_that_is_not_durable_is_tolerated_beside_a_durable_one,
);

type OrchestrationFuture = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
type OrchestrationCode = Arc<dyn Fn(OrchestrationContext) -> OrchestrationFuture + Send + Sync>;

/// Code that makes a call and then waits for `go`.
fn code<T: Send + 'static>(
    ask: impl Fn(&OrchestrationContext) -> T + Clone + Send + Sync + 'static,
) -> OrchestrationCode {
    Arc::new(move |ctx| {
        let ask = ask.clone();
        Box::pin(async move {
            let asked = ask(&ctx);
            let signal = ctx.schedule_wait("go").await;
            drop(asked);
            Ok(signal)
        })
    })
}

fn deployed(code: &OrchestrationCode) -> OrchestrationRegistry {
    let code = Arc::clone(code);
    OrchestrationRegistry::builder()
        .register("Test", move |ctx: OrchestrationContext, _: String| code(ctx))
        .register("Child", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("never").await)
        })
        .build()
}

/// Starts an instance with one version of the code and finishes it with another.
async fn redeployed(
    store: &TestStore,
    instance: &str,
    before: &OrchestrationCode,
    after: &OrchestrationCode,
) -> OrchestrationStatus {
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(before), quick()).await;
    node.client.start_orchestration(instance, "Test", "").await.unwrap();
    node.committed(instance).await;
    node.runtime.shutdown(None).await;
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(after), quick()).await;
    node.client.raise_event(instance, "go", "done").await.unwrap();
    let end = node.end_of(instance).await;
    node.runtime.shutdown(None).await;
    end
}

/// Replay detects the change, with this fragment in the message.
async fn detected(
    store: &TestStore,
    case: &str,
    before: &OrchestrationCode,
    after: &OrchestrationCode,
    fragment: &str,
) {
    let end = redeployed(store, case, before, after).await;
    let OrchestrationStatus::Failed { details, .. } = end else { panic!("{case}: {end:?}") };
    let ErrorDetails::Configuration { kind: ConfigErrorKind::Nondeterminism, resource, message } = &details
    else {
        panic!("{case}: {details:?}")
    };
    let message = message.as_deref().unwrap_or_default();
    assert!(resource.is_empty() && message.contains(fragment), "{case}: {message}");
    assert!(details.display_message().starts_with("nondeterministic: "), "{case}: {details:?}");
}

async fn tolerated(store: &TestStore, case: &str, before: &OrchestrationCode, after: &OrchestrationCode) {
    let end = redeployed(store, case, before, after).await;
    assert!(
        matches!(&end, OrchestrationStatus::Completed { output, .. } if output == "done"),
        "{case}: {end:?}"
    );
}

async fn a_changed_activity_is_detected(store: TestStore) {
    let before = code(|ctx| ctx.schedule_activity_on_session("A", "in", "s").with_tag("t"));
    let changes = [
        ("name", code(|ctx| ctx.schedule_activity_on_session("B", "in", "s").with_tag("t"))),
        ("input", code(|ctx| ctx.schedule_activity_on_session("A", "other", "s").with_tag("t"))),
        ("session", code(|ctx| ctx.schedule_activity_on_session("A", "in", "other").with_tag("t"))),
        ("no session", code(|ctx| ctx.schedule_activity("A", "in").with_tag("t"))),
        ("tag", code(|ctx| ctx.schedule_activity_on_session("A", "in", "s").with_tag("other"))),
        ("no tag", code(|ctx| ctx.schedule_activity_on_session("A", "in", "s"))),
    ];
    for (case, after) in &changes {
        detected(&store, case, &before, after, "schedule mismatch: action=").await;
    }
}

async fn a_changed_order_or_kind_is_detected(store: TestStore) {
    let before = code(|ctx| {
        (ctx.schedule_activity("A", "").with_tag("unserved"), ctx.schedule_timer(Duration::from_secs(600)))
    });
    let order = code(|ctx| {
        let timer = ctx.schedule_timer(Duration::from_secs(600));
        (timer, ctx.schedule_activity("A", "").with_tag("unserved"))
    });
    let kind = code(|ctx| (ctx.schedule_wait("A"), ctx.schedule_timer(Duration::from_secs(600))));
    detected(&store, "order", &before, &order, "schedule mismatch: action=").await;
    detected(&store, "kind", &before, &kind, "vs event=").await;
}

async fn a_changed_wait_or_queue_name_is_detected(store: TestStore) {
    let (wait, other_wait) = (code(|ctx| ctx.schedule_wait("a")), code(|ctx| ctx.schedule_wait("b")));
    detected(&store, "wait", &wait, &other_wait, "schedule mismatch").await;
    let (queue, other_queue) = (code(|ctx| ctx.dequeue_event("a")), code(|ctx| ctx.dequeue_event("b")));
    detected(&store, "queue", &queue, &other_queue, "schedule mismatch").await;
}

async fn a_changed_child_is_detected(store: TestStore) {
    let before = code(|ctx| ctx.schedule_sub_orchestration("Child", "in"));
    let name = code(|ctx| ctx.schedule_sub_orchestration("Other", "in"));
    let input = code(|ctx| ctx.schedule_sub_orchestration("Child", "other"));
    detected(&store, "name", &before, &name, "schedule mismatch").await;
    detected(&store, "input", &before, &input, "schedule mismatch").await;
}

async fn a_changed_detached_start_is_detected(store: TestStore) {
    let before = code(|ctx| ctx.schedule_orchestration("Child", "d", "in"));
    let changes = [
        ("name", code(|ctx| ctx.schedule_orchestration("Other", "d", "in"))),
        ("instance", code(|ctx| ctx.schedule_orchestration("Child", "e", "in"))),
        ("input", code(|ctx| ctx.schedule_orchestration("Child", "d", "other"))),
    ];
    for (case, after) in &changes {
        detected(&store, case, &before, after, "schedule mismatch").await;
    }
    detected(&store, "gone", &before, &code(|_| ()), "mismatch").await;
}

async fn a_changed_key_or_value_is_detected(store: TestStore) {
    let before = code(|ctx| ctx.set_kv_value("k", "v"));
    detected(&store, "key", &before, &code(|ctx| ctx.set_kv_value("l", "v")), "kv set mismatch: ").await;
    detected(&store, "value", &before, &code(|ctx| ctx.set_kv_value("k", "w")), "kv set mismatch: ").await;
    let cleared = code(|ctx| ctx.clear_kv_value("k"));
    detected(&store, "clear", &cleared, &code(|ctx| ctx.clear_kv_value("l")), "kv clear mismatch: ").await;
    let all = code(|ctx| ctx.clear_all_kv_values());
    detected(&store, "all", &all, &before, "kv clear_all mismatch: ").await;
    let status = code(|ctx| ctx.set_custom_status("s"));
    detected(&store, "status", &status, &before, "custom status mismatch: ").await;
}

/// Code that starts to wait for `go`, makes a call, and then awaits the wait.
fn meanwhile<T: Send + 'static>(
    ask: impl Fn(&OrchestrationContext) -> T + Clone + Send + Sync + 'static,
) -> OrchestrationCode {
    Arc::new(move |ctx| {
        let ask = ask.clone();
        Box::pin(async move {
            let wait = ctx.schedule_wait("go");
            let asked = ask(&ctx);
            let signal = wait.await;
            drop(asked);
            Ok(signal)
        })
    })
}

async fn a_removed_call_is_detected(store: TestStore) {
    let gone = meanwhile(|_| ());
    let before = meanwhile(|ctx| ctx.schedule_activity("A", "").with_tag("unserved"));
    detected(&store, "activity", &before, &gone, "history schedule but no emitted action").await;
    let before = meanwhile(|ctx| ctx.schedule_orchestration("Child", "d", "in"));
    detected(&store, "detached", &before, &gone, "history OrchestrationChained but no emitted action").await;
}

async fn a_function_that_returns_early_is_tolerated(store: TestStore) {
    let before = code(|ctx| ctx.schedule_activity("A", "").with_tag("unserved"));
    let short: OrchestrationCode = Arc::new(|_| Box::pin(async { Ok("done".to_owned()) }));
    tolerated(&store, "i", &before, &short).await;
}

async fn a_removed_drop_is_detected(store: TestStore) {
    let dropping = [
        ("activities", code(|ctx| drop(ctx.schedule_activity("A", "")))),
        ("sub-orchestrations", code(|ctx| drop(ctx.schedule_sub_orchestration("Child", "in")))),
        ("external waits", code(|ctx| drop(ctx.schedule_wait("a")))),
        ("persistent waits", code(|ctx| drop(ctx.dequeue_event("a")))),
    ];
    let holding = [
        code(|ctx| std::mem::forget(ctx.schedule_activity("A", ""))),
        code(|ctx| std::mem::forget(ctx.schedule_sub_orchestration("Child", "in"))),
        code(|ctx| std::mem::forget(ctx.schedule_wait("a"))),
        code(|ctx| std::mem::forget(ctx.dequeue_event("a"))),
    ];
    for ((kind, before), after) in dropping.iter().zip(&holding) {
        let fragment = format!("cancellation mismatch ({kind}): baseline_dropped_future_cancel_requests=");
        detected(&store, kind, before, after, &fragment).await;
    }
}

async fn what_follows_the_end_of_history_may_change(store: TestStore) {
    let short = code(|_| ());
    let long: OrchestrationCode = Arc::new(|ctx| {
        Box::pin(async move {
            let signal = ctx.schedule_wait("go").await;
            ctx.schedule_activity("Echo", signal).await
        })
    });
    tolerated(&store, "added", &short, &long).await;
    tolerated(&store, "removed", &long, &short).await;
}

async fn timer_durations_and_status_texts_may_change(store: TestStore) {
    let before = code(|ctx| {
        ctx.set_custom_status("before");
        ctx.schedule_timer(Duration::from_secs(600))
    });
    let after = code(|ctx| {
        ctx.set_custom_status("after");
        ctx.schedule_timer(Duration::from_secs(6))
    });
    tolerated(&store, "i", &before, &after).await;
}

async fn a_childs_version_and_explicit_id_may_change(store: TestStore) {
    let before = code(|ctx| ctx.schedule_sub_orchestration_with_id("Child", "one", "in"));
    let after = code(|ctx| {
        ctx.schedule_sub_orchestration_versioned_with_id("Child", Some("9.9.9".to_owned()), "two", "in")
    });
    tolerated(&store, "i", &before, &after).await;
}

async fn a_wait_on_something_that_is_not_durable_fails_at_once(store: TestStore) {
    let sleeping: OrchestrationCode = Arc::new(|_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(String::new())
        })
    });
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(&sleeping), quick()).await;
    node.client.start_orchestration("i", "Test", "").await.unwrap();
    let details = node.failure_of("i").await;
    assert!(
        matches!(&details, ErrorDetails::Application { kind: AppErrorKind::OrchestrationFailed, message, .. }
            if message.contains("waits on something that is not durable")),
        "{details:?}"
    );
    node.runtime.shutdown(None).await;
}

async fn a_wait_that_is_not_durable_is_tolerated_beside_a_durable_one(store: TestStore) {
    let beside: OrchestrationCode = Arc::new(|ctx| {
        Box::pin(async move {
            let (signal, ()) = ctx.join2(ctx.schedule_wait("go"), tokio::task::yield_now()).await;
            Ok(signal)
        })
    });
    tolerated(&store, "i", &beside, &beside).await;
}
