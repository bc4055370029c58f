//! Writing what a turn decided.

use everturn_core::{Bug, Event, EventKind, WorkItem, kind_of, planted};

use super::kv::is_kv_event;
use super::store::{
    COMPLETED, CONTINUED_AS_NEW, Execution, FAILED, Instance, Moment, RUNNING, Store, VISIBLE,
    check_new_events,
};
use crate::error::ProviderError;
use crate::types::ExecutionMetadata;
use crate::warm::TurnCommit;

const OPERATION: &str = "ack_orchestration_item";

impl Store {
    /// Commits a turn, or refuses it and changes nothing.
    pub(super) fn ack_orchestration_item(
        &mut self,
        now: Moment,
        commit: TurnCommit,
    ) -> Result<(), ProviderError> {
        let instance = self.instance_locked_by(OPERATION, &commit.lock_token, now)?;
        let now_ms = now.wall_ms;
        self.check_turn(&instance, &commit)?;

        self.orchestrator_queue.retain(|_, message| {
            message.tagged_by.as_deref() != Some(commit.lock_token.as_str())
                && !(planted(Bug::NewcomersAcked) && message.instance == instance)
        });
        self.instance_locks.remove(&instance);
        self.write_instance(now_ms, &instance, commit.execution_id, &commit.metadata);
        self.write_custom_status(&instance, &commit.history_delta);
        self.write_kv(&instance, &commit.metadata, &commit.history_delta);
        self.stamps.insert(instance.clone(), commit.stamp);
        self.write_execution(now_ms, &instance, commit.execution_id, commit.metadata, commit.history_delta);

        for item in commit.worker_items {
            self.push_activity(item);
        }
        for cancelled in &commit.cancelled_activities {
            self.worker_queue.retain(|_, activity| activity.identity.as_ref() != Some(cancelled));
        }
        for item in commit.orchestrator_items {
            let visible_at_ms = match &item {
                WorkItem::TimerFired { fire_at_ms, .. } => now.visible_from(*fire_at_ms),
                _ => VISIBLE,
            };
            self.push_message(item, visible_at_ms);
        }
        self.changes.check_ins.0.extend(commit.check_in);
        self.changes.written = Some(commit.lock_token);
        // Messages that came under the lock can be fetched now.
        self.changes.orchestrator_queue = true;
        self.changed_hands.instances.insert(instance.clone());
        self.changes.instances.insert(instance);
        Ok(())
    }

    /// Everything that can be wrong with a turn besides its lock.
    fn check_turn(&self, instance: &str, commit: &TurnCommit) -> Result<(), ProviderError> {
        if let Some(base) = commit.base
            && self.stamps.get(instance) != Some(&base)
        {
            return Err(ProviderError::history_moved(
                "commit_turn",
                format!("{instance}, execution {}: history moved", commit.execution_id),
            ));
        }
        let existing = self.execution(instance, commit.execution_id);
        check_new_events(OPERATION, instance, commit.execution_id, existing, &commit.history_delta)?;
        for item in &commit.worker_items {
            check_worker_item(OPERATION, item)?;
        }
        for item in &commit.orchestrator_items {
            check_orchestrator_item(OPERATION, item)?;
        }
        Ok(())
    }

    /// The instance's row: made if the metadata names the orchestration, else only kept up to date.
    fn write_instance(
        &mut self,
        now_ms: u64,
        instance: &str,
        execution_id: u64,
        metadata: &ExecutionMetadata,
    ) {
        if let (Some(name), Some(version)) = (&metadata.orchestration_name, &metadata.orchestration_version) {
            let row = self.instances.entry(instance.to_owned()).or_insert_with(|| Instance {
                orchestration_name: String::new(),
                orchestration_version: String::new(),
                current_execution_id: execution_id,
                parent_instance_id: metadata.parent_instance_id.clone(),
                created_at_ms: now_ms,
                updated_at_ms: now_ms,
            });
            row.orchestration_name.clone_from(name);
            row.orchestration_version.clone_from(version);
        }
        if let Some(row) = self.instances.get_mut(instance) {
            row.current_execution_id = row.current_execution_id.max(execution_id);
            row.updated_at_ms = now_ms;
        }
    }

    /// The last status of the delta counts; however many there are, it is one step.
    fn write_custom_status(&mut self, instance: &str, history_delta: &[Event]) {
        let last_status = history_delta.iter().rev().find_map(|event| match &event.kind {
            EventKind::CustomStatusUpdated { status } => Some(status),
            _ => None,
        });
        if let Some(status) = last_status {
            let custom = self.custom_statuses.entry(instance.to_owned()).or_default();
            custom.status.clone_from(status);
            custom.version += 1;
        }
    }

    fn write_kv(&mut self, instance: &str, metadata: &ExecutionMetadata, history_delta: &[Event]) {
        if history_delta.iter().any(|event| is_kv_event(&event.kind)) {
            let kv = self.kv.entry(instance.to_owned()).or_default();
            for event in history_delta {
                kv.apply(&event.kind);
            }
        }
        let ended = matches!(metadata.status.as_deref(), Some(COMPLETED | FAILED | CONTINUED_AS_NEW));
        if ended && let Some(kv) = self.kv.get_mut(instance) {
            kv.merge();
        }
    }

    fn write_execution(
        &mut self,
        now_ms: u64,
        instance: &str,
        execution_id: u64,
        metadata: ExecutionMetadata,
        history_delta: Vec<Event>,
    ) {
        let execution = self
            .executions
            .entry(instance.to_owned())
            .or_default()
            .entry(execution_id)
            .or_insert_with(|| Execution::running(now_ms));
        if metadata.pinned_engine_version.is_some() {
            execution.pinned_engine_version = metadata.pinned_engine_version;
        }
        if let Some(status) = metadata.status {
            execution.completed_at_ms = (status != RUNNING).then_some(now_ms);
            execution.status = status;
            execution.output = metadata.output;
        }
        execution.append(history_delta);
    }
}

/// Only activities belong into the worker queue.
pub(super) fn check_worker_item(operation: &str, item: &WorkItem) -> Result<(), ProviderError> {
    if matches!(item, WorkItem::ActivityExecute { .. }) {
        return Ok(());
    }
    let message = format!("{} for {} does not belong into the worker queue", kind_of(item), item.instance());
    Err(ProviderError::permanent(operation, message))
}

/// Everything but activities belongs into the orchestrator queue.
pub(super) fn check_orchestrator_item(operation: &str, item: &WorkItem) -> Result<(), ProviderError> {
    if !matches!(item, WorkItem::ActivityExecute { .. }) {
        return Ok(());
    }
    let message =
        format!("{} for {} does not belong into the orchestrator queue", kind_of(item), item.instance());
    Err(ProviderError::permanent(operation, message))
}
