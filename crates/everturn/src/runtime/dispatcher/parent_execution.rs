//! Finding a parent's execution where the call did not name it.

use everturn_core::{INITIAL_EXECUTION_ID, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::store::{ExecutionRead, Store};

use super::locked_instance::LockedInstance;

/// Replaces execution 0 in messages to parents by the parent's current execution. Fails if the store failed until the lock
/// was lost.
pub(super) async fn fill_in_parent_executions(
    locked: &LockedInstance<'_>,
    items: &mut [WorkItem],
) -> Result<(), ProviderError> {
    for item in items {
        if let WorkItem::SubOrchCompleted { parent_instance, parent_execution_id, .. }
        | WorkItem::SubOrchFailed { parent_instance, parent_execution_id, .. } = item
            && *parent_execution_id == 0
        {
            let store = locked.node.store.as_ref();
            let found = locked.retry_while_locked(|| current_execution(store, parent_instance)).await;
            *parent_execution_id = match found {
                Ok(execution_id) => execution_id,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(target: "everturn::runtime", instance_id = %parent_instance, %error,
                        "reading the current execution of a parent failed; its first execution is notified");
                    INITIAL_EXECUTION_ID
                }
            };
        }
    }
    Ok(())
}

async fn current_execution(store: &dyn Store, instance: &str) -> Result<u64, ProviderError> {
    match store.admin() {
        Some(admin) => admin.latest_execution_id(instance).await,
        None => {
            let latest = store.read_execution(&ExecutionRead::latest(instance)).await?;
            Ok(latest.history.first().map_or(INITIAL_EXECUTION_ID, |event| event.execution_id))
        }
    }
}
