//! One chained step on a SQLite file: the client starts an orchestration, a turn schedules an activity, the activity runs,
//! a turn takes its result and ends, and the client's wait returns.
//!
//! `cargo xtask walk` records the calls between [`recording_begins`] and [`recording_ends`]. The first step warms up: tasks
//! are started, statements are prepared, the file has its tables.
#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the warm-up leaves to be done is done after this time.
const SETTLING: Duration = Duration::from_secs(2);

async fn orchestration(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ctx.schedule_activity("activity", input).await
}

async fn activity(_: ActivityContext, input: String) -> Result<String, String> {
    Ok(input)
}

/// Recording starts here. The two marks differ, so that the compiler keeps both.
#[inline(never)]
fn recording_begins() {
    black_box("begins");
}

/// Recording ends here.
#[inline(never)]
fn recording_ends() {
    black_box("ends");
}

async fn step(client: &Client, instance: &str) -> Result<(), Box<dyn Error>> {
    client.start_orchestration(instance, "orchestration", "input").await?;
    client.wait_for_orchestration(instance, PATIENCE).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("walk.db").display());
    let store = Arc::new(SqliteProvider::new(&url, None).await?);
    let activities = ActivityRegistry::builder().register("activity", activity).build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register("orchestration", orchestration).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    step(&client, "warm-up").await?;
    tokio::time::sleep(SETTLING).await;
    recording_begins();
    step(&client, "recorded").await?;
    recording_ends();

    runtime.shutdown(None).await;
    Ok(())
}
