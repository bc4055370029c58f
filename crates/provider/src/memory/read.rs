//! Reading histories, and what can be known of an instance without them.

use everturn_core::{Event, EventKind, OrchestrationStatus, SystemStats};

use super::tables::{Stored, Tables};
use crate::error::ProviderError;
use crate::plain_store::status_of;
use crate::store::{CustomStatus, ExecutionRead, OrchestrationName, StoredExecution};

impl Tables {
    /// An execution with its history; empty for an unknown one.
    pub fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        let instance = read.instance.as_str();
        let found = match read.execution_id {
            Some(execution_id) => self.execution(instance, execution_id).map(|found| (execution_id, found)),
            None => self.latest_execution(instance),
        };
        let Some((execution_id, execution)) = found else { return Ok(StoredExecution::default()) };
        let history = execution.history().map_err(|damage| {
            ProviderError::damaged(
                "read_execution",
                format!("{instance}, execution {execution_id}: {damage}"),
            )
        })?;
        Ok(StoredExecution::new(history).with_stamp(self.stamps.get(instance).copied()))
    }

    /// The status of the latest execution, from the event that ended it, or from its start.
    pub fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        let Some((execution_id, execution)) = self.latest_execution(instance) else {
            return Ok(OrchestrationStatus::NotFound);
        };
        let decisive = match execution.outcome_event_id {
            Some(event_id) => execution.events.get(&event_id),
            None => execution.events.values().next(),
        };
        let CustomStatus { text, version } = self.read_custom_status(instance, 0).unwrap_or_default();
        match decisive {
            Some(Stored::Good(event)) => Ok(status_of(std::slice::from_ref(event), text, version)),
            Some(Stored::Damaged(damage)) => Err(ProviderError::damaged(
                "read_status",
                format!("{instance}, execution {execution_id}: {damage}"),
            )),
            None => Ok(OrchestrationStatus::NotFound),
        }
    }

    /// Name and version from the instance's row, or from the start event.
    pub fn read_orchestration_name(&self, instance: &str) -> Option<OrchestrationName> {
        if let Some(row) = self.instances.get(instance) {
            return Some(row.orchestration());
        }
        let (_, execution) = self.latest_execution(instance)?;
        let (name, version) = execution.started_as()?;
        Some(OrchestrationName { name: name.to_owned(), version: version.to_owned() })
    }

    /// The custom status, if its version is greater than `last_seen_version`.
    pub fn read_custom_status(&self, instance: &str, last_seen_version: u64) -> Option<CustomStatus> {
        self.custom_statuses.get(instance).filter(|status| status.version > last_seen_version).cloned()
    }

    /// Size of the current execution.
    pub fn read_stats(&self, instance: &str) -> Option<SystemStats> {
        let row = self.instances.get(instance)?;
        let events = self.execution(instance, row.current_execution_id).map(|execution| &execution.events);
        let values = self.read_kv_values(instance);
        let events = || events.into_iter().flat_map(|events| events.values());
        Some(SystemStats {
            history_event_count: events().count() as u64,
            history_size_bytes: events().map(stored_bytes).sum(),
            queue_pending_count: events().next().map_or(0, carried_count),
            kv_user_key_count: values.len() as u64,
            kv_total_value_bytes: values.values().map(|value| value.len() as u64).sum(),
        })
    }
}

/// Size of an event as JSON, the form in which other stores keep it.
fn stored_bytes(event: &Stored<Event>) -> u64 {
    match event {
        Stored::Good(event) => serde_json::to_string(event).map_or(0, |json| json.len() as u64),
        Stored::Damaged(text) => text.len() as u64,
    }
}

/// How many queue messages a start event carries.
fn carried_count(event: &Stored<Event>) -> u64 {
    match event {
        Stored::Good(Event {
            kind: EventKind::OrchestrationStarted { carry_forward_events: Some(carried), .. },
            ..
        }) => carried.len() as u64,
        _ => 0,
    }
}
