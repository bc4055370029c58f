//! The forwarding layer: one place that lists every verb for all wrappers.

use std::collections::HashMap;
use std::future::Future;

use async_trait::async_trait;
use everturn_core::{OrchestrationStatus, SystemStats};

use super::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, OrchestrationName, RawWrites, Receipt,
    Renewal, Renewed, Settlement, StepAnswer, StepCommit, StepDecline, Store, StoreIdentity, StoreLimits,
    StoredExecution, Submission, Sweep, Swept, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::watch::InstanceWatch;

/// What a verb answers.
type Answer<T> = Result<T, ProviderError>;

/// A store around another store.
///
/// Every verb is forwarded to [`inner`](Self::inner). A wrapper overrides the verbs that it changes, and
/// [`around`](Self::around) to do something before or after every other one. A type that implements this trait is a
/// [`Store`], and so a [`Provider`](crate::Provider) whose `as_store` returns the wrapper itself.
///
/// ```
/// use std::future::Future;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use everturn_provider::ProviderError;
/// use everturn_provider::store::{Store, StoreLayer};
///
/// /// Counts the calls that failed.
/// struct FailureCount {
///     inner: Arc<dyn Store>,
///     failures: AtomicUsize,
/// }
///
/// impl StoreLayer for FailureCount {
///     fn inner(&self) -> &dyn Store {
///         &*self.inner
///     }
///
///     async fn around<T: Send>(
///         &self,
///         _verb: &'static str,
///         call: impl Future<Output = Result<T, ProviderError>> + Send,
///     ) -> Result<T, ProviderError> {
///         let answer = call.await;
///         if answer.is_err() {
///             self.failures.fetch_add(1, Ordering::Relaxed);
///         }
///         answer
///     }
/// }
/// ```
pub trait StoreLayer: Send + Sync + 'static {
    /// The wrapped store.
    fn inner(&self) -> &dyn Store;

    /// Runs around every verb that is not overridden; `call` is the call of the wrapped store.
    fn around<T: Send>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Answer<T>> + Send,
    ) -> impl Future<Output = Answer<T>> + Send {
        let _ = verb;
        call
    }

    /// See [`Store::name`].
    fn name(&self) -> &str {
        self.inner().name()
    }

    /// See [`Store::version`].
    fn version(&self) -> &str {
        self.inner().version()
    }

    /// See [`Store::identity`].
    fn identity(&self) -> Option<StoreIdentity> {
        self.inner().identity()
    }

    /// See [`Store::supports`]. A wrapper fuses steps only if it says so: see [`commit_step`](Self::commit_step).
    fn supports(&self, feature: Feature) -> bool {
        feature != Feature::FusedSteps && self.inner().supports(feature)
    }

    /// See [`Store::limits`].
    fn limits(&self) -> StoreLimits {
        self.inner().limits()
    }

    /// See [`Store::now_ms`].
    fn now_ms(&self) -> u64 {
        self.inner().now_ms()
    }

    /// See [`Store::fetch_turns`].
    fn fetch_turns(&self, fetch: &TurnFetch) -> impl Future<Output = Answer<Vec<FetchedTurn>>> + Send {
        async move { self.around("fetch_turns", self.inner().fetch_turns(fetch)).await }
    }

    /// See [`Store::commit_turn`].
    fn commit_turn(&self, commit: &TurnCommit) -> impl Future<Output = Answer<()>> + Send {
        async move { self.around("commit_turn", self.inner().commit_turn(commit)).await }
    }

    /// See [`Store::commit_step`]. Not forwarded: a step bypasses [`commit_turn`](Self::commit_turn),
    /// [`settle_work`](Self::settle_work) and [`fetch_work`](Self::fetch_work), and so everything that a wrapper does there.
    /// One that does the same here overrides this and [`supports`](Self::supports).
    fn commit_step(&self, step: &StepCommit) -> impl Future<Output = Answer<StepAnswer>> + Send {
        let _ = step;
        async { Ok(StepAnswer::Declined(StepDecline::NotSupported)) }
    }

    /// See [`Store::abandon_turn`].
    fn abandon_turn(&self, abandon: &TurnAbandon) -> impl Future<Output = Answer<()>> + Send {
        async move { self.around("abandon_turn", self.inner().abandon_turn(abandon)).await }
    }

    /// See [`Store::fetch_work`].
    fn fetch_work(&self, fetch: &WorkFetch) -> impl Future<Output = Answer<Vec<FetchedWork>>> + Send {
        async move { self.around("fetch_work", self.inner().fetch_work(fetch)).await }
    }

    /// See [`Store::settle_work`].
    fn settle_work(&self, settlement: &Settlement) -> impl Future<Output = Answer<()>> + Send {
        async move { self.around("settle_work", self.inner().settle_work(settlement)).await }
    }

    /// See [`Store::renew`].
    fn renew(&self, renewal: &Renewal) -> impl Future<Output = Answer<Renewed>> + Send {
        async move { self.around("renew", self.inner().renew(renewal)).await }
    }

    /// See [`Store::submit`].
    fn submit(&self, submission: &Submission) -> impl Future<Output = Answer<Vec<Receipt>>> + Send {
        async move { self.around("submit", self.inner().submit(submission)).await }
    }

    /// See [`Store::sweep`].
    fn sweep(&self, sweep: &Sweep) -> impl Future<Output = Answer<Swept>> + Send {
        async move { self.around("sweep", self.inner().sweep(sweep)).await }
    }

    /// See [`Store::read_status`].
    fn read_status(&self, instance: &str) -> impl Future<Output = Answer<OrchestrationStatus>> + Send {
        async move { self.around("read_status", self.inner().read_status(instance)).await }
    }

    /// See [`Store::read_execution`].
    fn read_execution(&self, read: &ExecutionRead) -> impl Future<Output = Answer<StoredExecution>> + Send {
        async move { self.around("read_execution", self.inner().read_execution(read)).await }
    }

    /// See [`Store::read_custom_status`].
    fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> impl Future<Output = Answer<Option<CustomStatus>>> + Send {
        async move {
            self.around("read_custom_status", self.inner().read_custom_status(instance, last_seen_version))
                .await
        }
    }

    /// See [`Store::read_kv_value`].
    fn read_kv_value(
        &self,
        instance: &str,
        key: &str,
    ) -> impl Future<Output = Answer<Option<String>>> + Send {
        async move { self.around("read_kv_value", self.inner().read_kv_value(instance, key)).await }
    }

    /// See [`Store::read_kv_values`].
    fn read_kv_values(&self, instance: &str) -> impl Future<Output = Answer<HashMap<String, String>>> + Send {
        async move { self.around("read_kv_values", self.inner().read_kv_values(instance)).await }
    }

    /// See [`Store::read_stats`].
    fn read_stats(&self, instance: &str) -> impl Future<Output = Answer<Option<SystemStats>>> + Send {
        async move { self.around("read_stats", self.inner().read_stats(instance)).await }
    }

    /// See [`Store::read_orchestration_name`].
    fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> impl Future<Output = Answer<Option<OrchestrationName>>> + Send {
        async move { self.around("read_orchestration_name", self.inner().read_orchestration_name(instance)).await }
    }

    /// See [`Store::watch`].
    fn watch(&self, instance: &str) -> InstanceWatch {
        self.inner().watch(instance)
    }

    /// See [`Store::admin`].
    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        self.inner().admin()
    }

    /// See [`Store::raw_writes`].
    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        self.inner().raw_writes()
    }
}

#[async_trait]
impl<L: StoreLayer> Store for L {
    fn name(&self) -> &str {
        StoreLayer::name(self)
    }

    fn version(&self) -> &str {
        StoreLayer::version(self)
    }

    fn identity(&self) -> Option<StoreIdentity> {
        StoreLayer::identity(self)
    }

    fn supports(&self, feature: Feature) -> bool {
        StoreLayer::supports(self, feature)
    }

    fn limits(&self) -> StoreLimits {
        StoreLayer::limits(self)
    }

    fn now_ms(&self) -> u64 {
        StoreLayer::now_ms(self)
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Answer<Vec<FetchedTurn>> {
        StoreLayer::fetch_turns(self, fetch).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Answer<()> {
        StoreLayer::commit_turn(self, commit).await
    }

    async fn commit_step(&self, step: &StepCommit) -> Answer<StepAnswer> {
        StoreLayer::commit_step(self, step).await
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Answer<()> {
        StoreLayer::abandon_turn(self, abandon).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Answer<Vec<FetchedWork>> {
        StoreLayer::fetch_work(self, fetch).await
    }

    async fn settle_work(&self, settlement: &Settlement) -> Answer<()> {
        StoreLayer::settle_work(self, settlement).await
    }

    async fn renew(&self, renewal: &Renewal) -> Answer<Renewed> {
        StoreLayer::renew(self, renewal).await
    }

    async fn submit(&self, submission: &Submission) -> Answer<Vec<Receipt>> {
        StoreLayer::submit(self, submission).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Answer<Swept> {
        StoreLayer::sweep(self, sweep).await
    }

    async fn read_status(&self, instance: &str) -> Answer<OrchestrationStatus> {
        StoreLayer::read_status(self, instance).await
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Answer<StoredExecution> {
        StoreLayer::read_execution(self, read).await
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Answer<Option<CustomStatus>> {
        StoreLayer::read_custom_status(self, instance, last_seen_version).await
    }

    async fn read_kv_value(&self, instance: &str, key: &str) -> Answer<Option<String>> {
        StoreLayer::read_kv_value(self, instance, key).await
    }

    async fn read_kv_values(&self, instance: &str) -> Answer<HashMap<String, String>> {
        StoreLayer::read_kv_values(self, instance).await
    }

    async fn read_stats(&self, instance: &str) -> Answer<Option<SystemStats>> {
        StoreLayer::read_stats(self, instance).await
    }

    async fn read_orchestration_name(&self, instance: &str) -> Answer<Option<OrchestrationName>> {
        StoreLayer::read_orchestration_name(self, instance).await
    }

    fn watch(&self, instance: &str) -> InstanceWatch {
        StoreLayer::watch(self, instance)
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        StoreLayer::admin(self)
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        StoreLayer::raw_writes(self)
    }
}
