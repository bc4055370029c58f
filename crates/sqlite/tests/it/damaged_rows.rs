//! Damaged rows that only SQL can produce.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{OrchestrationStatus, WorkItem};
use everturn_provider::store::{self, Store as _};
use everturn_provider::{ManualClock, Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, activity, begin, completion, fetch, fetch_work, signal, start};

#[tokio::test]
async fn a_damaged_pin_stops_only_its_own_instance() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    begin(&provider, "b", vec![]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    provider.enqueue_for_orchestrator(signal("b"), None).await.unwrap();
    store
        .sql()
        .execute(
            "UPDATE executions SET pinned_engine_version = 'not a version' \
             WHERE instance_key = (SELECT instance_key FROM instances WHERE instance_id = 'a')",
            [],
        )
        .unwrap();
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!(item.instance, "a");
    assert!(item.history_error.unwrap().contains("pinned version"));
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!((item.instance.as_str(), item.history_error), ("b", None));
}

#[tokio::test]
async fn a_damaged_start_message_is_fetched_as_damage() {
    let store = Store::new();
    let provider = store.open().await;
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    store.sql().execute("UPDATE orchestrator_queue SET work_item = CAST(x'fffe' AS TEXT)", []).unwrap();
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!((item.instance.as_str(), item.orchestration_name.as_str()), ("a", "unknown"));
    assert!(item.history_error.unwrap().contains("orchestrator queue row"));
}

#[tokio::test]
async fn a_lost_event_is_noticed() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    store.sql().execute("DELETE FROM history", []).unwrap();
    let error = provider.read("a").await.unwrap_err();
    assert!(error.is_damaged() && error.message.contains("missing"), "{error}");
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let (item, ..) = fetch(&provider).await.unwrap();
    assert!(item.history_error.unwrap().contains("missing"));
}

#[tokio::test]
async fn a_damaged_row_of_the_worker_queue_becomes_a_failure_or_a_dead_letter() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2), activity("a", 3), activity("a", 4)]).await;
    let sql = store.sql();
    sql.execute("UPDATE worker_queue SET work_item = '{' WHERE activity_id = 2", []).unwrap();
    sql.execute("UPDATE worker_queue SET work_item = '{', instance_id = '' WHERE activity_id = 3", [])
        .unwrap();
    let (item, ..) = fetch_work(&provider).await.unwrap();
    assert_eq!(item, activity("a", 4));
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!(item.messages.len(), 1);
    let dead_letters: i64 = sql.query_row("SELECT count(*) FROM set_aside", [], |row| row.get(0)).unwrap();
    assert_eq!(dead_letters, 1);
}

/// An activity of `a` whose row or item is damaged by this, beside an instance `b`.
async fn misnamed(sql: &str) -> (Store, SqliteProvider) {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    begin(&provider, "b", vec![]).await;
    assert_eq!(store.sql().execute(sql, []).unwrap(), 1);
    (store, provider)
}

const RENAMED: &str =
    "UPDATE worker_queue SET work_item = replace(work_item, '\"instance\":\"a\"', '\"instance\":\"";

#[tokio::test]
async fn an_activity_whose_item_names_an_unknown_instance_fails_in_its_own_instance() {
    let (_store, provider) = misnamed(&format!("{RENAMED}unknown\"')")).await;
    assert!(fetch_work(&provider).await.is_none());
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!(item.instance, "a");
    let [WorkItem::ActivityFailed { id: 2, details, .. }] = item.messages.as_slice() else {
        panic!("{:?}", item.messages)
    };
    assert!(details.display_message().contains("it says that it is for unknown"), "{details:?}");
}

#[tokio::test]
async fn an_activity_of_two_instances_goes_to_neither() {
    let renamed_item = format!("{RENAMED}b\"')");
    for sql in [renamed_item.as_str(), "UPDATE worker_queue SET instance_id = 'b'"] {
        let (store, provider) = misnamed(sql).await;
        assert!(fetch_work(&provider).await.is_none(), "{sql}");
        assert!(fetch(&provider).await.is_none(), "{sql}");
        let reason: String =
            store.sql().query_row("SELECT reason FROM set_aside", [], |row| row.get(0)).unwrap();
        assert!(reason.contains("it says that it is for"), "{sql}: {reason}");
    }
}

#[tokio::test]
async fn an_activity_whose_row_names_an_unknown_instance_runs() {
    let (_store, provider) = misnamed("UPDATE worker_queue SET instance_id = 'unknown'").await;
    let (item, token, _) = fetch_work(&provider).await.unwrap();
    assert_eq!(item, activity("a", 2));
    provider.ack_work_item(&token, Some(completion("a", 2))).await.unwrap();
    assert_eq!(fetch(&provider).await.unwrap().0.messages, [completion("a", 2)]);
}

#[tokio::test]
async fn the_status_does_not_read_the_history() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let (_, token, _) = fetch_work(&provider).await.unwrap();
    provider.ack_work_item(&token, Some(completion("a", 2))).await.unwrap();
    let status = store::Store::read_status(&provider, "a").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { .. }), "{status:?}");
    store.sql().execute("UPDATE history SET event_data = '{'", []).unwrap();
    assert!(store::Store::read_status(&provider, "a").await.unwrap_err().is_damaged());
}

#[tokio::test]
async fn damaged_columns_are_reported_by_the_instance_info_and_by_the_status() {
    for (sql, reason) in [
        ("UPDATE instances SET orchestration_name = CAST(x'ff' AS TEXT)", "orchestration_name"),
        ("UPDATE instances SET orchestration_version = CAST(x'ff' AS TEXT)", "orchestration_version"),
        ("UPDATE instances SET parent_instance_id = CAST(x'ff' AS TEXT)", "parent_instance_id"),
        ("UPDATE instances SET custom_status = CAST(x'ff' AS TEXT)", "custom_status"),
        ("UPDATE instances SET current_execution_id = 77", "status"),
        ("UPDATE executions SET output = CAST(x'ff' AS TEXT)", "output"),
        ("UPDATE executions SET execution_id = 77", "status"),
        ("DELETE FROM executions", "status"),
    ] {
        let store = Store::new();
        let provider = store.open().await;
        begin(&provider, "a", vec![]).await;
        store.sql().execute(sql, []).unwrap();
        for error in [
            provider.get_instance_info("a").await.map(drop).unwrap_err(),
            store::Store::read_status(&provider, "a").await.map(drop).unwrap_err(),
        ] {
            assert!(error.is_damaged() && error.message.contains(reason), "{sql}: {error}");
        }
    }
}

#[tokio::test]
async fn a_damaged_key_or_custom_status_stops_its_instance() {
    for (sql, reason) in [
        ("INSERT INTO kv_delta SELECT instance_key, 'key', CAST(x'ff' AS TEXT), 1 FROM instances", "value"),
        ("INSERT INTO kv_delta SELECT instance_key, CAST(x'ff' AS TEXT), 'value', 1 FROM instances", "key"),
        ("UPDATE instances SET custom_status = CAST(x'ff' AS TEXT)", "custom_status"),
    ] {
        let store = Store::new();
        let provider = store.open().await;
        begin(&provider, "a", vec![]).await;
        store.sql().execute(sql, []).unwrap();
        provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
        let (item, ..) = fetch(&provider).await.unwrap();
        let error = item.history_error.unwrap();
        assert!(error.contains(reason), "{sql}: {error}");
    }
}

#[tokio::test]
async fn rows_of_an_instance_cannot_be_moved_to_an_instance_that_does_not_exist() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let sql = store.sql();
    sql.execute("INSERT INTO kv_base SELECT instance_key, 'key', 'value', 1 FROM instances", []).unwrap();
    sql.execute("INSERT INTO kv_delta SELECT instance_key, 'key', 'value', 1 FROM instances", []).unwrap();
    for table in ["executions", "history", "orchestrator_queue", "kv_base", "kv_delta"] {
        let moved = sql.execute(&format!("UPDATE {table} SET instance_key = instance_key + 77"), []);
        assert!(moved.unwrap_err().to_string().contains("FOREIGN KEY"), "{table}");
    }
    assert!(sql.execute("UPDATE instances SET instance_key = instance_key + 77", []).is_err());
    assert_eq!(fetch(&provider).await.unwrap().0.messages, [signal("a")]);
}

#[tokio::test]
async fn stray_messages_push_out_no_damaged_activity_that_is_kept_for_repair() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let provider = store.open_at(&clock).await;
    let keep = "INSERT INTO set_aside (set_aside_at_ms, reason, instance_id, work_item) \
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2) SELECT 1, ?1, 'a', '{}' FROM n";
    let stray = "the instance was never started";
    let sql = store.sql();
    sql.execute(keep, rusqlite::params!["the activity is damaged", 1]).unwrap();
    sql.execute(keep, rusqlite::params![stray, 10_000]).unwrap();
    provider.enqueue_for_orchestrator(signal("unknown"), None).await.unwrap();
    clock.advance(Duration::from_secs(60));
    let sweep = store::Sweep::new(LOCK).with_dead_letter_after(Duration::from_secs(1));
    assert_eq!(provider.sweep(&sweep).await.unwrap().dead_letters.len(), 1);
    let count = |reason: &str| -> i64 {
        let select = "SELECT count(*) FROM set_aside WHERE reason = ?1";
        sql.query_row(select, [reason], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("the activity is damaged"), count(stray)), (1, 10_000));
}
