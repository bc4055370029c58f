//! Finding a parent's execution where the call did not name it.

use everturn_core::{INITIAL_EXECUTION_ID, WorkItem};
use everturn_provider::store::{ExecutionRead, Store};

/// Replaces execution 0 in messages to parents by the parent's current execution.
pub(super) async fn fill_in_parent_executions(store: &dyn Store, items: &mut [WorkItem]) {
    for item in items {
        if let WorkItem::SubOrchCompleted { parent_instance, parent_execution_id, .. }
        | WorkItem::SubOrchFailed { parent_instance, parent_execution_id, .. } = item
            && *parent_execution_id == 0
        {
            *parent_execution_id = current_execution(store, parent_instance).await;
        }
    }
}

async fn current_execution(store: &dyn Store, instance: &str) -> u64 {
    let found = match store.admin() {
        Some(admin) => admin.latest_execution_id(instance).await,
        None => {
            let latest = store.read_execution(&ExecutionRead::latest(instance)).await;
            latest
                .map(|latest| latest.history.first().map_or(INITIAL_EXECUTION_ID, |event| event.execution_id))
        }
    };
    found.unwrap_or_else(|error| {
        tracing::warn!(target: "everturn::runtime", instance_id = %instance, %error,
            "reading the current execution of a parent failed; its first execution is notified");
        INITIAL_EXECUTION_ID
    })
}
