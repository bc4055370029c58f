//! The provider contract, on a store in memory that commits in batches.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_conformance::{ProviderFactory, WorkerRowDamage};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{ManualClock, MemoryProvider, Provider};
use everturn_simulation::{FaultyStore, NoLoss};

struct BatchFactory {
    clock: Arc<ManualClock>,
    window: Duration,
}

impl BatchFactory {
    fn new(window: Duration) -> Self {
        Self { clock: Arc::new(ManualClock::new(1_700_000_000_000)), window }
    }
}

fn memory(provider: &Arc<dyn Provider>) -> &MemoryProvider {
    let provider: &dyn Any = &**provider;
    provider
        .downcast_ref::<FaultyStore>()
        .expect("the factory made a faulty store")
        .memory()
        .expect("in memory")
}

#[async_trait]
impl ProviderFactory for BatchFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        Arc::new(FaultyStore::in_batches(self.clock(), self.window, Arc::new(NoLoss)))
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

everturn_conformance::provider_tests!(BatchFactory::new(Duration::from_millis(1)));
everturn_conformance::model_test!(BatchFactory::new(Duration::ZERO), cases: 100);
