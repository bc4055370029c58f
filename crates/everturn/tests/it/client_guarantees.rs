//! Guarantees of the client under a running engine: consistency, concurrency, deletion.

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{EventKind, OrchestrationContext, OrchestrationStatus};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_status_agrees_with_the_last_committed_turn,
    waiting_may_begin_before_the_start_is_processed,
    a_client_serves_many_tasks_at_once,
    the_custom_status_of_a_finished_instance_stays_readable,
    the_version_of_a_custom_status_never_falls_across_executions,
    the_version_rises_once_a_turn_however_many_calls_it_made,
    children_are_listed_with_their_parents,
    nothing_is_left_of_a_deleted_instance,
    a_forced_deletion_discards_running_work,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Echo", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        })
        .register("Steps", |ctx: OrchestrationContext, input: String| async move {
            ctx.set_custom_status("a");
            ctx.set_custom_status(format!("{input} waits"));
            let signal = ctx.schedule_wait("go").await;
            ctx.set_custom_status(format!("{input} done"));
            if input == "first" { ctx.continue_as_new("second").await } else { Ok(signal) }
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration("Echo", "x").await
        })
        .register("Keeps", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("k", "v");
            Ok(ctx.dequeue_event("q").await)
        })
        .build()
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn a_status_agrees_with_the_last_committed_turn(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Steps", "second").await.unwrap();
    node.until_status("i", "second waits").await;
    let running = OrchestrationStatus::Running {
        custom_status: Some("second waits".to_owned()),
        custom_status_version: 1,
    };
    assert_eq!(node.client.get_orchestration_status("i").await.unwrap(), running);
    node.client.raise_event("i", "go", "out").await.unwrap();
    let completed = OrchestrationStatus::Completed {
        output: "out".to_owned(),
        custom_status: Some("second done".to_owned()),
        custom_status_version: 2,
    };
    assert_eq!(node.end_of("i").await, completed);
    assert_eq!(node.client.get_orchestration_status("i").await.unwrap(), completed);
    node.runtime.shutdown(None).await;
}

async fn waiting_may_begin_before_the_start_is_processed(store: TestStore) {
    let client = everturn::Client::new(store.provider());
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait_for_orchestration("i", PATIENCE).await.unwrap() }
    });
    client.start_orchestration("i", "Echo", "x").await.unwrap();
    let node = node_on(&store).await;
    assert!(matches!(waiting.await.unwrap(), OrchestrationStatus::Completed { output, .. } if output == "x"));
    node.runtime.shutdown(None).await;
}

async fn a_client_serves_many_tasks_at_once(store: TestStore) {
    let node = node_on(&store).await;
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let client = node.client.clone();
            tokio::spawn(async move {
                let instance = format!("i{number}");
                client.start_orchestration(&instance, "Echo", number.to_string()).await.unwrap();
                client.wait_for_orchestration_typed::<u32>(&instance, PATIENCE).await.unwrap()
            })
        })
        .collect();
    for (number, task) in (0..).zip(tasks) {
        assert_eq!(task.await.unwrap(), Ok(number));
    }
    node.runtime.shutdown(None).await;
}

async fn the_custom_status_of_a_finished_instance_stays_readable(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Steps", "second").await.unwrap();
    node.committed("i").await;
    node.client.raise_event("i", "go", "").await.unwrap();
    node.end_of("i").await;
    node.runtime.shutdown(None).await;
    let OrchestrationStatus::Completed { custom_status, .. } =
        node.client.get_orchestration_status("i").await.unwrap()
    else {
        panic!("it is completed")
    };
    assert_eq!(custom_status.as_deref(), Some("second done"));
}

async fn the_version_of_a_custom_status_never_falls_across_executions(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Steps", "first").await.unwrap();
    let mut versions = Vec::new();
    for wanted in ["first waits", "second waits"] {
        node.until_status("i", wanted).await;
        let status = node.client.get_orchestration_status("i").await.unwrap();
        let OrchestrationStatus::Running { custom_status_version, .. } = status else { panic!("{status:?}") };
        versions.push(custom_status_version);
        node.client.raise_event("i", "go", "").await.unwrap();
    }
    let end = node.end_of("i").await;
    let OrchestrationStatus::Completed { custom_status_version, .. } = end else { panic!("{end:?}") };
    versions.push(custom_status_version);
    assert_eq!(versions, [1, 3, 4]);
    node.runtime.shutdown(None).await;
}

async fn the_version_rises_once_a_turn_however_many_calls_it_made(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Steps", "second").await.unwrap();
    node.until_status("i", "second waits").await;
    let history = node.history("i", 1).await;
    let updates = history.iter().filter(|event| matches!(event.kind, EventKind::CustomStatusUpdated { .. }));
    assert_eq!(updates.count(), 2);
    let status = node.client.get_orchestration_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { custom_status_version: 1, .. }), "{status:?}");
    node.runtime.shutdown(None).await;
}

async fn children_are_listed_with_their_parents(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("p", "Parent", "").await.unwrap();
    node.output_of("p").await;
    let mut listed = node.client.list_all_instances().await.unwrap();
    listed.sort();
    assert_eq!(listed, ["p", "p::sub::2"]);
    node.runtime.shutdown(None).await;
}

async fn nothing_is_left_of_a_deleted_instance(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Keeps", "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
    node.client.enqueue_event("i", "q", "waiting").await.unwrap();
    node.client.delete_instance("i", true).await.unwrap();
    assert_eq!(node.client.get_orchestration_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    assert!(node.client.get_kv_all_values("i").await.unwrap().is_empty());
    assert_eq!(node.client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    // The id may be used again, and the old message is not delivered.
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Keeps", "").await.unwrap();
    node.committed("i").await;
    node.client.enqueue_event("i", "q", "new").await.unwrap();
    assert_eq!(node.output_of("i").await, "new");
    node.runtime.shutdown(None).await;
}

async fn a_forced_deletion_discards_running_work(store: TestStore) {
    let (begun, gate) = (tokio::sync::Semaphore::new(0), tokio::sync::Semaphore::new(0));
    let (begun, gate) = (std::sync::Arc::new(begun), std::sync::Arc::new(gate));
    let (entered, opened) = (begun.clone(), gate.clone());
    let activities = everturn::runtime::registry::ActivityRegistry::builder()
        .register("Echo", move |_ctx, input: String| {
            let (begun, gate) = (entered.clone(), opened.clone());
            async move {
                begun.add_permits(1);
                gate.acquire().await.unwrap().forget();
                Ok(input)
            }
        })
        .build();
    let node = NodeUnderTest::start(store.provider(), activities, orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Echo", "x").await.unwrap();
    begun.acquire().await.unwrap().forget();
    node.client.delete_instance("i", true).await.unwrap();
    gate.add_permits(1);
    node.runtime.shutdown(Some(5_000)).await;
    assert_eq!(node.client.get_orchestration_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    let depths = node.client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0));
}
