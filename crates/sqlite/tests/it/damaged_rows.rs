//! Damaged rows that only SQL can produce.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind, ExecutionStatus, OrchestrationStatus, WorkItem};
use everturn_provider::store::{
    self, EndedWork, Stamp, StepAnswer, StepCommit, StepDecline, Store as _, TurnCommit,
};
use everturn_provider::{ManualClock, Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, activity, begin, completion, fetch, fetch_work, loosen, signal, start};

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
            "UPDATE everturn_executions SET pinned_engine_version = 'not a version' \
             WHERE instance_key = (SELECT instance_key FROM everturn_instances WHERE instance_id = 'a')",
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
    store
        .sql()
        .execute("UPDATE everturn_orchestrator_queue SET work_item = CAST(x'fffe' AS TEXT)", [])
        .unwrap();
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!((item.instance.as_str(), item.orchestration_name.as_str()), ("a", "unknown"));
    assert!(item.history_error.unwrap().contains("orchestrator queue row"));
}

/// A table that begins where an index does cannot be read, as if its pages were bad.
fn make_unreadable(store: &Store, table: &str) {
    let sql = store.sql();
    sql.pragma_update(None, "writable_schema", "ON").unwrap();
    let root = "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema \
         WHERE name = 'everturn_worker_queue_ready') WHERE name = ?1";
    assert_eq!(sql.execute(root, [table]).unwrap(), 1);
}

#[tokio::test]
async fn a_history_that_cannot_be_read_is_no_damage_of_its_instance() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    drop(provider);
    make_unreadable(&store, "everturn_history");
    let provider = store.open().await;
    let answer = provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await;
    let delivered = answer.as_ref().is_ok_and(Option::is_some);
    assert!(!delivered, "the disk may be read again later: {answer:?}");
}

#[tokio::test]
async fn a_lost_event_is_noticed() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    store.sql().execute("DELETE FROM everturn_history", []).unwrap();
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
    sql.execute("UPDATE everturn_worker_queue SET work_item = '{' WHERE activity_id = 2", []).unwrap();
    sql.execute(
        "UPDATE everturn_worker_queue SET work_item = '{', instance_id = '' WHERE activity_id = 3",
        [],
    )
    .unwrap();
    let (item, ..) = fetch_work(&provider).await.unwrap();
    assert_eq!(item, activity("a", 4));
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!(item.messages.len(), 1);
    let dead_letters: i64 =
        sql.query_row("SELECT count(*) FROM everturn_dead_letters", [], |row| row.get(0)).unwrap();
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
    "UPDATE everturn_worker_queue SET work_item = replace(work_item, '\"instance\":\"a\"', '\"instance\":\"";

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
    for sql in [renamed_item.as_str(), "UPDATE everturn_worker_queue SET instance_id = 'b'"] {
        let (store, provider) = misnamed(sql).await;
        assert!(fetch_work(&provider).await.is_none(), "{sql}");
        assert!(fetch(&provider).await.is_none(), "{sql}");
        let reason: String =
            store.sql().query_row("SELECT reason FROM everturn_dead_letters", [], |row| row.get(0)).unwrap();
        assert!(reason.contains("it says that it is for"), "{sql}: {reason}");
    }
}

#[tokio::test]
async fn an_activity_whose_row_names_an_unknown_instance_runs() {
    let (_store, provider) = misnamed("UPDATE everturn_worker_queue SET instance_id = 'unknown'").await;
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
    store.sql().execute("UPDATE everturn_history SET events = '['", []).unwrap();
    assert!(store::Store::read_status(&provider, "a").await.unwrap_err().is_damaged());
}

#[tokio::test]
async fn damaged_columns_are_reported_by_the_instance_info_and_by_the_status() {
    for (sql, reason) in [
        ("UPDATE everturn_instances SET orchestration_name = CAST(x'ff' AS TEXT)", "orchestration_name"),
        (
            "UPDATE everturn_instances SET orchestration_version = CAST(x'ff' AS TEXT)",
            "orchestration_version",
        ),
        ("UPDATE everturn_instances SET parent_instance_id = CAST(x'ff' AS TEXT)", "parent_instance_id"),
        (
            "INSERT INTO everturn_custom_statuses SELECT instance_key, CAST(x'ff' AS TEXT), 1 FROM everturn_instances",
            "custom_status",
        ),
        ("UPDATE everturn_instances SET current_execution_id = 77", "status"),
        ("UPDATE everturn_executions SET output = CAST(x'ff' AS TEXT)", "output"),
        ("UPDATE everturn_executions SET execution_id = 77", "status"),
        ("DELETE FROM everturn_executions", "status"),
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
        (
            "INSERT INTO everturn_kv_delta SELECT instance_key, 'key', CAST(x'ff' AS TEXT), 1 FROM everturn_instances",
            "value",
        ),
        (
            "INSERT INTO everturn_kv_delta SELECT instance_key, CAST(x'ff' AS TEXT), 'value', 1 FROM everturn_instances",
            "key",
        ),
        (
            "INSERT INTO everturn_custom_statuses SELECT instance_key, CAST(x'ff' AS TEXT), 1 FROM everturn_instances",
            "custom_status",
        ),
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
    sql.execute(
        "INSERT INTO everturn_kv_base SELECT instance_key, 'key', 'value', 1 FROM everturn_instances",
        [],
    )
    .unwrap();
    sql.execute(
        "INSERT INTO everturn_kv_delta SELECT instance_key, 'key', 'value', 1 FROM everturn_instances",
        [],
    )
    .unwrap();
    for table in [
        "everturn_executions",
        "everturn_history",
        "everturn_orchestrator_queue",
        "everturn_kv_base",
        "everturn_kv_delta",
    ] {
        let moved = sql.execute(&format!("UPDATE {table} SET instance_key = instance_key + 77"), []);
        assert!(moved.unwrap_err().to_string().contains("FOREIGN KEY"), "{table}");
    }
    assert!(sql.execute("UPDATE everturn_instances SET instance_key = instance_key + 77", []).is_err());
    assert_eq!(fetch(&provider).await.unwrap().0.messages, [signal("a")]);
}

#[tokio::test]
async fn stray_messages_push_out_no_damaged_activity_that_is_kept_for_repair() {
    let store = Store::new();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let provider = store.open_at(&clock).await;
    let keep = "INSERT INTO everturn_dead_letters (dead_lettered_at_ms, reason, instance_id, work_item) \
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
        let select = "SELECT count(*) FROM everturn_dead_letters WHERE reason = ?1";
        sql.query_row(select, [reason], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("the activity is damaged"), count(stray)), (1, 10_000));
}

#[tokio::test]
async fn a_step_that_ends_an_execution_without_its_row_records_the_result() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let (_, token, _) = fetch_work(&provider).await.unwrap();
    let stamp = "SELECT turn_stamp FROM everturn_instances";
    let stamp: i64 = store.sql().query_row(stamp, [], |row| row.get(0)).unwrap();
    store.sql().execute("DELETE FROM everturn_executions", []).unwrap();

    let completed = EventKind::OrchestrationCompleted { output: "paid".to_owned() };
    let mut turn = TurnCommit::new("", 1);
    turn.history_delta = vec![Event::stamped(2, "a", 1, None, 1, completed)];
    turn.update.status = Some(ExecutionStatus::Completed);
    turn.update.output = Some("paid".to_owned());
    turn.base = Some(Stamp(stamp.cast_unsigned()));
    let step = StepCommit::new("a", vec![EndedWork::new(token, None)], turn);
    let answer = provider.commit_step(&step).await.unwrap();
    assert!(matches!(answer, StepAnswer::Committed(_)), "{answer:?}");
    let status = provider.read_status("a").await.unwrap();
    assert!(
        matches!(&status, OrchestrationStatus::Completed { output, .. } if output == "paid"),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_step_that_is_declined_for_a_damaged_lock_ends_none_of_its_activities() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2), activity("a", 3)]).await;
    let (_, first, _) = fetch_work(&provider).await.unwrap();
    let (_, second, _) = fetch_work(&provider).await.unwrap();
    let sql = store.sql();
    loosen(&sql, "everturn_worker_queue");
    // Reads as the same token, but is not equal to it.
    let damage =
        "UPDATE everturn_worker_queue SET lock_token = CAST(lock_token AS BLOB) WHERE activity_id = 3";
    assert_eq!(sql.execute(damage, []).unwrap(), 1);

    let stamp: i64 =
        sql.query_row("SELECT turn_stamp FROM everturn_instances", [], |row| row.get(0)).unwrap();
    let mut turn = TurnCommit::new("", 1);
    turn.history_delta = vec![Event::stamped(4, "a", 1, None, 1, EventKind::KeyValuesCleared)];
    turn.base = Some(Stamp(stamp.cast_unsigned()));
    let ended = [&first, &second].map(|token| EndedWork::new(token.clone(), None));
    let answer = provider.commit_step(&StepCommit::new("a", ended.to_vec(), turn)).await.unwrap();
    assert!(matches!(answer, StepAnswer::Declined(StepDecline::WorkGone)), "{answer:?}");
    let left: i64 =
        sql.query_row("SELECT count(*) FROM everturn_worker_queue", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 2, "a declined step writes nothing");
    // Its outcome goes the ordinary way.
    provider.ack_work_item(&first, Some(completion("a", 2))).await.unwrap();
    assert_eq!(fetch(&provider).await.unwrap().0.messages, [completion("a", 2)]);
}
