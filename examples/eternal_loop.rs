//! An endless loop: continue-as-new starts a new history, so the history does not grow.
//!
//! `cargo run --example eternal_loop`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, Either2, OrchestrationContext, OrchestrationRegistry};

const BETWEEN_READINGS: Duration = Duration::from_millis(40);

/// One reading per execution. The count is the input of the next execution.
async fn meter(ctx: OrchestrationContext, readings: u32) -> Result<String, String> {
    let readings = readings + 1;
    ctx.schedule_activity_typed::<u32, ()>("read_meter", &readings).await?;
    ctx.set_custom_status(format!("{readings} readings"));
    // Queue messages that arrive between two executions are delivered to the next one.
    let command = ctx.dequeue_event("commands");
    match ctx.select2(command, ctx.schedule_timer(BETWEEN_READINGS)).await {
        Either2::First(command) => Ok(format!("{readings} readings, then {command}")),
        Either2::Second(()) => ctx.continue_as_new_typed(&readings).await,
    }
}

async fn read_meter(ctx: ActivityContext, reading: u32) -> Result<(), String> {
    println!("reading {reading} in execution {}", ctx.execution_id());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder().register_typed("read_meter", read_meter).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register_typed("meter", meter).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    client.start_orchestration_typed("meter-1", "meter", 0u32).await?;

    // Each execution sets the status once. The version counter continues across executions.
    let timeout = Duration::from_secs(10);
    client.wait_for_status_change("meter-1", 9, Duration::from_millis(20), timeout).await?;
    client.enqueue_event("meter-1", "commands", "stop").await?;
    let outcome = client.wait_for_orchestration_typed::<String>("meter-1", timeout).await??;

    let executions = client.list_executions("meter-1").await?;
    let last = executions.last().copied().unwrap_or_default();
    let events = client.read_execution_history("meter-1", last).await?.len();
    println!("{outcome}: {} executions, the last with a history of {events} events", executions.len());

    runtime.shutdown(None).await;
    Ok(())
}
