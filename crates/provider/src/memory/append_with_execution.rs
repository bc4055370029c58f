//! Adding events past the turns, for tests and tools.

use everturn_core::Event;

use super::store::{Execution, Moment, Store, check_new_events};
use crate::error::ProviderError;
use crate::warm::Stamp;

impl Store {
    /// Adds events to an execution, which is made if it is missing. The fresh stamp tells whoever keeps the instance in
    /// memory that its history moved.
    pub(super) fn append_with_execution(
        &mut self,
        now: Moment,
        fresh_stamp: Stamp,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let existing = self.execution(instance, execution_id);
        check_new_events("append_with_execution", instance, execution_id, existing, &new_events)?;
        let execution = self
            .executions
            .entry(instance.to_owned())
            .or_default()
            .entry(execution_id)
            .or_insert_with(|| Execution::running(now.wall_ms));
        execution.append(new_events);
        self.stamps.insert(instance.to_owned(), fresh_stamp);
        // A start event makes an instance known, whose messages may have waited for it.
        self.changes.orchestrator_queue = true;
        self.changes.instances.insert(instance.to_owned());
        Ok(())
    }
}
