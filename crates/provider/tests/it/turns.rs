//! Constructors for messages and turns.

use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::{ExecutionMetadata, Provider, Stamp, TurnCommit};
use std::time::Duration;

pub(crate) const LOCK: Duration = Duration::from_secs(30);

pub(crate) fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "Order".to_owned(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

pub(crate) fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.to_owned(), name: "go".to_owned(), data: String::new() }
}

pub(crate) fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "Charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    }
}

/// The first turn of an instance: its start event.
pub(crate) fn first_turn(instance: &str, lock_token: &str, stamp: Stamp) -> TurnCommit {
    let started = EventKind::OrchestrationStarted {
        name: "Order".to_owned(),
        version: "1.0.0".to_owned(),
        input: String::new(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    TurnCommit {
        lock_token: lock_token.to_owned(),
        execution_id: 1,
        history_delta: vec![Event::stamped(1, instance, 1, None, 0, started)],
        worker_items: Vec::new(),
        orchestrator_items: Vec::new(),
        metadata: ExecutionMetadata {
            orchestration_name: Some("Order".to_owned()),
            orchestration_version: Some("1.0.0".to_owned()),
            ..ExecutionMetadata::default()
        },
        cancelled_activities: Vec::new(),
        base: None,
        stamp,
        check_in: None,
    }
}

/// Creates an instance that has only its start event.
pub(crate) async fn create(provider: &dyn Provider, instance: &str, stamp: Stamp) {
    provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let token = fetch(provider).await;
    provider.commit_turn(&first_turn(instance, &token, stamp)).await.unwrap();
}

/// Locks the next instance and returns the lock token.
pub(crate) async fn fetch(provider: &dyn Provider) -> String {
    provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().unwrap().1
}
