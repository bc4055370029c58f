//! The store in memory: one provider for all processes.

use std::sync::Arc;

use async_trait::async_trait;
use everturn::providers::memory::MemoryProvider;
use everturn::providers::{Clock, LockKind, Provider, ProviderError};

use crate::plan::Plan;
use crate::store::{Opened, Standing, Store};

/// A store in memory.
pub(crate) fn found(clock: Arc<dyn Clock>, _plan: &Plan) -> Arc<dyn Store> {
    Arc::new(MemoryStore(Arc::new(MemoryProvider::with_clock(clock))))
}

struct MemoryStore(Arc<MemoryProvider>);

#[async_trait]
impl Store for MemoryStore {
    async fn open(&self) -> Result<Arc<dyn Opened>, ProviderError> {
        Ok(Arc::new(OpenedMemory(Arc::clone(&self.0))))
    }

    fn standing(&self, _kind: LockKind, _token: &str) -> Standing {
        Standing::Held
    }

    fn rows_left(&self, instance: &str) -> usize {
        self.0.message_attempts(instance).len() + self.0.work_item_attempts(instance).len()
    }

    fn locked_instances(&self) -> Vec<String> {
        self.0.locked_instances()
    }
}

/// Nothing of it is any process's own.
struct OpenedMemory(Arc<MemoryProvider>);

#[async_trait]
impl Opened for OpenedMemory {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0) as Arc<dyn Provider>
    }

    async fn close(&self) {}

    async fn kill(&self) {}
}
