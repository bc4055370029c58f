//! A process whose disk is full for a while.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everturn::Client;
use rusqlite::{Connection, OpenFlags};

use super::{open, say, start};
use crate::chance::chance;
use crate::inspector::Inspector;
use crate::ledger::Ledger;
use crate::load::see_through;
use crate::plan::Plan;
use crate::tables::{Tables, left_over};

/// How many instances are under way when the disk is full, and how many come meanwhile.
const INSTANCES: usize = 12;

/// How long everything may take once there is room again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works, fills the disk, works on, frees it, and ends when everything is done. Says what it counted, or what is wrong.
pub async fn run(folder: &Path, seed: u64) {
    let database = folder.join("full.db");
    let ledger = Arc::new(Ledger::new(Plan::draw_mixed(2 * INSTANCES, &mut chance(seed))));
    let provider = open(database.to_str().unwrap()).await;
    let runtime = start(&provider, &ledger, (0, 1)).await;
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

    let done = async {
        for client in clients {
            client.await.unwrap();
        }
        run_empty(&database).await;
    };
    let stuck = tokio::time::timeout(PATIENCE, done).await.is_err();
    let known = ledger.known();
    let finished = known.instances.values().filter(|told| told.outcome.is_some()).count();
    say(&format!("counts {refused} {} {finished} {}", known.instances.len(), known.turns));
    if stuck {
        say(&format!("wrong: stuck: {:?}", known.instances));
        return;
    }
    runtime.shutdown(None).await;
    provider.close().await;
    let tables = Tables::read(&Connection::open(&database).unwrap()).unwrap();
    let mut inspector = Inspector::default();
    if let Err(wrong) =
        inspector.inspect(&tables, &known).and_then(|()| inspector.inspect_end(&tables, &known))
    {
        say(&format!("wrong: {wrong}"));
    }
    say("done");
}

/// Waits until no message, activity or lock is left.
async fn run_empty(database: &Path) {
    let conn = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    while !matches!(left_over(&conn), Ok(0)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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
