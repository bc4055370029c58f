//! A process whose disk is full for a while.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everturn::Client;
use rusqlite::Connection;

use super::{open, say, start};
use crate::inspector::Inspector;
use crate::ledger::Ledger;
use crate::load::see_through;
use crate::plan::Plan;
use crate::proof::chance;
use crate::tables::Tables;

/// How many instances are under way when the disk is full, and how many come meanwhile.
const INSTANCES: usize = 12;

/// Works, fills the disk, works on, frees it, and ends when everything is done. Says what it counted, or what is wrong.
pub async fn run(folder: &Path) {
    let database = folder.join("full.db");
    let seed = std::process::id().into();
    let ledger = Arc::new(Ledger::new(Plan::draw_mixed(2 * INSTANCES, &mut chance(seed))));
    let provider = open(database.to_str().unwrap()).await;
    let runtime = start(&provider, &ledger).await;
    let client = Client::new(provider.clone());
    let instances: Vec<String> = ledger.known().instances.into_keys().collect();
    let (before, meanwhile) = instances.split_at(INSTANCES);
    let mut clients: Vec<_> = before.iter().map(|instance| spawn(&client, &ledger, instance)).collect();

    let ballast = folder.join("ballast");
    fill(&ballast);
    clients.extend(meanwhile.iter().map(|instance| spawn(&client, &ledger, instance)));
    let mut refused = 0;
    while refused < 20 {
        // A message that nobody needs: to nobody.
        match client.enqueue_event("nobody", "q", "x".repeat(2_000)).await {
            Ok(()) => fill(&ballast),
            Err(error) if error.is_retryable() && error.to_string().contains("full") => refused += 1,
            Err(error) => say(&format!("wrong: not a clear error: {error}")),
        }
    }
    std::fs::remove_file(&ballast).unwrap();

    for client in clients {
        if tokio::time::timeout(Duration::from_secs(60), client).await.is_err() {
            say(&format!("wrong: stuck: {:?}", ledger.known().instances));
            return;
        }
    }
    let finished = ledger.known().instances.values().filter(|told| told.outcome.is_some()).count();
    say(&format!("counts {refused} {} {finished}", 2 * INSTANCES));
    runtime.shutdown(None).await;
    provider.close().await;
    let conn = Connection::open(&database).unwrap();
    let tables = Tables::read(&conn).unwrap();
    if let Err(wrong) = Inspector::default().inspect(&tables, &ledger.known()) {
        say(&format!("wrong: {wrong}"));
    }
    say("done");
}

fn spawn(client: &Client, ledger: &Arc<Ledger>, instance: &str) -> tokio::task::JoinHandle<()> {
    let (client, ledger, instance) = (client.clone(), Arc::clone(ledger), instance.to_owned());
    tokio::spawn(async move { see_through(&client, &ledger, &instance).await })
}

/// Writes until there is no room left.
fn fill(ballast: &Path) {
    let mut file = File::options().create(true).append(true).open(ballast).unwrap();
    for size in [65_536, 4_096, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
