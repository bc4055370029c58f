//! What a waiting client costs: it reads again only when the instance that it waits for can have changed.

use std::time::Duration;

use everturn::{Client, ClientError};

use crate::node_under_test::until;
use crate::stores::{TestStore, on_every_store_in_paused_time};
use crate::tampering_store::TamperingStore;
use crate::turn_by_hand::{commit, completed, custom_status};

on_every_store_in_paused_time!(
    a_client_that_waits_for_an_idle_instance_reads_it_once,
    a_turn_of_another_instance_makes_no_client_read_again,
);

const LONG: Duration = Duration::from_secs(60);

async fn a_client_that_waits_for_an_idle_instance_reads_it_once(store: TestStore) {
    let store = TamperingStore::new(store.provider(), |_| None);
    let client = Client::new(store.clone());
    let timed_out = |error: ClientError| assert!(matches!(error, ClientError::Timeout), "{error}");
    timed_out(client.wait_for_orchestration("idle", LONG).await.unwrap_err());
    assert_eq!(store.count("read_status"), 1, "a client that waits for the end reads its status once");
    let often = Duration::from_millis(10);
    timed_out(client.wait_for_status_change("idle", 0, often, LONG).await.unwrap_err());
    assert_eq!(store.count("read_status"), 2, "so does one that waits for a custom status");
    timed_out(client.wait_for_kv_value("idle", "key", LONG).await.unwrap_err());
    assert_eq!(store.count("read_kv_value"), 1, "and one that waits for a key");
}

async fn a_turn_of_another_instance_makes_no_client_read_again(store: TestStore) {
    let store = TamperingStore::new(store.provider(), |_| None);
    let client = Client::new(store.clone());
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait_for_orchestration("awaited", LONG).await }
    });
    until("the client has read", async || store.count("read_status") == 1).await;
    for nth in 0..5 {
        client.start_orchestration(format!("other {nth}"), "Test", "").await.unwrap();
        commit(&*store, vec![custom_status("running")]).await;
    }
    let reads = store.count("read_status");
    assert_eq!(reads, 1, "the turns of others are not its business");
    client.start_orchestration("awaited", "Test", "").await.unwrap();
    commit(&*store, completed("done")).await;
    assert!(waiting.await.unwrap().unwrap().is_terminal());
    assert!(store.count("read_status") <= reads + 2, "it read once more for what it waited for");
}

/// Commits of another provider on the same file, as of another process, are noticed by one look of the store.
#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_commit_makes_only_the_clients_of_its_instance_read_again() {
    use everturn::providers::sqlite::SqliteProvider;
    use std::sync::Arc;

    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let open = async || Arc::new(SqliteProvider::new(&url, None).await.unwrap());
    let (own, foreign) = (TamperingStore::new(open().await, |_| None), open().await);
    let client = Client::new(own.clone());
    const CLIENTS: usize = 20;
    const COMMITS: usize = 8;
    let waiting: Vec<_> = (0..CLIENTS)
        .map(|nth| {
            let client = client.clone();
            tokio::spawn(async move { client.wait_for_orchestration(&format!("idle {nth}"), LONG).await })
        })
        .collect();
    let reads_are = async |wanted: usize| {
        until("the clients have read", async || own.count("read_status") >= wanted).await;
    };
    reads_are(CLIENTS).await;
    let remote = Client::new(foreign.clone());
    for nth in 0..COMMITS {
        let (busy, instance) = (client.clone(), format!("busy {nth}"));
        let before = own.count("read_status");
        let noticed =
            tokio::spawn(async move { busy.wait_for_orchestration(&format!("busy {nth}"), LONG).await });
        reads_are(before + 1).await;
        remote.start_orchestration(instance, "Test", "").await.unwrap();
        commit(&*foreign, completed("done")).await;
        // It had read before the commit, so it ends only when the own store has noticed the commit.
        noticed.await.unwrap().unwrap();
    }
    // A client reads once when it begins and once when the first commit is noticed: before, nothing was known.
    let idle_reads = 2 * CLIENTS;
    // The client of a busy instance reads when it begins and after each commit that it did not know.
    let busy_reads = 4 * COMMITS;
    let reads = own.count("read_status");
    assert!(
        reads <= idle_reads + busy_reads,
        "{CLIENTS} idle clients and {COMMITS} commits cost {reads} reads"
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
