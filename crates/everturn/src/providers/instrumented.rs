//! A store layer that counts and times every verb.

use std::future::Future;
use std::sync::Arc;

use everturn_provider::store::{Feature, StepAnswer, StepCommit, Store, StoreLayer};
use everturn_provider::{Provider, ProviderError, store_of};
use tokio::time::Instant;

use crate::runtime::observability::MetricsProvider;

/// Counts and times every verb of [`Store`] that is called on a provider. The runtime wraps its store with it.
///
/// The label `operation` of its metrics is the name of the verb, such as `commit_turn`. A call that is dropped before it
/// is answered is not recorded.
///
/// ```
/// use std::sync::Arc;
/// use everturn::providers::Provider;
/// use everturn::providers::instrumented::InstrumentedProvider;
/// use everturn::runtime::observability::{MetricsProvider, ObservabilityConfig};
///
/// fn counted(store: Arc<dyn Provider>) -> Result<Arc<dyn Provider>, String> {
///     let metrics = Arc::new(MetricsProvider::new(&ObservabilityConfig::default())?);
///     Ok(Arc::new(InstrumentedProvider::new(store, Some(metrics))))
/// }
/// ```
pub struct InstrumentedProvider {
    inner: Arc<dyn Store>,
    metrics: Option<Arc<MetricsProvider>>,
}

impl InstrumentedProvider {
    /// Counts the calls of `inner`. Without `metrics` it only forwards them.
    pub fn new(inner: Arc<dyn Provider>, metrics: Option<Arc<MetricsProvider>>) -> Self {
        Self { inner: store_of(inner), metrics }
    }
}

impl StoreLayer for InstrumentedProvider {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T: Send>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        let Some(metrics) = &self.metrics else { return call.await };
        // Tokio's clock, so that durations are exact in a test that pauses time.
        let began = Instant::now();
        let answer = call.await;
        metrics.record_provider_operation(verb, answer.is_ok(), began.elapsed());
        // A lost lock and a history that moved on are how a store answers a worker that was overtaken, for example when
        // its activity was cancelled. That is no error of the store.
        if let Err(error) = &answer
            && !error.is_lock_lost()
            && !error.is_history_moved()
        {
            metrics.record_provider_error(verb, error);
        }
        answer
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        self.around("commit_step", self.inner.commit_step(step)).await
    }
}
