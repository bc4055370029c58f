//! A chain: each activity gets the result of the previous one.
//!
//! `cargo run --example chain`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The orchestration decides what happens next. Only activities have side effects.
async fn publish(ctx: OrchestrationContext, draft: String) -> Result<String, String> {
    let reviewed = ctx.schedule_activity("proofread", draft).await?;
    let page = ctx.schedule_activity("typeset", reviewed).await?;
    ctx.schedule_activity("upload", page).await
}

async fn proofread(_: ActivityContext, draft: String) -> Result<String, String> {
    println!("proofread: {draft}");
    Ok(draft.replace("teh", "the"))
}

async fn typeset(_: ActivityContext, text: String) -> Result<String, String> {
    println!("typeset:   {text}");
    Ok(format!("<p>{text}</p>"))
}

async fn upload(_: ActivityContext, page: String) -> Result<String, String> {
    println!("upload:    {page}");
    Ok(format!("published {} bytes", page.len()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In memory, so the example leaves no file behind. `order` uses a file.
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder()
        .register("proofread", proofread)
        .register("typeset", typeset)
        .register("upload", upload)
        .build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("publish", publish).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    client.start_orchestration("article-1", "publish", "teh quick brown fox").await?;
    let result =
        client.wait_for_orchestration_typed::<String>("article-1", Duration::from_secs(10)).await??;
    println!("result:    {result}");

    runtime.shutdown(None).await;
    Ok(())
}
