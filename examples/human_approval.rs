//! Human approval with a deadline: a signal raced against a timer.
//!
//! `cargo run --example human_approval`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, Either2, OrchestrationContext, OrchestrationRegistry};

/// In production this would be days. The timer is a row in the database and survives restarts.
const TIME_TO_DECIDE: Duration = Duration::from_millis(800);

async fn expense(ctx: OrchestrationContext, what: String) -> Result<String, String> {
    ctx.schedule_activity("ask_manager", what.clone()).await?;
    // The status and the wait are committed in the same turn: a client that sees the status can send the signal.
    ctx.set_custom_status("waiting for a decision");
    let decision = ctx.schedule_wait("decision");
    let time_is_up = ctx.schedule_timer(TIME_TO_DECIDE);
    match ctx.select2(decision, time_is_up).await {
        Either2::First(decision) => Ok(format!("{what}: {decision}")),
        Either2::Second(()) => Ok(format!("{what}: no decision in time, passed to the next manager")),
    }
}

async fn ask_manager(ctx: ActivityContext, what: String) -> Result<String, String> {
    println!("to the manager: please decide on {what} ({})", ctx.instance_id());
    Ok(String::new())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder().register("ask_manager", ask_manager).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("expense", expense).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    client.start_orchestration("expense-1", "expense", "a chair").await?;
    client.start_orchestration("expense-2", "expense", "a yacht").await?;

    // A signal is delivered only to a recorded wait, so the manager answers when the status shows one.
    let timeout = Duration::from_secs(10);
    client.wait_for_status_change("expense-1", 0, Duration::from_millis(20), timeout).await?;
    client.raise_event("expense-1", "decision", "approved").await?;

    for id in ["expense-1", "expense-2"] {
        println!("{id}: {}", client.wait_for_orchestration_typed::<String>(id, timeout).await??);
    }

    runtime.shutdown(None).await;
    Ok(())
}
