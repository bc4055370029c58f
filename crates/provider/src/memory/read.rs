//! Reading histories, and what can be known of an instance without them.

use everturn_core::{Event, EventKind, OrchestrationStatus, SystemStats};

use super::store::{CustomStatus, Execution, Store, Stored};
use crate::error::ProviderError;
use crate::plain_store::status_of;

impl Store {
    pub(super) fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        match self.latest_execution(instance) {
            Some((execution_id, execution)) => readable("read", instance, execution_id, execution),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        match self.execution(instance, execution_id) {
            Some(execution) => readable("read_with_execution", instance, execution_id, execution),
            None => Ok(Vec::new()),
        }
    }

    /// The status from the event that ended the latest execution, or from the fact that it began.
    pub(super) fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        let Some((execution_id, execution)) = self.latest_execution(instance) else {
            return Ok(OrchestrationStatus::NotFound);
        };
        let telling = match execution.outcome_event_id {
            Some(event_id) => execution.events.get(&event_id),
            None => execution.events.values().next(),
        };
        let (custom_status, version) = self.get_custom_status(instance, 0).unwrap_or_default();
        match telling {
            Some(Stored::Good(event)) => Ok(status_of(std::slice::from_ref(event), custom_status, version)),
            Some(Stored::Damaged(damage)) => Err(ProviderError::damaged(
                "read_status",
                format!("{instance}, execution {execution_id}: {damage}"),
            )),
            None => Ok(OrchestrationStatus::NotFound),
        }
    }

    pub(super) fn read_orchestration_name(&self, instance: &str) -> Option<(String, String)> {
        if let Some(row) = self.instances.get(instance) {
            return Some((row.orchestration_name.clone(), row.orchestration_version.clone()));
        }
        let (_, execution) = self.latest_execution(instance)?;
        execution.started_as().map(|(name, version)| (name.to_owned(), version.to_owned()))
    }

    pub(super) fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Option<(Option<String>, u64)> {
        let CustomStatus { status, version } = self.custom_statuses.get(instance)?;
        (*version > last_seen_version).then(|| (status.clone(), *version))
    }

    pub(super) fn get_instance_stats(&self, instance: &str) -> Option<SystemStats> {
        let row = self.instances.get(instance)?;
        let events = self.execution(instance, row.current_execution_id).map(|execution| &execution.events);
        let values = self.get_kv_all_values(instance);
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

fn readable(
    operation: &str,
    instance: &str,
    execution_id: u64,
    execution: &Execution,
) -> Result<Vec<Event>, ProviderError> {
    execution.history().map_err(|damage| {
        ProviderError::damaged(operation, format!("{instance}, execution {execution_id}: {damage}"))
    })
}

/// Size of an event as JSON, the form in which other stores keep it.
fn stored_bytes(event: &Stored<Event>) -> u64 {
    match event {
        Stored::Good(event) => serde_json::to_string(event).map_or(0, |json| json.len() as u64),
        Stored::Damaged(text) => text.len() as u64,
    }
}

/// How many queue messages a start event brought along.
fn carried_count(event: &Stored<Event>) -> u64 {
    match event {
        Stored::Good(Event {
            kind: EventKind::OrchestrationStarted { carry_forward_events: Some(carried), .. },
            ..
        }) => carried.len() as u64,
        _ => 0,
    }
}
