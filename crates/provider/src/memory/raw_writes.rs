//! Writes that bypass the engine, for tests and tools.

use async_trait::async_trait;
use everturn_core::{Event, WorkItem, kind_of};

use super::MemoryProvider;
use super::tables::{Moment, TableExecution, Tables, check_new_events};
use crate::error::ProviderError;
use crate::store::{RawWrites, Stamp};

#[async_trait]
impl RawWrites for MemoryProvider {
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let stamp = self.fresh_stamp();
        self.run(|tables, now| tables.append_events(now, stamp, instance, execution_id, new_events))
    }

    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.run(|tables, _| tables.enqueue_work(item))
    }
}

impl Tables {
    /// Adds events to an execution, which is created if it is missing. The fresh stamp makes copies of the instance in
    /// memory stale.
    pub fn append_events(
        &mut self,
        now: Moment,
        fresh_stamp: Stamp,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let existing = self.execution(instance, execution_id);
        check_new_events("append_events", instance, execution_id, existing, &new_events)?;
        let execution = self
            .executions
            .entry(instance.to_owned())
            .or_default()
            .entry(execution_id)
            .or_insert_with(|| TableExecution::running(now.wall_ms));
        execution.append(new_events);
        self.stamps.insert(instance.to_owned(), fresh_stamp);
        // A start event makes an instance known, whose messages may have waited for it.
        self.changes.orchestrator_queue = true;
        self.changes.instances.insert(instance.to_owned());
        Ok(())
    }

    /// Puts an activity behind all others.
    pub fn enqueue_work(&mut self, item: WorkItem) -> Result<(), ProviderError> {
        check_worker_item("enqueue_work", &item)?;
        self.push_activity(item);
        Ok(())
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
