//! Columns that lists filter by follow the turns.

use everturn_core::{ErrorDetails, Event, EventKind, ExecutionStatus};
use everturn_provider::store::{EndedWork, Stamp, StepAnswer, StepCommit, Store as _, TurnCommit};
use everturn_provider::{ExecutionMetadata, Provider};
use everturn_sqlite::SqliteProvider;

use crate::store::{Store, activity, begin, fetch, fetch_work, named, signal, start, started};

/// Root, status, whether it has an end, and the kind of its failure.
type Derived = (Option<String>, Option<String>, bool, Option<String>);

fn derived(store: &Store, instance: &str) -> Derived {
    let select = "SELECT root_instance_id, status, ended_at_ms IS NOT NULL, failure_kind FROM everturn_instances \
         WHERE instance_id = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    store.sql().query_row(select, [instance], read).unwrap()
}

async fn begin_child(provider: &SqliteProvider, instance: &str, parent: &str) {
    provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (_, token, _) = fetch(provider).await.unwrap();
    let update = ExecutionMetadata { parent_instance_id: Some(parent.to_owned()), ..named() };
    provider
        .ack_orchestration_item(&token, 1, vec![started(instance)], vec![], vec![], update, vec![])
        .await
        .unwrap();
}

async fn end(provider: &SqliteProvider, instance: &str, status: &str, kind: EventKind) {
    provider.enqueue_for_orchestrator(signal(instance), None).await.unwrap();
    let (_, token, _) = fetch(provider).await.unwrap();
    let update = ExecutionMetadata { status: Some(status.to_owned()), ..ExecutionMetadata::default() };
    let event = Event::with_event_id(2, instance, 1, None, kind);
    provider.ack_orchestration_item(&token, 1, vec![event], vec![], vec![], update, vec![]).await.unwrap();
}

/// Ends an instance in a fused step on its only activity.
async fn end_in_a_step(
    store: &Store,
    provider: &SqliteProvider,
    instance: &str,
    status: ExecutionStatus,
    kind: EventKind,
) {
    begin(provider, instance, vec![activity(instance, 2)]).await;
    let (_, token, _) = fetch_work(provider).await.expect("its activity");
    let select = "SELECT turn_stamp FROM everturn_instances WHERE instance_id = ?1";
    let stamp: i64 = store.sql().query_row(select, [instance], |row| row.get(0)).unwrap();
    let mut turn = TurnCommit::new("", 1);
    turn.history_delta = vec![Event::stamped(3, instance, 1, None, 1, kind)];
    turn.update.status = Some(status);
    turn.base = Some(Stamp(stamp.cast_unsigned()));
    let step = StepCommit::new(instance, vec![EndedWork::new(token, None)], turn);
    let answer = provider.commit_step(&step).await.unwrap();
    assert!(matches!(answer, StepAnswer::Committed(_)), "{answer:?}");
}

#[tokio::test]
async fn a_step_that_ends_an_instance_is_in_its_row() {
    let store = Store::new();
    let provider = store.open().await;
    let completed = EventKind::OrchestrationCompleted { output: String::new() };
    end_in_a_step(&store, &provider, "a", ExecutionStatus::Completed, completed).await;
    assert_eq!(derived(&store, "a"), (Some("a".to_owned()), Some("Completed".to_owned()), true, None));
    let details = ErrorDetails::Infrastructure {
        operation: "commit".to_owned(),
        message: "broken".to_owned(),
        retryable: false,
    };
    let failed = EventKind::OrchestrationFailed { details };
    end_in_a_step(&store, &provider, "b", ExecutionStatus::Failed, failed).await;
    let kind = Some("infrastructure".to_owned());
    assert_eq!(derived(&store, "b"), (Some("b".to_owned()), Some("Failed".to_owned()), true, kind));
    crate::totals::assert_right(&store.path());
}

#[tokio::test]
async fn root_status_and_failure_are_in_the_row_of_the_instance() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "root", vec![]).await;
    begin_child(&provider, "child", "root").await;
    begin_child(&provider, "grandchild", "child").await;
    begin_child(&provider, "orphan", "unknown").await;
    let running = |root: &str| (Some(root.to_owned()), Some("Running".to_owned()), false, None);
    assert_eq!(derived(&store, "root"), running("root"));
    assert_eq!(derived(&store, "grandchild"), running("root"));
    assert_eq!(derived(&store, "orphan"), running("orphan"));
    end(&provider, "child", "Completed", EventKind::OrchestrationCompleted { output: String::new() }).await;
    let completed = (Some("root".to_owned()), Some("Completed".to_owned()), true, None);
    assert_eq!(derived(&store, "child"), completed);
    let details = ErrorDetails::Infrastructure {
        operation: "commit".to_owned(),
        message: "broken".to_owned(),
        retryable: false,
    };
    end(&provider, "grandchild", "Failed", EventKind::OrchestrationFailed { details }).await;
    let failed =
        (Some("root".to_owned()), Some("Failed".to_owned()), true, Some("infrastructure".to_owned()));
    assert_eq!(derived(&store, "grandchild"), failed);
}

#[tokio::test]
async fn a_queued_activity_has_its_name() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let name: String =
        store.sql().query_row("SELECT name FROM everturn_worker_queue", [], |row| row.get(0)).unwrap();
    assert_eq!(name, "pay");
}
