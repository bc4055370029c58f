//! The provider contract, on the in-memory provider.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use everturn_conformance::{PlainProvider, ProviderFactory, WorkerRowDamage};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{Clock, ManualClock, MemoryProvider, Provider};

struct MemoryFactory {
    clock: Arc<ManualClock>,
}

impl MemoryFactory {
    fn new() -> Self {
        Self { clock: Arc::new(ManualClock::new(1_700_000_000_000)) }
    }
}

/// The same provider with its plain verbs only: the suite reaches it through the adapter.
struct PlainFactory {
    whole: MemoryFactory,
    opened: OnceLock<Arc<dyn Provider>>,
}

impl PlainFactory {
    fn new() -> Self {
        Self { whole: MemoryFactory::new(), opened: OnceLock::new() }
    }

    /// The provider behind the bare one, whose rows the suite damages.
    fn opened(&self) -> &Arc<dyn Provider> {
        self.opened.get().expect("the provider is open")
    }
}

fn memory(provider: &Arc<dyn Provider>) -> &MemoryProvider {
    let provider: &dyn Any = &**provider;
    provider.downcast_ref().expect("the factory made a memory provider")
}

#[async_trait]
impl ProviderFactory for MemoryFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        Arc::new(MemoryProvider::with_clock(self.clock()))
    }

    async fn open_on_tokio_time(&self, clock: Arc<dyn Clock>) -> Option<Arc<dyn Provider>> {
        Some(Arc::new(MemoryProvider::with_clock(clock)))
    }

    async fn damage_event(
        &self,
        provider: &Arc<dyn Provider>,
        instance: &str,
        execution_id: u64,
        event_id: u64,
    ) {
        assert!(memory(provider).damage_event(instance, execution_id, event_id), "there is such an event");
    }

    async fn message_attempts(&self, provider: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        Some(memory(provider).message_attempts(instance))
    }

    async fn damage_orchestrator_rows(&self, provider: &Arc<dyn Provider>, instance: &str) -> bool {
        memory(provider).damage_messages(instance) > 0
    }

    async fn damage_worker_rows(
        &self,
        provider: &Arc<dyn Provider>,
        instance: &str,
        damage: WorkerRowDamage,
    ) -> bool {
        memory(provider).damage_work_items(instance, damage == WorkerRowDamage::ItemAndIdentity) > 0
    }
}

#[async_trait]
impl ProviderFactory for PlainFactory {
    fn clock(&self) -> Arc<ManualClock> {
        self.whole.clock()
    }

    async fn open(&self) -> Arc<dyn Provider> {
        let provider = self.whole.open().await;
        assert!(self.opened.set(Arc::clone(&provider)).is_ok(), "it is opened once");
        Arc::new(PlainProvider::over(provider))
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
        self.whole.damage_event(self.opened(), instance, execution_id, event_id).await;
    }

    async fn message_attempts(&self, _: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        self.whole.message_attempts(self.opened(), instance).await
    }

    async fn damage_orchestrator_rows(&self, _: &Arc<dyn Provider>, instance: &str) -> bool {
        self.whole.damage_orchestrator_rows(self.opened(), instance).await
    }

    async fn damage_worker_rows(
        &self,
        _: &Arc<dyn Provider>,
        instance: &str,
        damage: WorkerRowDamage,
    ) -> bool {
        self.whole.damage_worker_rows(self.opened(), instance, damage).await
    }
}

everturn_conformance::provider_tests!(MemoryFactory::new());
everturn_conformance::model_test!(MemoryFactory::new(), cases: 100);

mod through_the_adapter {
    use super::PlainFactory;

    everturn_conformance::provider_tests!(PlainFactory::new());
    everturn_conformance::model_test!(PlainFactory::new(), cases: 20);
}
