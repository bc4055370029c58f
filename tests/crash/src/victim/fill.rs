//! A process whose disk is full for a while.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everturn::Client;
use everturn::providers::store::Store as _;
use everturn_sqlite::SqliteProvider;
use rusqlite::{Connection, OpenFlags};

use super::{open, print_line, start};
use crate::clients::drive;
use crate::inspector::Inspector;
use crate::instance_script::InstanceScript;
use crate::observations::ObservationLog;
use crate::random::seeded;
use crate::tables::{StoredTables, pending_rows};

/// How many instances are started before the disk is full, and how many while it is.
const INSTANCES: usize = 12;

/// How long all instances may take to end once the disk has room again.
const END_MAX: Duration = Duration::from_secs(60);

/// Fills the disk under load, frees it, and ends when all instances have ended. Prints what it counted, or what is wrong.
pub async fn run(folder: &Path, seed: u64) {
    let database = folder.join("full.db");
    let log = Arc::new(ObservationLog::new(InstanceScript::draw_mixed(2 * INSTANCES, &mut seeded(seed))));
    let provider = open(database.to_str().unwrap()).await;
    let runtime = start(&provider, &log, (0, 1)).await;
    let client = Client::new(provider.clone());
    let instances: Vec<String> = log.snapshot().instances.into_keys().collect();
    let (before, meanwhile) = instances.split_at(INSTANCES);
    let mut clients: Vec<_> = before.iter().map(|instance| spawn(&client, &log, instance)).collect();

    let ballast = folder.join("ballast");
    fill(&ballast);
    clients.extend(meanwhile.iter().map(|instance| spawn(&client, &log, instance)));
    let mut refused = 0;
    while refused < 20 {
        // A message to an instance that does not exist.
        match client.enqueue_event("missing", "q", "x".repeat(2_000)).await {
            Ok(()) => fill(&ballast),
            Err(error) if error.is_retryable() && error.to_string().contains("full") => refused += 1,
            Err(error) => print_line(&format!("wrong: unclear error: {error}")),
        }
    }
    for mode in ["rw", "ro"] {
        if let Err(error) = read_status(&database, mode, &before[0]).await {
            print_line(&format!(
                "wrong: a client that only reads (mode={mode}) fails on a full disk: {error}"
            ));
        }
    }
    std::fs::remove_file(&ballast).unwrap();

    let done = async {
        for client in clients {
            client.await.unwrap();
        }
        wait_for_empty_queues(&database).await;
    };
    let stuck = tokio::time::timeout(END_MAX, done).await.is_err();
    let observations = log.snapshot();
    let finished = observations.finished();
    print_line(&format!(
        "counts {refused} {} {finished} {}",
        observations.instances.len(),
        observations.turns
    ));
    if stuck {
        print_line(&format!("wrong: stuck: {:?}", observations.instances));
        return;
    }
    runtime.shutdown(None).await;
    provider.close().await;
    let tables = StoredTables::read(&Connection::open(&database).unwrap()).unwrap();
    let mut inspector = Inspector::default();
    if let Err(wrong) =
        inspector.inspect(&tables, &observations).and_then(|()| inspector.inspect_end(&tables, &observations))
    {
        print_line(&format!("wrong: {wrong}"));
    }
    print_line("done");
}

/// Opens the file as another process would, and reads.
async fn read_status(database: &Path, mode: &str, instance: &str) -> Result<(), String> {
    let url = format!("sqlite:{}?mode={mode}", database.display());
    let provider = SqliteProvider::new(&url, None).await.map_err(|error| format!("opening: {error}"))?;
    provider.read_status(instance).await.map_err(|error| format!("reading: {error}"))?;
    provider.close().await;
    Ok(())
}

/// Waits until no message, activity or lock is left.
async fn wait_for_empty_queues(database: &Path) {
    let conn = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    while !matches!(pending_rows(&conn), Ok(0)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn spawn(client: &Client, log: &Arc<ObservationLog>, instance: &str) -> tokio::task::JoinHandle<()> {
    let (client, log, instance) = (client.clone(), Arc::clone(log), instance.to_owned());
    tokio::spawn(async move { drive(&client, &log, &instance).await })
}

/// Writes until the disk is full.
fn fill(ballast: &Path) {
    let mut file = File::options().create(true).append(true).open(ballast).unwrap();
    for size in [65_536, 4_096, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
