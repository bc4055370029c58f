//! Tags route activities to the runtimes that serve them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, EventKind, OrchestrationContext, RuntimeOptions, TagFilter};

use crate::node_under_test::{NodeUnderTest, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    default_only_takes_what_has_no_tag,
    tags_take_their_members_and_nothing_untagged,
    default_and_takes_both,
    any_takes_everything,
    none_takes_nothing,
    a_tagged_activity_waits_for_a_runtime_that_serves_its_tag,
    a_tag_composes_with_a_session_and_a_typed_call,
    a_tagged_activity_without_a_handler_is_left_to_another_runtime,
);

/// The tags that activities ran with.
#[derive(Clone, Default)]
struct ServedTags(Arc<Mutex<BTreeSet<String>>>);

impl ServedTags {
    fn activities(&self) -> ActivityRegistry {
        let served = self.clone();
        ActivityRegistry::builder()
            .register("Work", move |ctx: ActivityContext, _: String| {
                served.0.lock().unwrap().insert(ctx.tag().unwrap_or("none").to_owned());
                async move { Ok(format!("{:?} {:?}", ctx.tag(), ctx.session_id())) }
            })
            .build()
    }

    fn tags(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().cloned().collect()
    }
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("EachTag", |ctx: OrchestrationContext, _: String| async move {
            let calls = vec![
                ctx.schedule_activity("Work", ""),
                ctx.schedule_activity("Work", "").with_tag("cpu"),
                ctx.schedule_activity("Work", "").with_tag("gpu"),
            ];
            Ok(ctx.join(calls).await.len().to_string())
        })
        .register("OnSession", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity_on_session("Work", "", "s").with_tag("gpu").await
        })
        .register("Typed", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity_typed::<_, String>("Work", &1).with_tag("cpu").with_tag("gpu").await
        })
        .build()
}

fn serving(worker_tag_filter: TagFilter) -> RuntimeOptions {
    RuntimeOptions { worker_tag_filter, ..quick() }
}

/// Runs a runtime with this filter on a queue with every tag. A second runtime takes the rest.
async fn takes(store: TestStore, filter: TagFilter, expected: &[&str]) {
    let (served, rest) = (ServedTags::default(), ServedTags::default());
    let node =
        NodeUnderTest::start(store.provider(), served.activities(), orchestrations(), serving(filter)).await;
    node.client.start_orchestration("i", "EachTag", "").await.unwrap();
    until("its part is done", async || {
        let history = node.history("i", 1).await;
        let done = history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }));
        !history.is_empty() && done.count() == expected.len()
    })
    .await;
    if expected.len() < 3 {
        assert_eq!(node.client.get_queue_depths().await.unwrap().worker_queue, 3 - expected.len());
    }
    let other = serving(TagFilter::any());
    let other = NodeUnderTest::start(store.provider(), rest.activities(), orchestrations(), other).await;
    assert_eq!(node.output_of("i").await, "3");
    assert_eq!(served.tags(), expected);
    assert_eq!(rest.tags().len(), 3 - expected.len());
    node.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn default_only_takes_what_has_no_tag(store: TestStore) {
    takes(store, TagFilter::default_only(), &["none"]).await;
}

async fn tags_take_their_members_and_nothing_untagged(store: TestStore) {
    takes(store, TagFilter::tags(["gpu", "tpu"]), &["gpu"]).await;
}

async fn default_and_takes_both(store: TestStore) {
    takes(store, TagFilter::default_and(["gpu"]), &["gpu", "none"]).await;
}

async fn any_takes_everything(store: TestStore) {
    takes(store, TagFilter::any(), &["cpu", "gpu", "none"]).await;
}

async fn none_takes_nothing(store: TestStore) {
    takes(store, TagFilter::none(), &[]).await;
}

async fn a_tagged_activity_waits_for_a_runtime_that_serves_its_tag(store: TestStore) {
    let served = ServedTags::default();
    let plain = serving(TagFilter::default_only());
    let node = NodeUnderTest::start(store.provider(), served.activities(), orchestrations(), plain).await;
    node.client.start_orchestration("i", "OnSession", "").await.unwrap();
    node.committed("i").await;
    // Later untagged work is done, the tagged call is skipped.
    node.client.start_orchestration("other", "EachTag", "").await.unwrap();
    until("untagged work is done", async || served.tags() == ["none"]).await;
    assert_eq!(node.history("i", 1).await.len(), 2);
    let gpu = serving(TagFilter::tags(["gpu"]));
    let gpu = NodeUnderTest::start(store.provider(), served.activities(), orchestrations(), gpu).await;
    node.output_of("i").await;
    node.runtime.shutdown(None).await;
    gpu.runtime.shutdown(None).await;
}

async fn a_tag_composes_with_a_session_and_a_typed_call(store: TestStore) {
    let served = ServedTags::default();
    let gpu = serving(TagFilter::tags(["gpu"]));
    let node = NodeUnderTest::start(store.provider(), served.activities(), orchestrations(), gpu).await;
    node.client.start_orchestration("i", "OnSession", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "Some(\"gpu\") Some(\"s\")");
    // The last tag given wins.
    node.client.start_orchestration("j", "Typed", "").await.unwrap();
    assert_eq!(node.output_of("j").await, "Some(\"gpu\") None");
    let history = node.history("j", 1).await;
    assert!(matches!(&history[1].kind, EventKind::ActivityScheduled { tag: Some(tag), .. } if tag == "gpu"));
    node.runtime.shutdown(None).await;
}

async fn a_tagged_activity_without_a_handler_is_left_to_another_runtime(store: TestStore) {
    let served = ServedTags::default();
    let gpu = RuntimeOptions { max_attempts: u32::MAX, ..serving(TagFilter::tags(["gpu"])) };
    let empty = ActivityRegistry::default();
    let without = NodeUnderTest::start(store.provider(), empty, orchestrations(), gpu.clone()).await;
    without.client.start_orchestration("i", "Typed", "").await.unwrap();
    without.committed("i").await;
    let with = NodeUnderTest::start(store.provider(), served.activities(), orchestrations(), gpu).await;
    without.runtime.shutdown(None).await;
    assert!(!with.output_of("i").await.is_empty());
    with.runtime.shutdown(None).await;
}
