//! A saga: when a step fails, the completed steps are compensated in reverse order.
//!
//! `cargo run --example saga`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{
    ActivityContext, BackoffStrategy, Client, OrchestrationContext, OrchestrationRegistry, RetryPolicy,
};

/// Books the parts of a trip. If one part fails, cancels the parts that are already booked.
async fn book_trip(ctx: OrchestrationContext, traveller: String) -> Result<String, String> {
    let mut booked = Vec::new();
    for part in ["flight", "hotel", "car"] {
        let policy =
            RetryPolicy::new(2).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(50) });
        match ctx.schedule_activity_with_retry("book", format!("{part} for {traveller}"), policy).await {
            Ok(reservation) => booked.push(reservation),
            Err(reason) => {
                // The compensation is part of the orchestration, so it survives crashes.
                for reservation in booked.into_iter().rev() {
                    ctx.schedule_activity_with_retry("cancel", reservation, RetryPolicy::new(10)).await?;
                }
                return Err(format!("no {part}: {reason}"));
            }
        }
    }
    Ok(booked.join(", "))
}

async fn book(_: ActivityContext, what: String) -> Result<String, String> {
    if what.contains("car for Grace") {
        println!("book:   {what}: sold out");
        return Err("sold out".to_owned());
    }
    println!("book:   {what}");
    Ok(format!("reservation of {what}"))
}

async fn cancel(_: ActivityContext, reservation: String) -> Result<String, String> {
    println!("cancel: {reservation}");
    Ok(String::new())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities =
        ActivityRegistry::builder().register("book", book).register("cancel", cancel).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("book_trip", book_trip).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    for traveller in ["Ada", "Grace"] {
        let trip = format!("trip-of-{traveller}");
        client.start_orchestration(&trip, "book_trip", traveller).await?;
        match client.wait_for_orchestration_typed::<String>(&trip, Duration::from_secs(10)).await? {
            Ok(reservations) => println!("{traveller} travels: {reservations}"),
            Err(reason) => println!("{traveller} stays at home: {reason}"),
        }
    }

    runtime.shutdown(None).await;
    Ok(())
}
