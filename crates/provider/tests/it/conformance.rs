//! The storage contract, on the in-memory provider.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_conformance::{ProviderFactory, WorkerRowDamage};
use everturn_provider::{ManualClock, MemoryProvider, Provider};

struct MemoryFactory(Arc<ManualClock>);

impl MemoryFactory {
    fn new() -> Self {
        Self(Arc::new(ManualClock::new(1_700_000_000_000)))
    }
}

fn memory(provider: &Arc<dyn Provider>) -> &MemoryProvider {
    let provider: &dyn Any = &**provider;
    provider.downcast_ref().expect("the factory made a memory provider")
}

#[async_trait]
impl ProviderFactory for MemoryFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.0)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        Arc::new(MemoryProvider::with_clock(self.clock()))
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

everturn_conformance::provider_tests!(MemoryFactory::new());
