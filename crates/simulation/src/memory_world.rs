//! A simulated world in memory: one store for all processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::store::{LockKind, Store};
use everturn::providers::{Clock, ProviderError};
use everturn_provider::testing::TableAccess as _;

use crate::fault_plan::Fault;
use crate::faulty_store::{BatchFate, BatchFates, FaultyStore, LostBatch, Unanswered};
use crate::plan::Plan;
use crate::random::SeededRandom;
use crate::world_store::{LockState, OpenedStore, WorldStore};

/// A loss strikes one of so many batches after it was drawn.
const BATCHES_TO_LOSS_MAX: u64 = 20;

/// Creates a store in memory.
pub(crate) fn create(clock: Arc<dyn Clock>, plan: &Plan) -> Arc<dyn WorldStore> {
    let losses = Arc::new(Losses::default());
    let store = match plan.faults.batch_ms {
        Some(batch_ms) => {
            let fates = Arc::clone(&losses) as Arc<dyn BatchFates>;
            FaultyStore::in_batches(clock, Duration::from_millis(batch_ms), fates)
        }
        None => FaultyStore::in_memory(clock),
    };
    Arc::new(MemoryWorld { store: Arc::new(store), losses })
}

struct MemoryWorld {
    store: Arc<FaultyStore>,
    losses: Arc<Losses>,
}

/// Which batches are lost, and what came of all of them.
#[derive(Debug, Default)]
struct Losses(Mutex<LossRecord>);

#[derive(Debug, Default)]
struct LossRecord {
    batches: u64,
    /// The numbers of batches that are to be lost.
    to_come: BTreeMap<u64, Unanswered>,
    /// Locks that were given in lost batches.
    void_locks: Vec<String>,
    effects: Vec<(Fault, String)>,
    turns_in_one_batch: u64,
}

impl Losses {
    fn record(&self) -> MutexGuard<'_, LossRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchFates for Losses {
    fn next(&self) -> BatchFate {
        let mut record = self.record();
        record.batches += 1;
        let number = record.batches;
        record.to_come.remove(&number).map_or(BatchFate::Committed, BatchFate::Lost)
    }

    fn committed(&self, whole_turns: usize) {
        self.record().turns_in_one_batch += whole_turns as u64;
    }

    fn lost(&self, batch: &LostBatch) {
        let LostBatch { operations, early_tokens } = batch;
        let what = format!("a batch of {operations} calls, {} turns begun", early_tokens.len());
        let mut record = self.record();
        record.effects.push((Fault::LostBatch, what));
        let turns = early_tokens.iter().map(|token| (Fault::LostTurn, format!("begun under {token}")));
        record.effects.extend(turns);
        record.void_locks.extend(early_tokens.iter().cloned());
    }
}

#[async_trait]
impl WorldStore for MemoryWorld {
    async fn open(&self) -> Result<Arc<dyn OpenedStore>, ProviderError> {
        Ok(Arc::new(OpenedMemory(Arc::clone(&self.store))))
    }

    fn lock_state(&self, _kind: LockKind, token: &str) -> LockState {
        let left = self.store.memory().and_then(|memory| memory.lock_left(token));
        left.map_or(LockState::Void, |left| LockState::HeldFor { left })
    }

    fn take_void_locks(&self) -> Vec<String> {
        std::mem::take(&mut self.losses.record().void_locks)
    }

    fn rows_left(&self, instance: &str) -> usize {
        self.store.memory().map_or(0, |memory| {
            memory.message_attempts(instance).len() + memory.work_item_attempts(instance).len()
        })
    }

    fn locked_instances(&self) -> Vec<String> {
        self.store.memory().map_or_else(Vec::new, |memory| memory.locked_instances())
    }

    fn turns_in_one_batch(&self) -> u64 {
        self.losses.record().turns_in_one_batch
    }

    fn strike(&self, fault: Fault, random: &mut SeededRandom) {
        if fault != Fault::LostBatch {
            return;
        }
        let mut record = self.losses.record();
        let first = record.batches + random.between(1, BATCHES_TO_LOSS_MAX);
        let unanswered = random.pick([Unanswered::RunAgain, Unanswered::Fail]);
        for number in first..first + random.pick([1, 1, 1, 3]) {
            record.to_come.insert(number, unanswered);
        }
    }

    fn tick(&self, _random: &mut SeededRandom) -> Vec<(Fault, String)> {
        std::mem::take(&mut self.losses.record().effects)
    }

    fn heal(&self) {
        self.losses.record().to_come.clear();
    }
}

/// All processes share it.
struct OpenedMemory(Arc<FaultyStore>);

#[async_trait]
impl OpenedStore for OpenedMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }

    async fn close(&self) {}

    async fn kill(&self) {}
}
