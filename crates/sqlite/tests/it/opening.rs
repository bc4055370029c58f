//! Opening and closing files.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use everturn_provider::Provider;
use everturn_sqlite::{SqliteOptions, SqliteProvider, Synchronous};

use crate::store::{Store, activity, begin, fetch_work, start};

#[tokio::test]
async fn reopening_keeps_everything() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    provider.enqueue_for_orchestrator(start("b"), None).await.unwrap();
    let history = provider.read("a").await.unwrap();
    provider.close().await;

    let provider = store.open().await;
    assert_eq!(provider.read("a").await.unwrap(), history);
    assert_eq!(fetch_work(&provider).await.unwrap().0, activity("a", 2));
    let admin = provider.as_management_capability().unwrap();
    assert_eq!(admin.get_queue_depths().await.unwrap().orchestrator_queue, 1);
}

#[tokio::test]
async fn a_dropped_provider_has_written_everything_when_the_file_is_opened_again() {
    let store = Store::new();
    for round in 0..20 {
        let provider = store.open().await;
        provider.enqueue_for_worker(activity("a", round + 1)).await.unwrap();
        let (item, _token, attempts) = fetch_work(&provider).await.expect("no stale lock blocks it");
        assert_eq!((item, attempts), (activity("a", 1), u32::try_from(round).unwrap() + 1));
        drop(provider);
    }
}

#[tokio::test]
async fn an_opening_that_is_dropped_leaves_nothing_behind() {
    let store = Store::new();
    store.open().await.close().await;
    for polls in 0..3 {
        let url = store.url();
        let mut opening = Box::pin(SqliteProvider::new(&url, None));
        for _ in 0..polls {
            assert!(poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx))).await.is_pending());
        }
        drop(opening);
        // No other process has the file, so stale locks are released.
        let provider = store.open().await;
        provider.enqueue_for_worker(activity("a", 1)).await.unwrap();
        assert!(fetch_work(&provider).await.is_some());
        provider.close().await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_named_by_a_link_is_the_same_file() {
    let store = Store::new();
    let provider = store.open().await;
    provider.enqueue_for_worker(activity("a", 1)).await.unwrap();
    assert!(fetch_work(&provider).await.is_some());
    let link = store.path().with_file_name("link.db");
    std::os::unix::fs::symlink(store.path(), &link).unwrap();
    let other = SqliteProvider::new(&format!("sqlite:{}", link.display()), None).await.unwrap();
    assert!(fetch_work(&other).await.is_none(), "its holder still runs");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_created_through_a_link_is_the_same_file() {
    let store = Store::new();
    let (link, chain) = (store.path().with_file_name("link.db"), store.path().with_file_name("chain.db"));
    std::os::unix::fs::symlink("store.db", &link).unwrap();
    std::os::unix::fs::symlink(&link, &chain).unwrap();
    let provider = SqliteProvider::new(&format!("sqlite:{}", chain.display()), None).await.unwrap();
    provider.enqueue_for_worker(activity("a", 1)).await.unwrap();
    assert!(fetch_work(&provider).await.is_some());
    let other = store.open().await;
    assert!(fetch_work(&other).await.is_none(), "its holder still runs");
}

/// Opens the store while another connection has it locked for writing.
async fn open_beside_a_writer(store: &Store, url: &str) -> SqliteProvider {
    let writer = store.sql();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let opening = SqliteProvider::new(url, None);
    let opened = tokio::time::timeout(Duration::from_secs(5), opening).await;
    let provider = opened.expect("opening waits for no writer").unwrap();
    assert!(provider.read("a").await.unwrap().len() == 1);
    writer.execute_batch("ROLLBACK").unwrap();
    provider
}

#[tokio::test]
async fn opening_waits_for_no_writer() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let beside = open_beside_a_writer(&store, &store.url()).await;
    beside.close().await;
    provider.close().await;
    let alone = open_beside_a_writer(&store, &store.url()).await;
    alone.enqueue_for_worker(activity("a", 2)).await.unwrap();
}

#[tokio::test]
async fn a_new_file_is_not_migrated_while_another_process_has_it_open() {
    let store = Store::new();
    let lock = std::fs::File::create(store.path().with_file_name("store.db-lock")).unwrap();
    lock.lock_shared().unwrap();
    let refused = SqliteProvider::new(&store.url(), None).await.unwrap_err().to_string();
    assert!(refused.contains("another process") && refused.contains("version 0"), "{refused}");
    drop(lock);
    begin(&store.open().await, "a", vec![]).await;
}

#[tokio::test]
async fn closing_leaves_one_file_and_refuses_further_calls() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.close().await;
    assert_eq!(store.log_bytes(), 0);
    let refused = provider.enqueue_for_worker(activity("a", 2)).await.unwrap_err();
    assert!(!refused.is_retryable() && refused.message.contains("closed"), "{refused}");
    assert!(provider.read("a").await.is_err());
    assert!(provider.checkpoint().await.unwrap_err().is_closed());
}

#[tokio::test]
async fn a_database_of_another_application_is_left_as_it_is() {
    for journal_mode in ["DELETE", "WAL"] {
        let store = Store::new();
        let sql = store.sql();
        sql.pragma_update(None, "journal_mode", journal_mode).unwrap();
        sql.execute_batch("CREATE TABLE customers (name TEXT)").unwrap();
        drop(sql);
        let (before, files) = (std::fs::read(store.path()).unwrap(), store.files());
        let refused = SqliteProvider::new(&store.url(), None).await.unwrap_err().to_string();
        assert!(refused.contains("another application") && refused.contains("store.db"), "{refused}");
        assert!(std::fs::read(store.path()).unwrap() == before, "{journal_mode}: the file was changed");
        assert_eq!(store.files(), files, "{journal_mode}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let store = Store::new();
    std::fs::write(store.path(), vec![b'x'; 8192]).unwrap();
    let refused = SqliteProvider::new(&store.url(), None).await.unwrap_err().to_string();
    assert!(refused.contains("not a database") && refused.contains("store.db"), "{refused}");
    assert_eq!(store.files(), ["store.db"]);
}

#[tokio::test]
async fn a_missing_file_is_created_unless_the_url_says_otherwise() {
    let store = Store::new();
    let missing = SqliteProvider::new(&format!("{}?mode=rw", store.url()), None).await.unwrap_err();
    assert!(missing.to_string().contains("no such file"), "{missing}");
    let provider = SqliteProvider::new(&format!("{}?mode=rwc", store.url()), None).await.unwrap();
    provider.close().await;
    SqliteProvider::new(&format!("{}?mode=rw", store.url()), None).await.unwrap();
    let refused = SqliteProvider::new("sqlite:/nowhere/at/all/store.db", None).await.unwrap_err().to_string();
    assert!(refused.contains("/nowhere/at/all") && refused.contains("folder"), "{refused}");
}

#[tokio::test]
async fn the_file_is_marked_and_in_wal_mode() {
    let store = Store::new();
    let options = SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::default() };
    let provider = SqliteProvider::new(&store.url(), Some(options)).await.unwrap();
    let sql = store.sql();
    let pragma = |name: &str| -> String {
        sql.pragma_query_value(None, name, |row| {
            row.get::<_, i64>(0).map(|number| number.to_string()).or_else(|_| row.get(0))
        })
        .unwrap()
    };
    assert_eq!(pragma("journal_mode"), "wal");
    assert_eq!(pragma("user_version"), "1");
    assert_eq!(pragma("application_id"), 0x4576_746E_i64.to_string());
    assert_eq!(provider.name(), "sqlite");
    assert_eq!(provider.version(), env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn databases_in_memory_are_isolated() {
    let one = SqliteProvider::new_in_memory().await.unwrap();
    let other = SqliteProvider::new("sqlite::memory:", None).await.unwrap();
    begin(&one, "a", vec![]).await;
    assert_eq!(one.read("a").await.unwrap().len(), 1);
    assert!(other.read("a").await.unwrap().is_empty());
    one.checkpoint().await.unwrap();
}

#[tokio::test]
async fn options_reach_the_caller() {
    let options = SqliteOptions { payload_bytes_max: 77, ..SqliteOptions::default() };
    let provider = SqliteProvider::new_in_memory_with_options(Some(options)).await.unwrap();
    assert_eq!(provider.payload_bytes_max(), 77);
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let store = Store::new();
    let folder = store.path().with_file_name("missing");
    let path = folder.join("orders.db");
    let error = SqliteProvider::new(&format!("sqlite:{}", path.display()), None).await.unwrap_err();
    let (path, folder) = (path.display(), folder.display());
    let expected = format!("opening {path}: the folder {folder} does not exist; create it first");
    assert_eq!(error.to_string(), expected);
    assert!(!store.path().with_file_name("missing").exists(), "a folder is not created");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named() {
    let store = Store::new();
    std::fs::write(store.path(), "a letter, not a database ".repeat(100)).unwrap();
    let error = SqliteProvider::new(&store.url(), None).await.unwrap_err().to_string();
    let path = store.path().canonicalize().unwrap();
    assert!(error.starts_with(&format!("opening {}: ", path.display())), "{error}");
    assert!(error.contains("file is not a database"), "{error}");
}
