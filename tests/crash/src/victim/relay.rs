//! Processes with the usual lock timeouts: a runtime at work, and a client that only waits.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

use super::{open, print_line};

/// How many activities an instance runs at a time, and how often.
const WIDTH: usize = 3;
const ROUNDS: usize = 4;
/// How long each takes: a process that is killed under load holds the locks of some.
const TAKES: Duration = Duration::from_millis(120);
/// How long an instance may take to end.
const END_MAX: Duration = Duration::from_secs(60);

async fn relay(ctx: OrchestrationContext, _input: String) -> Result<String, String> {
    for _ in 0..ROUNDS {
        let runs = (0..WIDTH).map(|_| ctx.schedule_activity("toil", "")).collect();
        for outcome in ctx.join(runs).await {
            outcome?;
        }
    }
    Ok(String::new())
}

/// Returns when its first turn ran, in milliseconds since the epoch.
async fn now(ctx: OrchestrationContext, _input: String) -> Result<String, String> {
    let now = ctx.utc_now().await?;
    Ok(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().to_string())
}

/// The ids of the instances that a process starts.
pub fn instances(name: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |index| format!("{name}-{index}"))
}

/// Milliseconds since the epoch.
pub fn wall_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// Runs a runtime with default options, starts instances, and ends when it reads a line.
pub async fn run(database: &str, name: &str, count: usize) {
    let provider = open(database).await;
    let toil = |_: ActivityContext, _: String| async {
        tokio::time::sleep(TAKES).await;
        Ok(String::new())
    };
    let activities = ActivityRegistry::builder().register("toil", toil).build();
    let orchestrations =
        OrchestrationRegistry::builder().register("relay", relay).register("now", now).build();
    let runtime = Runtime::start_with_store(provider.clone(), activities, orchestrations).await;
    let client = Client::new(provider.clone());
    for instance in instances(name, count) {
        client.start_orchestration(&instance, "relay", "").await.unwrap();
    }
    print_line("ready");
    // The test decides when to stop.
    let stop = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    drop(stop.await);
    runtime.shutdown(None).await;
    provider.close().await;
    print_line("done");
}

/// Has the file open and waits for the instances of others.
pub async fn wait(database: &str, count: usize, names: &[&str]) {
    let provider = open(database).await;
    let client = Arc::new(Client::new(provider.clone()));
    print_line("ready");
    for instance in names.iter().flat_map(|name| instances(name, count)) {
        match client.wait_for_orchestration(&instance, END_MAX).await {
            Ok(everturn::OrchestrationStatus::Completed { .. }) => {}
            other => print_line(&format!("wrong: {instance}: {other:?}")),
        }
    }
    print_line("all ended");
    provider.close().await;
    print_line("done");
}
