//! Listing, inspecting and removing instances.

use everturn_core::Event;
use everturn_provider::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, PruneOptions,
    PruneResult, QueueDepths, SystemMetrics,
};
use everturn_provider::{ProviderAdmin, ProviderError};

use super::{Client, ClientError};

/// Every method but the first fails with [`ClientError::ManagementNotAvailable`] on a store without a management side,
/// and with [`ClientError::Provider`] if the store failed.
impl Client {
    /// Returns true if the store has a management side.
    pub fn has_management_capability(&self) -> bool {
        self.store.admin().is_some()
    }

    /// All instances, children included, newest first.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    pub async fn list_all_instances(&self) -> Result<Vec<String>, ClientError> {
        Ok(self.admin()?.list_instances().await?)
    }

    /// The instances whose current execution has this status, newest first: `Running`, `Completed`, `Failed` or
    /// `ContinuedAsNew`.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// for instance in client.list_instances_by_status("Failed").await? {
    ///     let info = client.get_instance_info(&instance).await?;
    ///     println!("{instance}: {}", info.output.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ClientError> {
        Ok(self.admin()?.list_instances_by_status(status).await?)
    }

    /// Name, version, status and times of an instance.
    ///
    /// # Errors
    /// If the instance is unknown, or the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// let info = client.get_instance_info("order-42").await?;
    /// println!("{} {} is {}", info.orchestration_name, info.orchestration_version, info.status);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ClientError> {
        Ok(self.admin()?.get_instance_info(instance).await?)
    }

    /// Status, size and times of an execution.
    ///
    /// # Errors
    /// If the execution is unknown, or the store failed or has no management side.
    pub async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ClientError> {
        Ok(self.admin()?.get_execution_info(instance, execution_id).await?)
    }

    /// The executions of an instance, ascending; empty for an unknown instance.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    pub async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ClientError> {
        Ok(self.admin()?.list_executions(instance).await?)
    }

    /// The events of an execution; empty for an unknown one.
    ///
    /// # Errors
    /// If an event is damaged, or the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// for execution in client.list_executions("order-42").await? {
    ///     for event in client.read_execution_history("order-42", execution).await? {
    ///         println!("{execution}.{}: {:?}", event.event_id, event.kind);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read_execution_history(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ClientError> {
        Ok(self.admin()?.read_history_with_execution_id(instance, execution_id).await?)
    }

    /// Totals of the whole store.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    pub async fn get_system_metrics(&self) -> Result<SystemMetrics, ClientError> {
        Ok(self.admin()?.get_system_metrics().await?)
    }

    /// The number of queued messages and activities, without those that are locked.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// let depths = client.get_queue_depths().await?;
    /// println!("{} messages and {} activities wait", depths.orchestrator_queue, depths.worker_queue);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_queue_depths(&self) -> Result<QueueDepths, ClientError> {
        Ok(self.admin()?.get_queue_depths().await?)
    }

    /// An instance and all its descendants; only itself if it is unknown.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// let tree = client.get_instance_tree("order-42").await?;
    /// println!("{} with {} descendants", tree.root_id, tree.size() - 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ClientError> {
        Ok(self.admin()?.get_instance_tree(instance_id).await?)
    }

    /// Deletes a root instance with all its descendants. `force` deletes running ones, too; their turns and activities
    /// under way cannot be committed any more.
    ///
    /// # Errors
    /// [`ClientError::InstanceNotFound`], [`ClientError::InstanceStillRunning`] without `force`,
    /// [`ClientError::CannotDeleteSubOrchestration`] for a child; or if the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use everturn::ClientError;
    ///
    /// match client.delete_instance("order-42", false).await {
    ///     Ok(deleted) => println!("deleted {} instances", deleted.instances_deleted),
    ///     Err(ClientError::InstanceStillRunning { instance_id }) => println!("{instance_id} is still running"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_instance(
        &self,
        instance_id: &str,
        force: bool,
    ) -> Result<DeleteInstanceResult, ClientError> {
        let deleted = self
            .admin()?
            .delete_instance(instance_id, force)
            .await
            .map_err(|error| deletion_error(instance_id, error))?;
        log_deletion("deleted an instance", &deleted);
        Ok(deleted)
    }

    /// Deletes the root instances that match the filter and have ended, with their descendants. Running ones are skipped.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use everturn::InstanceFilter;
    ///
    /// let yesterday_ms = 1_800_000_000_000;
    /// let old = InstanceFilter { completed_before: Some(yesterday_ms), limit: Some(100), ..Default::default() };
    /// let deleted = client.delete_instance_bulk(old).await?;
    /// println!("deleted {} instances", deleted.instances_deleted);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ClientError> {
        let deleted = self.admin()?.delete_instance_bulk(filter).await?;
        log_deletion("deleted instances", &deleted);
        Ok(deleted)
    }

    /// Deletes old executions of an instance. The current one and running ones stay.
    ///
    /// # Errors
    /// If the instance is unknown, or the store failed or has no management side.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use everturn::PruneOptions;
    ///
    /// let last_ten = PruneOptions { keep_last: Some(10), ..Default::default() };
    /// client.prune_executions("cleaner", last_ten).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ClientError> {
        let pruned = self.admin()?.prune_executions(instance_id, options).await?;
        log_pruning("pruned an instance", &pruned);
        Ok(pruned)
    }

    /// Deletes old executions of every instance that matches the filter, running or not.
    ///
    /// # Errors
    /// If the store failed or has no management side.
    pub async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ClientError> {
        let pruned = self.admin()?.prune_executions_bulk(filter, options).await?;
        log_pruning("pruned instances", &pruned);
        Ok(pruned)
    }

    fn admin(&self) -> Result<&dyn ProviderAdmin, ClientError> {
        self.store.admin().ok_or(ClientError::ManagementNotAvailable)
    }
}

/// The client's error for a failed deletion. The providers of this project set an error kind. Other plain providers have
/// only the text of the error, so for them, and only for them, the text decides.
fn deletion_error(instance_id: &str, error: ProviderError) -> ClientError {
    let instance_id = instance_id.to_owned();
    let text = error.to_string().to_lowercase();
    let by_kind = [error.is_not_found(), error.is_still_running(), error.is_sub_orchestration()];
    let by_text = [
        text.contains("not found"),
        text.contains("still running"),
        text.contains("sub-orchestration") || text.contains("delete the root"),
    ];
    match if by_kind.contains(&true) { by_kind } else { by_text } {
        [true, _, _] => ClientError::InstanceNotFound { instance_id },
        [_, true, _] => ClientError::InstanceStillRunning { instance_id },
        [_, _, true] => ClientError::CannotDeleteSubOrchestration { instance_id },
        [false, false, false] => ClientError::Provider(error),
    }
}

fn log_deletion(what: &'static str, deleted: &DeleteInstanceResult) {
    tracing::info!(
        target: "everturn::runtime",
        instances_deleted = deleted.instances_deleted,
        executions_deleted = deleted.executions_deleted,
        events_deleted = deleted.events_deleted,
        queue_messages_deleted = deleted.queue_messages_deleted,
        "{what}"
    );
}

fn log_pruning(what: &'static str, pruned: &PruneResult) {
    tracing::info!(
        target: "everturn::runtime",
        instances_processed = pruned.instances_processed,
        executions_deleted = pruned.executions_deleted,
        events_deleted = pruned.events_deleted,
        "{what}"
    );
}
