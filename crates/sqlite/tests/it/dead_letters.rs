//! Dead letters are read in pages and deleted.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::management::DeadLetterSelection;
use everturn_provider::store::{Store as _, Sweep};
use everturn_provider::{ManualClock, Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, signal};

/// A message for each of these instances, dead-lettered one minute after the other.
async fn dead_lettered(store: &Store, instances: &[&str]) -> SqliteProvider {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let provider = store.open_at(&clock).await;
    for instance in instances {
        provider.enqueue_for_orchestrator(signal(instance), None).await.unwrap();
        clock.advance(Duration::from_secs(60));
        let sweep = Sweep::new(LOCK).with_dead_letter_after(Duration::from_secs(1));
        assert_eq!(provider.sweep(&sweep).await.unwrap().dead_letters.len(), 1);
    }
    provider
}

async fn instances(provider: &SqliteProvider, after: Option<u64>, limit: usize) -> Vec<String> {
    let page = provider.read_dead_letters(after, limit).await.unwrap();
    page.into_iter().map(|letter| letter.instance_id.unwrap()).collect()
}

#[tokio::test]
async fn dead_letters_are_read_page_by_page() {
    let store = Store::new();
    let provider = dead_lettered(&store, &["a", "b", "c"]).await;
    let first = provider.read_dead_letters(None, 2).await.unwrap();
    let [a, b] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!((a.instance_id.as_deref(), a.dead_lettered_at), (Some("a"), 1_060_000));
    assert_eq!(a.reason, "the instance was never started");
    assert!(a.work_item.as_ref().unwrap().contains("go"), "{a:?}");
    assert_eq!(instances(&provider, Some(b.key), 2).await, ["c"]);
    assert!(provider.read_dead_letters(Some(u64::MAX), 2).await.unwrap().is_empty());
}

#[tokio::test]
async fn dead_letters_are_deleted_by_key_and_by_age() {
    let store = Store::new();
    let provider = dead_lettered(&store, &["a", "b", "c", "d"]).await;
    let letters = provider.read_dead_letters(None, 10).await.unwrap();
    let keys = DeadLetterSelection::Keys(vec![letters[1].key, 12_345, u64::MAX]);
    assert_eq!(provider.delete_dead_letters(keys).await.unwrap(), 1);
    assert_eq!(instances(&provider, None, 10).await, ["a", "c", "d"]);
    let old = DeadLetterSelection::OlderThan(letters[2].dead_lettered_at);
    assert_eq!(provider.delete_dead_letters(old).await.unwrap(), 1);
    assert_eq!(instances(&provider, None, 10).await, ["c", "d"]);
}

#[tokio::test]
async fn many_dead_letters_are_deleted_in_slices() {
    let store = Store::new();
    let provider = store.open_with_batches().await;
    let fill = "INSERT INTO everturn_dead_letters (dead_lettered_at_ms, reason) \
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1200) SELECT n, 'reason' FROM n";
    store.sql().execute(fill, []).unwrap();
    let before = provider.commit_count();
    let old = DeadLetterSelection::OlderThan(1_101);
    assert_eq!(provider.delete_dead_letters(old).await.unwrap(), 1_100);
    assert_eq!(provider.commit_count() - before, 3);
    assert_eq!(provider.read_dead_letters(None, 1_000).await.unwrap().len(), 100);
}

#[tokio::test]
async fn a_key_of_a_deleted_letter_is_not_used_again() {
    let store = Store::new();
    let provider = dead_lettered(&store, &["a", "b"]).await;
    let last = provider.read_dead_letters(None, 10).await.unwrap()[1].key;
    assert_eq!(provider.delete_dead_letters(DeadLetterSelection::Keys(vec![last])).await.unwrap(), 1);
    provider.close().await;
    let provider = dead_lettered(&store, &["c"]).await;
    assert_eq!(instances(&provider, Some(last), 10).await, ["c"], "a reader that has read b finds it");
}

#[tokio::test]
async fn a_page_of_large_letters_ends_early() {
    let store = Store::new();
    let provider = store.open().await;
    let fill = "INSERT INTO everturn_dead_letters (dead_lettered_at_ms, reason, work_item) \
         SELECT value, 'reason', hex(zeroblob(300000)) FROM json_each('[1, 2, 3, 4, 5]')";
    store.sql().execute(fill, []).unwrap();
    let first = provider.read_dead_letters(None, 10).await.unwrap();
    assert_eq!(first.len(), 2, "a page ends after a megabyte");
    let rest = provider.read_dead_letters(Some(first[1].key), 10).await.unwrap();
    assert_eq!(rest.len(), 2);
}
