//! The management side: lists of instances, and information about them.

use std::cmp::Reverse;

use async_trait::async_trait;
use everturn_core::{Event, ExecutionStatus, WorkItem};

use super::MemoryProvider;
use super::tables::{Instance, Lock, Message, Moment, Stored, TableExecution, Tables};
use crate::error::ProviderError;
use crate::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, ProviderAdmin, PruneOptions,
    PruneResult, QueueDepths, SystemMetrics,
};
use crate::store::ExecutionRead;

#[async_trait]
impl ProviderAdmin for MemoryProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        Ok(self.run(|tables, _| tables.list_instances()))
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        Ok(self.run(|tables, _| tables.list_instances_by_status(status)))
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        Ok(self.run(|tables, _| tables.list_executions(instance)))
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        let read = ExecutionRead::of(instance, execution_id);
        let stored = self.run(|tables, _| tables.read_execution(&read))?;
        Ok(stored.history)
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        let read = ExecutionRead::latest(instance);
        let stored = self.run(|tables, _| tables.read_execution(&read))?;
        Ok(stored.history)
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        Ok(self.run(|tables, _| tables.latest_execution_id(instance)))
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.run(|tables, _| tables.get_instance_info(instance))
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.run(|tables, _| tables.get_execution_info(instance, execution_id))
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        Ok(self.run(|tables, _| tables.get_system_metrics()))
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        Ok(self.run(|tables, now| tables.get_queue_depths(now)))
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        Ok(self.run(|tables, _| tables.list_children(instance_id)))
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.run(|tables, _| tables.get_parent_id(instance_id))
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.run(|tables, _| tables.delete_instances_atomic(ids, force))
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.run(|tables, _| tables.delete_instance_bulk(&filter))
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.run(|tables, _| tables.prune_executions(instance_id, &options))
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.run(|tables, _| tables.prune_executions_bulk(&filter, &options))
    }
}

impl Tables {
    /// All instances, newest first; equal times by id.
    pub fn list_instances(&self) -> Vec<String> {
        self.listed(|_| true)
    }

    /// The instances whose current execution has this status, in the same order.
    pub fn list_instances_by_status(&self, status: &str) -> Vec<String> {
        let Some(status) = ExecutionStatus::from_name(status) else { return Vec::new() };
        self.listed(|instance| self.status(instance) == Some(status))
    }

    fn listed(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut rows: Vec<(&String, &Instance)> =
            self.instances.iter().filter(|(id, _)| is_wanted(id)).collect();
        // The table is ordered by id, and the sort keeps the order of equals.
        rows.sort_by_key(|(_, row)| Reverse(row.created_at_ms));
        rows.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// The executions of an instance, in order.
    pub fn list_executions(&self, instance: &str) -> Vec<u64> {
        self.executions
            .get(instance)
            .map(|executions| executions.keys().copied().collect())
            .unwrap_or_default()
    }

    /// The newest execution of an instance; the first one if it has none.
    pub fn latest_execution_id(&self, instance: &str) -> u64 {
        self.latest_execution(instance).map_or(everturn_core::INITIAL_EXECUTION_ID, |(id, _)| id)
    }

    /// What is known about an instance.
    pub fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        let row = self.row("get_instance_info", instance)?;
        let current = self.execution(instance, row.current_execution_id);
        Ok(InstanceInfo {
            instance_id: instance.to_owned(),
            orchestration_name: row.orchestration_name.clone(),
            orchestration_version: row.orchestration_version.clone(),
            current_execution_id: row.current_execution_id,
            status: current
                .map_or(ExecutionStatus::Running, |execution| execution.status)
                .as_str()
                .to_owned(),
            output: current.and_then(|execution| execution.output.clone()),
            created_at: row.created_at_ms,
            updated_at: row.updated_at_ms,
            parent_instance_id: row.parent_instance_id.clone(),
        })
    }

    /// What is known about an execution.
    pub fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        let execution = self.execution(instance, execution_id).ok_or_else(|| {
            let message = format!("execution {execution_id} of {instance} not found");
            ProviderError::not_found("get_execution_info", message)
        })?;
        Ok(ExecutionInfo {
            execution_id,
            status: execution.status.as_str().to_owned(),
            output: execution.output.clone(),
            started_at: execution.started_at_ms,
            completed_at: execution.completed_at_ms,
            event_count: execution.events.len(),
        })
    }

    /// Totals of all tables.
    pub fn get_system_metrics(&self) -> SystemMetrics {
        let with_status = |status| self.instances.keys().filter(|id| self.status(id) == Some(status)).count();
        let executions = || self.executions.values().flat_map(|executions| executions.values());
        SystemMetrics {
            total_instances: self.instances.len() as u64,
            total_executions: executions().count() as u64,
            running_instances: with_status(ExecutionStatus::Running) as u64,
            completed_instances: with_status(ExecutionStatus::Completed) as u64,
            failed_instances: with_status(ExecutionStatus::Failed) as u64,
            total_events: executions().map(|execution| execution.events.len() as u64).sum(),
        }
    }

    /// How many rows are not locked. Timers that nothing waits for are not counted.
    pub fn get_queue_depths(&self, now: Moment) -> QueueDepths {
        let is_taken = |message: &Message| {
            let lock = self.instance_locks.get(&message.instance).filter(|lock| lock.is_held(now));
            lock.is_some_and(|lock| message.tagged_by.as_ref() == Some(&lock.token))
        };
        let is_locked = |lock: &Option<Lock>| lock.as_ref().is_some_and(|lock| lock.is_held(now));
        QueueDepths {
            orchestrator_queue: self
                .orchestrator_queue
                .values()
                .filter(|message| !is_taken(message) && !self.is_idle_timer(message, now))
                .count(),
            worker_queue: self.worker_queue.values().filter(|activity| !is_locked(&activity.lock)).count(),
            timer_queue: 0,
        }
    }

    /// Whether the message is a timer that is not due, of an execution that has ended.
    fn is_idle_timer(&self, message: &Message, now: Moment) -> bool {
        let Stored::Good(WorkItem::TimerFired { instance, execution_id, .. }) = &message.item else {
            return false;
        };
        let is_replaced =
            self.instances.get(instance).is_some_and(|row| row.current_execution_id > *execution_id);
        let execution = self.execution(instance, *execution_id);
        let has_ended = execution.is_some_and(|execution| execution.status != ExecutionStatus::Running);
        !message.is_visible(now) && (is_replaced || has_ended)
    }

    /// Direct children, by id.
    pub fn list_children(&self, instance: &str) -> Vec<String> {
        self.instances
            .iter()
            .filter(|(_, row)| row.parent_instance_id.as_deref() == Some(instance))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The parent of an instance.
    pub fn get_parent_id(&self, instance: &str) -> Result<Option<String>, ProviderError> {
        Ok(self.row("get_parent_id", instance)?.parent_instance_id.clone())
    }

    pub(super) fn row(&self, operation: &str, instance: &str) -> Result<&Instance, ProviderError> {
        self.instances
            .get(instance)
            .ok_or_else(|| ProviderError::not_found(operation, format!("instance {instance} not found")))
    }

    /// The execution whose status listings show.
    pub(super) fn current_execution(&self, instance: &str) -> Option<&TableExecution> {
        match self.instances.get(instance) {
            Some(row) => self.execution(instance, row.current_execution_id),
            None => self.latest_execution(instance).map(|(_, execution)| execution),
        }
    }

    pub(super) fn status(&self, instance: &str) -> Option<ExecutionStatus> {
        self.current_execution(instance).map(|execution| execution.status)
    }
}
