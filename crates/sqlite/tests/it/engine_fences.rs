//! Rows that need a newer engine: this process passes them over before it locks them.

use std::time::Duration;

use everturn_provider::Provider;
use everturn_provider::store::{
    EndedWork, ExecutionUpdate, Stamp, StepAnswer, StepCommit, StepDecline, Store as _, Submission,
    TurnCommit, TurnFetch, WorkFetch,
};

use crate::store::{Store, activity, begin, fetch, fetch_work, named, signal, started};

/// What a row says that needs version 900.0.0.
const NEWER: i64 = 900_000_000;

fn raise(store: &Store, table: &str, condition: &str) {
    let sql = format!("UPDATE {table} SET needs_engine = {NEWER} WHERE {condition}");
    assert!(store.sql().execute(&sql, []).unwrap() > 0, "{sql}");
}

#[tokio::test]
async fn old_node_passes_over_an_instance_with_a_new_message() {
    let store = Store::new();
    let provider = store.open().await;
    for instance in ["new", "old"] {
        begin(&provider, instance, vec![]).await;
    }
    for instance in ["new", "old"] {
        provider.enqueue_for_orchestrator(signal(instance), None).await.unwrap();
    }
    raise(&store, "everturn_instances", "instance_id = 'new'");
    let (item, ..) = fetch(&provider).await.unwrap();
    assert_eq!(item.instance, "old");
    assert!(fetch(&provider).await.is_none());
    store.sql().execute("UPDATE everturn_instances SET needs_engine = 0", []).unwrap();
    drop(provider);
    let (item, _, attempts) = fetch(&store.open().await).await.unwrap();
    assert_eq!((item.instance.as_str(), attempts), ("new", 1), "no attempt was counted");
}

#[tokio::test]
async fn old_worker_passes_over_an_activity_that_needs_a_newer_engine() {
    let store = Store::new();
    let provider = store.open().await;
    let mut of_session = activity("a", 4);
    if let everturn_core::WorkItem::ActivityExecute { session_id, .. } = &mut of_session {
        *session_id = Some("s".to_owned());
    }
    begin(&provider, "a", vec![activity("a", 2), activity("a", 3), of_session]).await;
    raise(&store, "everturn_worker_queue", "activity_id IN (2, 4)");
    let session = everturn_provider::SessionFetchConfig {
        owner_id: "worker".to_owned(),
        lock_timeout: crate::store::LOCK,
    };
    let tags = everturn_provider::TagFilter::Any;
    let look = async || {
        let fetched =
            provider.fetch_work_item(crate::store::LOCK, std::time::Duration::ZERO, Some(&session), &tags);
        fetched.await.unwrap().map(|(item, ..)| item)
    };
    assert_eq!(look().await, Some(activity("a", 3)));
    assert_eq!(look().await, None);
    let attempts = "SELECT sum(attempt_count) FROM everturn_worker_queue WHERE activity_id IN (2, 4)";
    assert_eq!(store.sql().query_row(attempts, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    store.sql().execute("UPDATE everturn_worker_queue SET needs_engine = 0", []).unwrap();
    assert_eq!(fetch_work(&provider).await.unwrap().0, activity("a", 2));
}

#[tokio::test]
async fn old_node_declines_a_step_of_an_instance_that_was_changed_by_a_newer_one() {
    for change in ["needs_engine = 900000000", "paused_at_ms = 1"] {
        let store = Store::new();
        let provider = store.open().await;
        provider.submit(&Submission::of(crate::store::start("a"))).await.unwrap();
        let fetch = TurnFetch::new(crate::store::LOCK, Duration::ZERO);
        let turn = provider.fetch_turns(&fetch).await.unwrap().remove(0);
        let mut first = TurnCommit::new(turn.lock_token, 1);
        first.update = ExecutionUpdate::try_from(named()).unwrap();
        (first.history_delta, first.worker_items) = (vec![started("a")], vec![activity("a", 2).into()]);
        first.stamp = Some(Stamp(1));
        provider.commit_turn(&first).await.unwrap();
        let work =
            provider.fetch_work(&WorkFetch::new(crate::store::LOCK, Duration::ZERO)).await.unwrap().remove(0);
        let sql = format!("UPDATE everturn_instances SET {change}");
        assert_eq!(store.sql().execute(&sql, []).unwrap(), 1);
        let mut turn = TurnCommit::new("", 1);
        (turn.base, turn.stamp) = (Some(Stamp(1)), Some(Stamp(2)));
        let step = StepCommit::new("a", vec![EndedWork::new(work.lock_token, None)], turn);
        let answer = provider.commit_step(&step).await.unwrap();
        assert!(matches!(answer, StepAnswer::Declined(StepDecline::Locked)), "{change}: {answer:?}");
        let left = "SELECT count(*) FROM everturn_worker_queue WHERE lock_token IS NOT NULL";
        assert_eq!(
            store.sql().query_row(left, [], |row| row.get::<_, i64>(0)).unwrap(),
            1,
            "nothing is written"
        );
    }
}

/// What an instance needs stays when older messages come, and when a turn that was under way is committed.
#[tokio::test]
async fn pin_never_sinks() {
    let store = Store::new();
    let provider = store.open().await;
    provider.enqueue_for_orchestrator(crate::store::start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&provider).await.unwrap();
    raise(&store, "everturn_instances", "instance_id = 'a'");
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    provider
        .ack_orchestration_item(&token, 1, vec![started("a")], vec![], vec![], named(), vec![])
        .await
        .unwrap();
    assert!(fetch(&provider).await.is_none());
    let needs = "SELECT needs_engine FROM everturn_instances";
    assert_eq!(store.sql().query_row(needs, [], |row| row.get::<_, i64>(0)).unwrap(), NEWER);
}
