//! A parent cancels only its own children: an instance that has the id of a child call, but was started by a client or by
//! another call, keeps running.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use everturn::providers::Provider;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Either2, EventKind, OrchestrationContext, OrchestrationStatus};
use tokio::sync::Semaphore;

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_dropped_call_leaves_a_root_with_its_id_running,
    the_loser_of_a_race_leaves_a_busy_root_with_its_id_running,
    a_failing_parent_leaves_a_busy_root_with_its_childs_id_running,
    a_cancelled_parent_leaves_a_busy_root_with_its_childs_id_running,
    a_dropped_call_leaves_the_child_of_another_call_running,
    a_parent_cancels_its_child_after_the_child_continued_as_new,
    a_parent_cancels_a_child_whose_start_is_still_queued,
);

/// Lets one turn of `Victim` begin, and then wait until the test lets it end.
#[derive(Clone)]
struct BusyTurn {
    began: Arc<Semaphore>,
    end: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl BusyTurn {
    fn new() -> (Self, mpsc::Sender<()>) {
        let (end, ends) = mpsc::channel();
        (Self { began: Arc::new(Semaphore::new(0)), end: Arc::new(Mutex::new(ends)) }, end)
    }

    fn wait(&self) {
        self.began.add_permits(1);
        // In place: a task that this thread has woken, but not yet run, must not wait for the end of the turn.
        tokio::task::block_in_place(|| {
            let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            // The lock has its whole time to be renewed meanwhile; an error means that the test has ended.
            end.recv_timeout(PATIENCE).unwrap_or_default();
        });
    }
}

fn orchestrations(busy: BusyTurn) -> OrchestrationRegistry {
    let call = |ctx: &OrchestrationContext| ctx.schedule_sub_orchestration_with_id("Victim", "victim", "");
    OrchestrationRegistry::builder()
        .register("Victim", move |ctx: OrchestrationContext, _: String| {
            let busy = busy.clone();
            async move {
                match ctx.select2(ctx.schedule_wait("end"), ctx.schedule_wait("be busy")).await {
                    Either2::First(end) => Ok(end),
                    Either2::Second(_) => {
                        if !ctx.is_replaying() {
                            busy.wait();
                        }
                        Ok(ctx.schedule_wait("end").await)
                    }
                }
            }
        })
        .register("Drops", move |ctx: OrchestrationContext, _: String| async move {
            drop(call(&ctx));
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Races", move |ctx: OrchestrationContext, _: String| async move {
            match ctx.select2(call(&ctx), ctx.schedule_wait("go")).await {
                Either2::First(child) => child,
                Either2::Second(_) => Ok(ctx.schedule_wait("end").await),
            }
        })
        .register("Fails", move |ctx: OrchestrationContext, _: String| async move {
            let _child = call(&ctx);
            ctx.schedule_wait("go").await;
            panic!("on purpose")
        })
        .register("CallsTwice", move |ctx: OrchestrationContext, _: String| async move {
            let (first, go) = (call(&ctx), ctx.schedule_wait("go"));
            go.await;
            drop(call(&ctx));
            first.await
        })
        .register("Continues", |ctx: OrchestrationContext, input: String| async move {
            if input == "again" {
                ctx.set_custom_status("continued");
                return Ok(ctx.schedule_wait("end").await);
            }
            ctx.continue_as_new("again").await
        })
        .register("CallsOneThatContinues", |ctx: OrchestrationContext, _: String| async move {
            let child = ctx.schedule_sub_orchestration_with_id("Continues", "child", "");
            ctx.select2(child, ctx.schedule_wait("go")).await;
            Ok(ctx.schedule_wait("end").await)
        })
        .build()
}

async fn node_on(store: Arc<dyn Provider>, busy: BusyTurn) -> NodeUnderTest {
    NodeUnderTest::start(store, echo(), orchestrations(busy), quick()).await
}

async fn begin(node: &NodeUnderTest, instance: &str, orchestration: &str) {
    node.client.start_orchestration(instance, orchestration, "").await.unwrap();
    node.committed(instance).await;
}

/// Messages arrive in order: if a cancel came, it came before this signal.
async fn completes(node: &NodeUnderTest, instance: &str) {
    node.client.raise_event(instance, "end", "unharmed").await.unwrap();
    assert_eq!(node.output_of(instance).await, "unharmed", "{instance} was not cancelled");
}

async fn a_dropped_call_leaves_a_root_with_its_id_running(store: TestStore) {
    let (busy, _end) = BusyTurn::new();
    let node = node_on(store.provider(), busy).await;
    begin(&node, "victim", "Victim").await;
    begin(&node, "parent", "Drops").await;
    completes(&node, "victim").await;
    node.runtime.shutdown(None).await;
}

/// The root `victim` is in the middle of a turn while `parent` calls a child of that id and gets `trigger`, so that no
/// collision is reported to the parent before it cancels its call.
async fn busy_victim_survives(store: TestStore, parent: &str, trigger: &str) {
    let (busy, end) = BusyTurn::new();
    // One slot more than busy turns: the parent's turns go on.
    let node = node_on(store.provider(), busy.clone()).await;
    begin(&node, "victim", "Victim").await;
    node.client.raise_event("victim", "be busy", "").await.unwrap();
    busy.began.acquire().await.unwrap().forget();
    begin(&node, "parent", parent).await;
    match trigger {
        "cancel" => node.client.cancel_instance("parent", "enough").await.unwrap(),
        signal => node.client.raise_event("parent", signal, "").await.unwrap(),
    }
    let sent = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::SubOrchestrationCancelRequested { .. } | EventKind::OrchestrationFailed { .. }
        )
    };
    until("the parent has cancelled its call", async || {
        node.history("parent", 1).await.iter().any(|event| sent(&event.kind))
    })
    .await;
    end.send(()).unwrap();
    completes(&node, "victim").await;
    node.runtime.shutdown(None).await;
}

async fn the_loser_of_a_race_leaves_a_busy_root_with_its_id_running(store: TestStore) {
    busy_victim_survives(store, "Races", "go").await;
}

async fn a_failing_parent_leaves_a_busy_root_with_its_childs_id_running(store: TestStore) {
    busy_victim_survives(store, "Fails", "go").await;
}

async fn a_cancelled_parent_leaves_a_busy_root_with_its_childs_id_running(store: TestStore) {
    busy_victim_survives(store, "Races", "cancel").await;
}

async fn a_dropped_call_leaves_the_child_of_another_call_running(store: TestStore) {
    let (busy, _end) = BusyTurn::new();
    let node = node_on(store.provider(), busy).await;
    begin(&node, "parent", "CallsTwice").await;
    node.committed("victim").await;
    node.client.raise_event("parent", "go", "").await.unwrap();
    until("the second call is dropped", async || {
        let history = node.history("parent", 1).await;
        history.iter().any(|event| matches!(event.kind, EventKind::SubOrchestrationCancelRequested { .. }))
    })
    .await;
    completes(&node, "victim").await;
    assert_eq!(node.output_of("parent").await, "unharmed");
    node.runtime.shutdown(None).await;
}

async fn a_parent_cancels_its_child_after_the_child_continued_as_new(store: TestStore) {
    let (busy, _end) = BusyTurn::new();
    let node = node_on(store.provider(), busy).await;
    begin(&node, "parent", "CallsOneThatContinues").await;
    node.until_status("child", "continued").await;
    node.client.raise_event("parent", "go", "").await.unwrap();
    let failure = node.failure_of("child").await.display_message();
    assert_eq!(failure, "canceled: parent dropped sub-orchestration future");
    node.runtime.shutdown(None).await;
}

async fn a_parent_cancels_a_child_whose_start_is_still_queued(store: TestStore) {
    let (busy, _end) = BusyTurn::new();
    let node = node_on(store.provider(), busy).await;
    // Start and cancel of the child are sent by the same turn.
    begin(&node, "parent", "Drops").await;
    let OrchestrationStatus::Failed { details, .. } = node.end_of("victim").await else {
        panic!("the child was not cancelled")
    };
    assert_eq!(details.display_message(), "canceled: parent dropped sub-orchestration future");
    node.runtime.shutdown(None).await;
}
