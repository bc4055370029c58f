//! Fan-out and fan-in: many activities run at the same time, one result.
//!
//! `cargo run --example fan_out`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

const PAGES: u32 = 40;
const PAGE_TAKES: Duration = Duration::from_millis(100);

async fn count_words(ctx: OrchestrationContext, pages: u32) -> Result<u64, String> {
    // Scheduling is eager: all activities are scheduled here and committed in one turn.
    let counts =
        (1..=pages).map(|page| ctx.schedule_activity_typed::<u32, u64>("count_page", &page)).collect();
    // `join` returns results in the order of the calls, not of their completion.
    let mut words = 0;
    for count in ctx.join(counts).await {
        words += count?;
    }
    Ok(words)
}

async fn count_page(_: ActivityContext, page: u32) -> Result<u64, String> {
    tokio::time::sleep(PAGE_TAKES).await;
    Ok(100 + u64::from(page))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder().register_typed("count_page", count_page).build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("count_words", count_words).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    let began = Instant::now();
    client.start_orchestration_typed("book-1", "count_words", PAGES).await?;
    let words = client.wait_for_orchestration_typed::<u64>("book-1", Duration::from_secs(10)).await??;
    println!("{words} words on {PAGES} pages");
    println!("one after the other: {:?}, together: {:?}", PAGE_TAKES * PAGES, began.elapsed());

    runtime.shutdown(None).await;
    Ok(())
}
