//! Copies of a store that is at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_provider::Provider;
use everturn_sqlite::SqliteProvider;

use crate::store::{Store, activity, begin, completion, fetch, fetch_work, signal};

async fn open(copy: &std::path::Path) -> SqliteProvider {
    SqliteProvider::new(&format!("sqlite:{}", copy.display()), None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_made_under_load_opens_and_carries_on() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    begin(&provider, "a", vec![activity("a", 2), activity("a", 3)]).await;
    // Its holder works on the original, not on the copy.
    assert!(fetch_work(&provider).await.is_some());
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (provider, stop) = (Arc::clone(&provider), Arc::clone(&stop));
        async move {
            let mut sent = 1;
            while !stop.load(Ordering::SeqCst) {
                provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
                sent += 1;
            }
            sent
        }
    });
    let copy = store.path().with_file_name("copy.db");
    provider.backup(&copy).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    let sent: usize = load.await.unwrap();

    let copied = open(&copy).await;
    assert_eq!(copied.read("a").await.unwrap(), provider.read("a").await.unwrap());
    let (item, token, _) = fetch(&copied).await.expect("the signals that were sent by then");
    assert!(item.messages.len() <= sent, "{} of {sent}", item.messages.len());
    copied
        .ack_orchestration_item(&token, 1, vec![], vec![], vec![], Default::default(), vec![])
        .await
        .unwrap();
    for id in [2, 3] {
        let (item, token, _) = fetch_work(&copied).await.expect("the activity is free in the copy");
        assert_eq!(item, activity("a", id));
        copied.ack_work_item(&token, Some(completion("a", id))).await.unwrap();
    }
    let check: String = store.sql().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    assert!(fetch_work(&provider).await.is_some(), "the original goes on as if there were no copy");
}

#[tokio::test]
async fn a_copy_replaces_no_file_and_leaves_none_when_it_fails() {
    let store = Store::new();
    let provider = store.open().await;
    let copy = store.path().with_file_name("copy.db");
    std::fs::write(&copy, b"precious").unwrap();
    let files = store.files();
    let refused = provider.backup(&copy).await.unwrap_err().to_string();
    assert!(refused.contains("copy.db") && refused.contains("exists"), "{refused}");
    assert_eq!(std::fs::read(&copy).unwrap(), b"precious");
    let missing = store.path().with_file_name("missing").join("copy.db");
    let refused = provider.backup(&missing).await.unwrap_err().to_string();
    assert!(refused.contains("missing"), "{refused}");
    assert_eq!(store.files(), files);
    provider.close().await;
    assert!(provider.backup(&store.path().with_file_name("late.db")).await.unwrap_err().is_closed());
}

#[tokio::test]
async fn a_database_in_memory_can_be_copied_to_a_file() {
    let store = Store::new();
    let memory = SqliteProvider::new_in_memory().await.unwrap();
    begin(&memory, "a", vec![]).await;
    memory.backup(store.path()).await.unwrap();
    let auto_vacuum: i64 = store.sql().query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).unwrap();
    assert_eq!(auto_vacuum, 2, "the copy can give pages back to the disk");
    assert_eq!(store.open().await.read("a").await.unwrap(), memory.read("a").await.unwrap());
}

#[tokio::test]
async fn a_reader_can_copy_the_store() {
    let store = Store::new();
    begin(&store.open().await, "a", vec![]).await;
    let reader = SqliteProvider::new(&format!("{}?mode=ro", store.url()), None).await.unwrap();
    let copy = store.path().with_file_name("copy.db");
    reader.backup(&copy).await.unwrap();
    assert_eq!(open(&copy).await.read("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_copy_leaves_the_unfinished_file_of_another_alone() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let copy = store.path().with_file_name("copy.db");
    let other = store.path().with_file_name("copy.db-partial");
    std::fs::write(&other, b"half").unwrap();
    provider.backup(&copy).await.unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"half");
    assert_eq!(open(&copy).await.read("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_copies_to_one_name_one_is_made_whole_and_the_others_are_refused() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    begin(&provider, "a", vec![]).await;
    let copy = store.path().with_file_name("copy.db");
    let copies: Vec<_> = (0..8)
        .map(|_| {
            let (provider, copy) = (Arc::clone(&provider), copy.clone());
            tokio::spawn(async move { provider.backup(&copy).await })
        })
        .collect();
    let mut made = 0;
    for copying in copies {
        match copying.await.unwrap() {
            Ok(()) => made += 1,
            Err(refused) => assert!(refused.to_string().contains("the file exists"), "{refused}"),
        }
    }
    assert_eq!(made, 1);
    assert!(!store.files().iter().any(|name| name.contains("partial")), "{:?}", store.files());
    assert_eq!(open(&copy).await.read("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_copy_is_refused_where_the_log_of_another_database_would_be_applied_to_it() {
    let store = Store::new();
    let provider = store.open().await;
    let copy = store.path().with_file_name("copy.db");
    for suffix in ["-wal", "-journal"] {
        let leftover = store.path().with_file_name(format!("copy.db{suffix}"));
        std::fs::write(&leftover, b"left by another database").unwrap();
        let refused = provider.backup(&copy).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("copy.db{suffix}")) && refused.contains("remove"), "{refused}");
        assert!(!copy.exists());
        std::fs::remove_file(&leftover).unwrap();
    }
    provider.backup(&copy).await.unwrap();
}
