//! The conformance suite against a provider behind the metrics wrapper. The providers run it in their own crates.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use everturn::providers::instrumented::InstrumentedProvider;
use everturn::providers::memory::MemoryProvider;
use everturn::providers::{ManualClock, Provider};
use everturn::runtime::observability::{MetricsProvider, ObservabilityConfig};
use everturn_conformance::{ProviderFactory, WorkerRowDamage};
use everturn_provider::testing::TableAccess as _;

struct CountedFactory {
    clock: Arc<ManualClock>,
    /// The provider behind the wrapper, whose rows the suite damages.
    inner: OnceLock<Arc<MemoryProvider>>,
}

impl CountedFactory {
    fn new() -> Self {
        Self { clock: Arc::new(ManualClock::new(1_700_000_000_000)), inner: OnceLock::new() }
    }

    fn inner(&self) -> &MemoryProvider {
        self.inner.get().expect("the provider is open")
    }
}

#[async_trait]
impl ProviderFactory for CountedFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        let inner = Arc::new(MemoryProvider::with_clock(self.clock()));
        assert!(self.inner.set(Arc::clone(&inner)).is_ok(), "it is opened once");
        let metrics = MetricsProvider::new(&ObservabilityConfig::default()).unwrap();
        Arc::new(InstrumentedProvider::new(inner, Some(Arc::new(metrics))))
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
        assert!(self.inner().damage_event(instance, execution_id, event_id), "there is such an event");
    }

    async fn message_attempts(&self, _: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        Some(self.inner().message_attempts(instance))
    }

    async fn damage_orchestrator_rows(&self, _: &Arc<dyn Provider>, instance: &str) -> bool {
        self.inner().damage_messages(instance) > 0
    }

    async fn damage_worker_rows(
        &self,
        _: &Arc<dyn Provider>,
        instance: &str,
        damage: WorkerRowDamage,
    ) -> bool {
        self.inner().damage_work_items(instance, damage == WorkerRowDamage::ItemAndIdentity) > 0
    }
}

everturn_conformance::provider_tests!(CountedFactory::new());
