//! Where activities run: a tag selects the kind of worker, a session keeps activities on one worker.
//!
//! Three runtimes share one store here, as three machines would share a database.
//!
//! `cargo run --example sessions_and_tags`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, RuntimeOptions, TagFilter,
};

async fn index(ctx: OrchestrationContext, book: String) -> Result<String, String> {
    // Untagged: any node that serves untagged work.
    let mut places = vec![ctx.schedule_activity("split", book.clone()).await?];
    // Tagged: a node that serves `gpu`. On a session: the node that runs the first chapter runs the others as well.
    let session = format!("model-of-{}", ctx.instance_id());
    for chapter in 1..=3 {
        let input = format!("{book}, chapter {chapter}");
        places
            .push(ctx.schedule_activity_on_session("embed", input, session.as_str()).with_tag("gpu").await?);
    }
    Ok(places.join(" "))
}

async fn split(ctx: ActivityContext, book: String) -> Result<String, String> {
    println!("{}: split {book}", node_of(&ctx));
    Ok(node_of(&ctx))
}

async fn embed(ctx: ActivityContext, chapter: String) -> Result<String, String> {
    println!(
        "{}: embed {chapter} (tag {}, session {})",
        node_of(&ctx),
        ctx.tag().unwrap_or("none"),
        ctx.session_id().unwrap_or("none")
    );
    Ok(node_of(&ctx))
}

/// A worker id has the form `work-{slot}-{node}`.
fn node_of(ctx: &ActivityContext) -> String {
    ctx.worker_id().splitn(3, '-').last().unwrap_or_default().to_owned()
}

async fn start_node(
    store: &Arc<SqliteProvider>,
    name: &str,
    worker_tag_filter: TagFilter,
) -> Result<Arc<Runtime>, Box<dyn Error>> {
    let activities =
        ActivityRegistry::builder().register("split", split).register("embed", embed).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("index", index).build_result()?;
    let options = RuntimeOptions {
        // With a node id, all worker slots of the node share its sessions.
        worker_node_id: Some(name.to_owned()),
        worker_tag_filter,
        ..Default::default()
    };
    Ok(Runtime::start_with_options(store.clone(), activities, orchestrations, options).await)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let nodes = [
        start_node(&store, "office", TagFilter::default_only()).await?,
        start_node(&store, "gpu-left", TagFilter::tags(["gpu"])).await?,
        start_node(&store, "gpu-right", TagFilter::tags(["gpu"])).await?,
    ];

    let client = Client::new(store);
    client.start_orchestration("index-1", "index", "Moby Dick").await?;
    let places = client.wait_for_orchestration_typed::<String>("index-1", Duration::from_secs(10)).await??;

    let places: Vec<&str> = places.split(' ').collect();
    match places.as_slice() {
        ["office", first, rest @ ..]
            if first.starts_with("gpu-") && rest.iter().all(|place| place == first) =>
        {
            println!("split in the office, all chapters on one gpu node");
        }
        _ => return Err(format!("unexpected places: {places:?}").into()),
    }

    for node in nodes {
        node.shutdown(None).await;
    }
    Ok(())
}
