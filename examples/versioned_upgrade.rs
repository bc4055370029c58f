//! A rolling upgrade: instances that started on the old version finish on it, new ones use the new version.
//!
//! `cargo run --example versioned_upgrade`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The first release.
async fn parcel(ctx: OrchestrationContext, what: String) -> Result<String, String> {
    ctx.schedule_activity("pack", what.clone()).await?;
    ctx.set_custom_status("packed");
    let to = ctx.schedule_wait("address").await;
    ctx.schedule_activity("send", format!("{what} to {to}")).await
}

/// The second release adds a step. Recorded histories lack it, so it is a new version.
async fn insured_parcel(ctx: OrchestrationContext, what: String) -> Result<String, String> {
    ctx.schedule_activity("pack", what.clone()).await?;
    ctx.schedule_activity("insure", what.clone()).await?;
    ctx.set_custom_status("packed");
    let to = ctx.schedule_wait("address").await;
    ctx.schedule_activity("send", format!("insured {what} to {to}")).await
}

async fn print_step(ctx: ActivityContext, what: String) -> Result<String, String> {
    println!(
        "{} by version {}: {} {what}",
        ctx.instance_id(),
        ctx.orchestration_version(),
        ctx.activity_name()
    );
    Ok(format!("{} {what}", ctx.activity_name()))
}

fn activities() -> Result<ActivityRegistry, String> {
    ActivityRegistry::builder()
        .register_all(vec![("pack", print_step), ("insure", print_step), ("send", print_step)])
        .build_result()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let client = Client::new(store.clone());
    let timeout = Duration::from_secs(10);
    let poll = Duration::from_millis(20);

    println!("release 1 runs");
    let release_1 =
        OrchestrationRegistry::builder().register_versioned("parcel", "1.0.0", parcel).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities()?, release_1).await;
    client.start_orchestration("parcel-1", "parcel", "a book").await?;
    client.wait_for_status_change("parcel-1", 0, poll, timeout).await?;
    runtime.shutdown(None).await;

    println!("release 2 runs");
    let release_2 = OrchestrationRegistry::builder()
        .register_versioned("parcel", "1.0.0", parcel)
        .register_versioned("parcel", "2.0.0", insured_parcel)
        .build_result()?;
    let runtime = Runtime::start_with_store(store, activities()?, release_2).await;
    client.start_orchestration("parcel-2", "parcel", "a vase").await?;
    client.wait_for_status_change("parcel-2", 0, poll, timeout).await?;

    for id in ["parcel-1", "parcel-2"] {
        client.raise_event(id, "address", "Lisbon").await?;
        let sent = client.wait_for_orchestration_typed::<String>(id, timeout).await??;
        let version = client.get_instance_info(id).await?.orchestration_version;
        println!("{id} ended on version {version}: {sent}");
    }

    runtime.shutdown(None).await;
    Ok(())
}
