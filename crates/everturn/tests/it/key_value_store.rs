//! The key-value store of an instance across turns, executions and instances.

use std::sync::Arc;

use everturn::providers::ManualClock;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    another_instances_value_is_read_while_it_runs_and_after,
    an_unknown_instance_or_key_is_none,
    a_typed_read_of_another_instance_decodes_json,
    what_was_read_of_another_instance_is_recorded_and_replayed,
    values_are_built_up_across_turns_and_executions,
    values_survive_failure,
    parent_and_child_do_not_share_values,
    empty_keys_and_values_are_legal,
    values_are_gone_with_the_instance,
    pruning_goes_by_the_recorded_times_warm_and_cold,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Writer", |ctx: OrchestrationContext, value: String| async move {
            ctx.set_kv_value("key", value);
            let last = ctx.schedule_wait("next").await;
            ctx.set_kv_value("key", last.clone());
            if last == "fail" { Err(last) } else { Ok(last) }
        })
        .register("Reader", |ctx: OrchestrationContext, from: String| async move {
            Ok(format!("{:?}", ctx.get_kv_value_from_instance(from, "key").await?))
        })
        .register("TypedReader", |ctx: OrchestrationContext, from: String| async move {
            let number: Option<u32> = ctx.get_kv_value_from_instance_typed(from, "key").await?;
            Ok(format!("{number:?}"))
        })
        .register("ReadsThenWaits", |ctx: OrchestrationContext, from: String| async move {
            let read = ctx.get_kv_value_from_instance(from, "key").await?;
            ctx.set_custom_status("read");
            ctx.schedule_wait("go").await;
            Ok(format!("{read:?}"))
        })
        .register("Sum", |ctx: OrchestrationContext, round: String| async move {
            for _ in 0..3 {
                let total: u32 = ctx.get_kv_value_typed("total")?.unwrap_or(0);
                ctx.schedule_activity("Echo", total.to_string()).await?;
                ctx.set_kv_value_typed("total", &(total + 1));
            }
            match round.as_str() {
                "3" => Ok(ctx.get_kv_value("total").unwrap_or_default()),
                other => {
                    let next: u32 = other.parse().map_err(|_| "a number")?;
                    ctx.continue_as_new((next + 1).to_string()).await
                }
            }
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("whose", "parent");
            let child = ctx.schedule_sub_orchestration("Child", "").await?;
            Ok(format!("{child} {:?}", ctx.get_kv_value("whose")))
        })
        .register("Child", |ctx: OrchestrationContext, _: String| async move {
            let seen = ctx.get_kv_value("whose");
            ctx.set_kv_value("whose", "child");
            Ok(format!("{seen:?}"))
        })
        .register("Empty", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("", "");
            ctx.schedule_activity("Echo", "").await?;
            Ok(format!("{:?} {}", ctx.get_kv_value(""), ctx.get_kv_length()))
        })
        .register("Prunes", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("old", "1");
            ctx.schedule_wait("next").await;
            ctx.set_kv_value("new", "2");
            let cutoff = ctx.schedule_wait("cutoff").await.parse().map_err(|_| "a number")?;
            let pruned = ctx.prune_kv_values_updated_before(cutoff);
            ctx.schedule_activity("Echo", "").await?;
            Ok(format!("{pruned} {:?}", ctx.get_kv_all_keys()))
        })
        .build()
}

fn cold() -> RuntimeOptions {
    RuntimeOptions { warm_instances_max: 0, ..quick() }
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn run(node: &NodeUnderTest, instance: &str, orchestration: &str, input: &str) -> String {
    node.client.start_orchestration(instance, orchestration, input).await.unwrap();
    node.output_of(instance).await
}

async fn another_instances_value_is_read_while_it_runs_and_after(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("writer", "Writer", "first").await.unwrap();
    node.committed("writer").await;
    assert_eq!(run(&node, "r1", "Reader", "writer").await, "Some(\"first\")");
    node.client.raise_event("writer", "next", "last").await.unwrap();
    node.output_of("writer").await;
    assert_eq!(run(&node, "r2", "Reader", "writer").await, "Some(\"last\")");
    node.runtime.shutdown(None).await;
}

async fn an_unknown_instance_or_key_is_none(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "r1", "Reader", "unknown").await, "None");
    assert_eq!(run(&node, "other", "Empty", "").await, "Some(\"\") 1");
    assert_eq!(run(&node, "r2", "Reader", "other").await, "None");
    node.runtime.shutdown(None).await;
}

async fn a_typed_read_of_another_instance_decodes_json(store: TestStore) {
    let node = node_on(&store).await;
    for (writer, reader, value) in [("w1", "r1", "42"), ("w2", "r2", "not a number")] {
        node.client.start_orchestration(writer, "Writer", value).await.unwrap();
        node.committed(writer).await;
        node.client.start_orchestration(reader, "TypedReader", writer).await.unwrap();
    }
    assert_eq!(node.output_of("r1").await, "Some(42)");
    assert!(!node.failure_of("r2").await.display_message().is_empty());
    node.runtime.shutdown(None).await;
}

async fn what_was_read_of_another_instance_is_recorded_and_replayed(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), cold()).await;
    node.client.start_orchestration("writer", "Writer", "first").await.unwrap();
    node.committed("writer").await;
    node.client.start_orchestration("reader", "ReadsThenWaits", "writer").await.unwrap();
    node.until_status("reader", "read").await;
    node.client.raise_event("writer", "next", "changed").await.unwrap();
    node.output_of("writer").await;
    node.client.raise_event("reader", "go", "").await.unwrap();
    assert_eq!(node.output_of("reader").await, "Some(\"first\")");
    let history = node.history("reader", 1).await;
    let EventKind::ActivityScheduled { name, input, .. } = &history[1].kind else { panic!("{history:?}") };
    assert_eq!(name, "__everturn_syscall:get_kv_value");
    assert_eq!(input, r#"{"instance_id":"writer","key":"key"}"#);
    assert!(
        matches!(&history[2].kind, EventKind::ActivityCompleted { result } if result == "\"first\""),
        "{history:?}"
    );
    node.runtime.shutdown(None).await;
}

async fn values_are_built_up_across_turns_and_executions(store: TestStore) {
    for (instance, options) in [("warm", quick()), ("cold", cold())] {
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
        assert_eq!(run(&node, instance, "Sum", "1").await, "9");
        assert_eq!(node.client.get_kv_value(instance, "total").await.unwrap().as_deref(), Some("9"));
        node.runtime.shutdown(None).await;
    }
}

async fn values_survive_failure(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("writer", "Writer", "first").await.unwrap();
    node.committed("writer").await;
    node.client.raise_event("writer", "next", "fail").await.unwrap();
    node.failure_of("writer").await;
    assert_eq!(node.client.get_kv_value("writer", "key").await.unwrap().as_deref(), Some("fail"));
    node.runtime.shutdown(None).await;
}

async fn parent_and_child_do_not_share_values(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "p", "Parent", "").await, "None Some(\"parent\")");
    assert_eq!(node.client.get_kv_value("p::sub::3", "whose").await.unwrap().as_deref(), Some("child"));
    node.runtime.shutdown(None).await;
}

async fn empty_keys_and_values_are_legal(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "i", "Empty", "").await, "Some(\"\") 1");
    assert_eq!(node.client.get_kv_value("i", "").await.unwrap().as_deref(), Some(""));
    node.runtime.shutdown(None).await;
}

async fn values_are_gone_with_the_instance(store: TestStore) {
    let node = node_on(&store).await;
    run(&node, "i", "Empty", "").await;
    node.client.delete_instance("i", false).await.unwrap();
    assert!(node.client.get_kv_all_values("i").await.unwrap().is_empty());
    node.runtime.shutdown(None).await;
}

async fn pruning_goes_by_the_recorded_times_warm_and_cold(store: TestStore) {
    let clock = Arc::new(ManualClock::new(5_000));
    for (instance, warm_instances_max) in [("cold", 0), ("warm", 100)] {
        clock.set_wall_ms(5_000);
        let options = RuntimeOptions { warm_instances_max, clock: clock.clone(), ..quick() };
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
        node.client.start_orchestration(instance, "Prunes", "").await.unwrap();
        node.committed(instance).await;
        clock.set_wall_ms(6_000);
        node.client.raise_event(instance, "next", "").await.unwrap();
        node.client.wait_for_kv_value(instance, "new", PATIENCE).await.unwrap();
        clock.set_wall_ms(7_000);
        // A write carries the time of the last event before it. Pruning keeps a value written exactly at the cut-off.
        node.client.raise_event(instance, "cutoff", "6000").await.unwrap();
        assert_eq!(node.output_of(instance).await, "1 [\"new\"]");
        let history = node.history(instance, 1).await;
        let times: Vec<u64> = history
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::KeyValueSet { last_updated_at_ms, .. } => Some(*last_updated_at_ms),
                _ => None,
            })
            .collect();
        assert_eq!(times, [5_000, 6_000]);
        node.runtime.shutdown(None).await;
    }
}
