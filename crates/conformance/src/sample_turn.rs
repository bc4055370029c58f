//! What a turn of a case decides.

use std::sync::Arc;

use everturn_core::{Event, EventKind, ExecutionStatus, WorkItem};
use everturn_provider::store::{CheckIn, ExecutionUpdate, Stamp, TurnCommit};
use everturn_provider::{Provider, ProviderError, ScheduledActivityIdentifier};
use semver::Version;

use crate::events;
use crate::items::{NAME, VERSION};
use crate::store_handle::StoreHandle;

/// The decisions of one turn, built step by step.
#[derive(Debug, Clone)]
pub(crate) struct SampleTurn {
    instance: String,
    execution_id: u64,
    history_delta: Vec<Event>,
    worker_items: Vec<WorkItem>,
    orchestrator_items: Vec<WorkItem>,
    update: ExecutionUpdate,
    cancelled: Vec<ScheduledActivityIdentifier>,
}

impl SampleTurn {
    /// A turn that decides nothing.
    pub(crate) fn of(instance: &str, execution_id: u64) -> Self {
        Self {
            instance: instance.to_owned(),
            execution_id,
            history_delta: Vec::new(),
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            update: ExecutionUpdate::default(),
            cancelled: Vec::new(),
        }
    }

    /// The turn that begins an execution: start event, name and version.
    pub(crate) fn beginning(instance: &str, execution_id: u64) -> Self {
        Self::of(instance, execution_id).event(1, events::started()).named(NAME, VERSION)
    }

    pub(crate) fn event(mut self, event_id: u64, kind: EventKind) -> Self {
        let at_ms = 1_000 + event_id;
        self.history_delta.push(Event::stamped(
            event_id,
            self.instance.clone(),
            self.execution_id,
            None,
            at_ms,
            kind,
        ));
        self
    }

    pub(crate) fn recorded(mut self, event: Event) -> Self {
        self.history_delta.push(event);
        self
    }

    pub(crate) fn activity(mut self, item: WorkItem) -> Self {
        self.worker_items.push(item);
        self
    }

    pub(crate) fn message(mut self, item: WorkItem) -> Self {
        self.orchestrator_items.push(item);
        self
    }

    pub(crate) fn cancelling(mut self, activity_id: u64) -> Self {
        self.cancelled.push(ScheduledActivityIdentifier {
            instance: self.instance.clone(),
            execution_id: self.execution_id,
            activity_id,
        });
        self
    }

    pub(crate) fn named(mut self, name: &str, version: &str) -> Self {
        self.update.orchestration_name = Some(name.to_owned());
        self.update.orchestration_version = Some(version.to_owned());
        self
    }

    pub(crate) fn parent(mut self, parent: &str) -> Self {
        self.update.parent_instance_id = Some(parent.to_owned());
        self
    }

    pub(crate) fn pinned(mut self, version: Version) -> Self {
        self.update.pinned_engine_version = Some(version);
        self
    }

    pub(crate) fn status(mut self, status: ExecutionStatus, output: &str) -> Self {
        self.update.status = Some(status);
        self.update.output = Some(output.to_owned());
        self
    }

    /// Ends the execution with `Ok`.
    pub(crate) fn completing(self, event_id: u64, output: &str) -> Self {
        self.event(event_id, events::completed(output)).status(ExecutionStatus::Completed, output)
    }

    /// Ends the execution with `Err`.
    pub(crate) fn failing(self, event_id: u64, message: &str) -> Self {
        self.event(event_id, events::failed(message)).status(ExecutionStatus::Failed, message)
    }

    /// Ends the execution and sends the start of its successor.
    pub(crate) fn continuing_as_new(self, event_id: u64) -> Self {
        let successor = crate::items::continue_as_new(&self.instance);
        self.event(event_id, events::continued_as_new())
            .status(ExecutionStatus::ContinuedAsNew, "next")
            .message(successor)
    }

    /// Commits with a lock token.
    pub(crate) async fn commit(self, store: &StoreHandle, lock_token: &str) -> Result<(), ProviderError> {
        store.commit_turn(&self.into_request(lock_token)).await
    }

    /// Commits through the plain verb.
    pub(crate) async fn ack(self, plain: &dyn Provider, lock_token: &str) -> Result<(), ProviderError> {
        plain
            .ack_orchestration_item(
                lock_token,
                self.execution_id,
                self.history_delta,
                self.worker_items,
                self.orchestrator_items,
                self.update.into(),
                self.cancelled,
            )
            .await
    }

    /// The request that commits this turn.
    pub(crate) fn into_request(self, lock_token: &str) -> TurnCommit {
        let mut commit = TurnCommit::new(lock_token, self.execution_id);
        commit.history_delta = self.history_delta;
        commit.worker_items = self.worker_items.into_iter().map(Into::into).collect();
        commit.orchestrator_items = self.orchestrator_items.into_iter().map(Into::into).collect();
        commit.update = self.update;
        commit.cancelled_activities = self.cancelled;
        commit
    }

    /// The request that commits this turn on a state and leaves a stamp.
    pub(crate) fn into_commit(self, lock_token: &str, base: Option<Stamp>, stamp: Stamp) -> TurnCommit {
        let mut commit = self.into_request(lock_token);
        commit.base = base;
        commit.stamp = Some(stamp);
        commit
    }
}

/// The same commit with a check-in.
pub(crate) fn checking_in(mut commit: TurnCommit, check_in: impl Fn() + Send + Sync + 'static) -> TurnCommit {
    let check_in: CheckIn = Arc::new(check_in);
    commit.check_in = Some(check_in);
    commit
}
