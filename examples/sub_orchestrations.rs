//! Orchestrations that start orchestrations: sub-orchestrations that are awaited, and a detached start.
//!
//! `cargo run --example sub_orchestrations`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// Builds every floor in a sub-orchestration, all at the same time.
async fn build_house(ctx: OrchestrationContext, floors: u32) -> Result<String, String> {
    let children =
        (1..=floors).map(|floor| ctx.schedule_sub_orchestration_typed::<u32, String>("build_floor", &floor));
    let mut built = Vec::new();
    for floor in ctx.join(children.collect()).await {
        built.push(floor?);
    }
    // Detached: a separate instance that this one does not wait for.
    ctx.schedule_orchestration(
        "send_invoice",
        format!("invoice-of-{}", ctx.instance_id()),
        built.len().to_string(),
    );
    Ok(built.join("; "))
}

async fn build_floor(ctx: OrchestrationContext, floor: u32) -> Result<String, String> {
    let walls = ctx.schedule_activity("work", format!("walls of floor {floor}")).await?;
    let windows = ctx.schedule_activity("work", format!("windows of floor {floor}")).await?;
    Ok(format!("{walls} and {windows}"))
}

async fn send_invoice(ctx: OrchestrationContext, floors: String) -> Result<String, String> {
    ctx.schedule_activity("work", format!("invoice for {floors} floors")).await
}

async fn work(ctx: ActivityContext, what: String) -> Result<String, String> {
    println!("{:<20} {what}", ctx.instance_id());
    Ok(what)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder().register("work", work).build_result()?;
    let orchestrations = OrchestrationRegistry::builder()
        .register_typed("build_house", build_house)
        .register_typed("build_floor", build_floor)
        .register("send_invoice", send_invoice)
        .build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    let timeout = Duration::from_secs(10);
    client.start_orchestration_typed("house-1", "build_house", 3u32).await?;
    let house = client.wait_for_orchestration_typed::<String>("house-1", timeout).await??;
    println!("built: {house}");
    let invoice = client.wait_for_orchestration_typed::<String>("invoice-of-house-1", timeout).await??;
    println!("sent: {invoice}");

    let tree = client.get_instance_tree("house-1").await?;
    println!("house-1 and its children: {}", tree.all_ids.join(", "));

    runtime.shutdown(None).await;
    Ok(())
}
