//! Constructors for messages and turns.

use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::store::{Stamp, Store, Submission, TurnCommit, TurnFetch};
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
    let mut commit = empty_turn(lock_token, stamp);
    commit.history_delta = vec![Event::stamped(1, instance, 1, None, 0, started)];
    commit.update.orchestration_name = Some("Order".to_owned());
    commit.update.orchestration_version = Some("1.0.0".to_owned());
    commit
}

/// A turn that adds nothing to an existing instance.
pub(crate) fn empty_turn(lock_token: &str, stamp: Stamp) -> TurnCommit {
    let mut commit = TurnCommit::new(lock_token, 1);
    commit.stamp = Some(stamp);
    commit
}

pub(crate) async fn commit(store: &dyn Store, turn: &TurnCommit) -> Result<(), ProviderError> {
    store.commit_turn(turn).await
}

/// Creates an instance that has only its start event.
pub(crate) async fn create(store: &dyn Store, instance: &str, stamp: Stamp) {
    store.submit(&Submission::of(start(instance))).await.unwrap();
    let token = fetch(store).await;
    commit(store, &first_turn(instance, &token, stamp)).await.unwrap();
}

/// Locks the next instance and returns the lock token.
pub(crate) async fn fetch(store: &dyn Store) -> String {
    store.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap().remove(0).lock_token
}
