//! Writing what a turn decided.

use everturn_core::{Event, EventKind, ExecutionStatus, WorkItem};

use super::kv::is_kv_event;
use super::raw_writes::check_worker_item;
use super::submit::check_orchestrator_item;
use super::tables::{Instance, Moment, TableExecution, Tables, check_new_events};
use crate::error::ProviderError;
use crate::store::{ExecutionUpdate, NewMessage, NewWork, Stamp, TurnCommit};

const OPERATION: &str = "commit_turn";

impl Tables {
    /// Commits a turn and leaves `stamp` on the instance, or refuses it and changes nothing.
    pub fn commit_turn(
        &mut self,
        now: Moment,
        stamp: Stamp,
        commit: TurnCommit,
    ) -> Result<(), ProviderError> {
        let instance = self.instance_locked_by(OPERATION, &commit.lock_token, now)?;
        if let Some(base) = commit.base
            && self.stamps.get(&instance) != Some(&base)
        {
            return Err(ProviderError::history_moved(
                OPERATION,
                format!("{instance}, execution {}: history moved", commit.execution_id),
            ));
        }
        self.check_turn(OPERATION, &instance, &commit)?;
        self.orchestrator_queue
            .retain(|_, message| message.tagged_by.as_deref() != Some(commit.lock_token.as_str()));
        self.instance_locks.remove(&instance);
        self.write_turn(now, stamp, instance, commit);
        Ok(())
    }

    /// Writes a turn that was checked.
    pub(super) fn write_turn(&mut self, now: Moment, stamp: Stamp, instance: String, commit: TurnCommit) {
        let now_ms = now.wall_ms;
        self.write_instance(now_ms, &instance, commit.execution_id, &commit.update);
        self.write_custom_status(&instance, &commit.history_delta);
        self.write_kv(&instance, &commit.update, &commit.history_delta);
        self.stamps.insert(instance.clone(), stamp);
        self.write_execution(now_ms, &instance, commit.execution_id, commit.update, commit.history_delta);

        for NewWork { item } in commit.worker_items {
            self.push_activity(item);
        }
        for cancelled in &commit.cancelled_activities {
            self.worker_queue.retain(|_, activity| activity.identity.as_ref() != Some(cancelled));
        }
        for NewMessage { item, delay, notes } in commit.orchestrator_items {
            let visible_at_ms = match &item {
                WorkItem::TimerFired { fire_at_ms, .. } => now.visible_from(*fire_at_ms),
                _ => now.visible_after(delay),
            };
            self.push_message(now, item, notes, visible_at_ms);
        }
        self.changes.check_ins.extend(commit.check_in);
        // Messages that came under the lock can be fetched now.
        self.changes.orchestrator_queue = true;
        self.changes.instances.insert(instance);
    }

    /// Everything that can be wrong with a turn besides its lock and its base.
    pub(super) fn check_turn(
        &self,
        operation: &str,
        instance: &str,
        commit: &TurnCommit,
    ) -> Result<(), ProviderError> {
        let existing = self.execution(instance, commit.execution_id);
        check_new_events(operation, instance, commit.execution_id, existing, &commit.history_delta)?;
        for NewWork { item } in &commit.worker_items {
            check_worker_item(operation, item)?;
        }
        for NewMessage { item, .. } in &commit.orchestrator_items {
            check_orchestrator_item(operation, item)?;
        }
        Ok(())
    }

    /// Creates the instance's row if the update names the orchestration, else only keeps it up to date.
    fn write_instance(&mut self, now_ms: u64, instance: &str, execution_id: u64, update: &ExecutionUpdate) {
        if let (Some(name), Some(version)) = (&update.orchestration_name, &update.orchestration_version) {
            let row = self.instances.entry(instance.to_owned()).or_insert_with(|| Instance {
                orchestration_name: String::new(),
                orchestration_version: String::new(),
                current_execution_id: execution_id,
                parent_instance_id: update.parent_instance_id.clone(),
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

    /// Only the last status of the delta counts; the version grows by one per turn.
    fn write_custom_status(&mut self, instance: &str, history_delta: &[Event]) {
        let last_status = history_delta.iter().rev().find_map(|event| match &event.kind {
            EventKind::CustomStatusUpdated { status } => Some(status),
            _ => None,
        });
        if let Some(status) = last_status {
            let custom = self.custom_statuses.entry(instance.to_owned()).or_default();
            custom.text.clone_from(status);
            custom.version += 1;
        }
    }

    fn write_kv(&mut self, instance: &str, update: &ExecutionUpdate, history_delta: &[Event]) {
        if history_delta.iter().any(|event| is_kv_event(&event.kind)) {
            let kv = self.kv.entry(instance.to_owned()).or_default();
            for event in history_delta {
                kv.apply(&event.kind);
            }
        }
        let has_ended = update.status.is_some_and(|status| status != ExecutionStatus::Running);
        if has_ended && let Some(kv) = self.kv.get_mut(instance) {
            kv.merge();
        }
    }

    fn write_execution(
        &mut self,
        now_ms: u64,
        instance: &str,
        execution_id: u64,
        update: ExecutionUpdate,
        history_delta: Vec<Event>,
    ) {
        let execution = self
            .executions
            .entry(instance.to_owned())
            .or_default()
            .entry(execution_id)
            .or_insert_with(|| TableExecution::running(now_ms));
        if update.pinned_engine_version.is_some() {
            execution.pinned_engine_version = update.pinned_engine_version;
        }
        if let Some(status) = update.status {
            execution.completed_at_ms = (status != ExecutionStatus::Running).then_some(now_ms);
            execution.status = status;
            execution.output = update.output;
        }
        execution.append(history_delta);
    }
}
