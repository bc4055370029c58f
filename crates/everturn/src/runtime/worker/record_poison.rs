//! Failing an activity that was tried too often.

use everturn_core::{ErrorDetails, PoisonMessageType, SYSCALL_PREFIX};
use everturn_provider::store::{ExecutionRead, Settlement};

use super::super::unregistered::not_registered;
use super::activity::{ActivityItem, LockedWork};
use super::{WorkerSlot, report};

impl WorkerSlot {
    /// Stores the failure of an activity that was tried too often.
    pub(super) async fn fail_poisoned(&self, work: LockedWork) {
        let item = &work.item;
        // Work items always have a JSON form; without one only the message text is empty.
        let mut message = serde_json::to_string(&item.as_work_item()).unwrap_or_default();
        if let Some(reason) = self.why_unregistered(item).await {
            message = format!("{reason}\n{message}");
        }
        let details = ErrorDetails::Poison {
            attempt_count: item.attempt_count,
            max_attempts: self.node.options.max_attempts,
            message_type: PoisonMessageType::Activity {
                instance: item.instance.clone(),
                execution_id: item.execution_id,
                activity_name: item.name.clone(),
                activity_id: item.id,
            },
            message,
        }
        .cut_to(self.node.store.limits().payload_bytes_max);
        let completion = item.completion(Err(details.clone()));
        let settlement = Settlement::end(&item.token, Some(completion.into()));
        match self.settle_while_locked(&settlement, &work).await {
            Ok(()) => report::poisoned(self, item, &details),
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                    lock_token = %item.token, instance_id = %item.instance, activity_name = %item.name, %error,
                    "storing the failure of an activity failed; abandoning its lock");
                self.abandon_unsettled(&work, &error).await;
            }
        }
    }

    /// Why an activity was tried too often, if this runtime has no handler of its name.
    async fn why_unregistered(&self, item: &ActivityItem) -> Option<String> {
        let activities = &self.node.activities;
        if activities.has(&item.name) {
            return None;
        }
        let read = ExecutionRead::of(&item.instance, item.execution_id);
        // Without the history the text lacks the time.
        let history = self.node.store.read_execution(&read).await.unwrap_or_default().history;
        let scheduled = history.iter().find(|event| event.event_id == item.id);
        let mut registered = activities.list_names();
        registered.retain(|name| !name.starts_with(SYSCALL_PREFIX));
        let what = format!("activity {}", item.name);
        Some(not_registered(&what, scheduled.map(|event| event.timestamp_ms), &registered))
    }
}
