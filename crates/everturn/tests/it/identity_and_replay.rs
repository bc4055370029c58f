//! What an orchestration knows about itself, and when `is_replaying` is true.

use std::sync::{Arc, Mutex};

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    an_orchestration_knows_its_identity,
    the_first_turn_never_replays,
    what_was_recorded_replays_and_what_is_new_does_not,
    an_instance_in_memory_never_replays,
);

type ReplayNotes = Arc<Mutex<Vec<(String, bool)>>>;

/// `Notes` records at each place of its code whether it is replaying.
fn orchestrations(seen: &ReplayNotes) -> OrchestrationRegistry {
    let seen = Arc::clone(seen);
    OrchestrationRegistry::builder()
        .register_versioned("Identity", "1.2.3", |ctx: OrchestrationContext, input: String| async move {
            if input.is_empty() {
                return ctx.continue_as_new("again").await;
            }
            let (instance, execution) = (ctx.instance_id(), ctx.execution_id());
            let (name, version) = (ctx.orchestration_name(), ctx.orchestration_version());
            Ok(format!("{instance} {execution} {name} {version} {}", ctx.is_logging_enabled()))
        })
        .register("Notes", move |ctx: OrchestrationContext, _: String| {
            let seen = Arc::clone(&seen);
            let note = move |ctx: &OrchestrationContext, place: &str| {
                seen.lock().unwrap().push((place.to_owned(), ctx.is_replaying()));
            };
            async move {
                note(&ctx, "start");
                ctx.schedule_activity("Echo", "").await?;
                note(&ctx, "middle");
                ctx.schedule_activity("Echo", "").await?;
                note(&ctx, "end");
                Ok(String::new())
            }
        })
        .build()
}

async fn notes(store: &TestStore, warm_instances_max: usize) -> Vec<(String, bool)> {
    let seen = ReplayNotes::default();
    let options = RuntimeOptions { warm_instances_max, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(&seen), options).await;
    node.client.start_orchestration("i", "Notes", "").await.unwrap();
    node.output_of("i").await;
    node.runtime.shutdown(None).await;
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn places(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
    expected.iter().map(|(place, replaying)| ((*place).to_owned(), *replaying)).collect()
}

async fn an_orchestration_knows_its_identity(store: TestStore) {
    let node =
        NodeUnderTest::start(store.provider(), echo(), orchestrations(&ReplayNotes::default()), quick())
            .await;
    node.client.start_orchestration("i", "Identity", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "i 2 Identity 1.2.3 false");
    node.runtime.shutdown(None).await;
}

async fn the_first_turn_never_replays(store: TestStore) {
    assert_eq!(notes(&store, 0).await.first(), places(&[("start", false)]).first());
}

async fn what_was_recorded_replays_and_what_is_new_does_not(store: TestStore) {
    let expected = [
        ("start", false),
        ("start", true),
        ("middle", false),
        ("start", true),
        ("middle", true),
        ("end", false),
    ];
    assert_eq!(notes(&store, 0).await, places(&expected));
}

async fn an_instance_in_memory_never_replays(store: TestStore) {
    assert_eq!(notes(&store, 100).await, places(&[("start", false), ("middle", false), ("end", false)]));
}
