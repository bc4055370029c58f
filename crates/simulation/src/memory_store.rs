//! The store in memory: one provider for all processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{Clock, LockKind, Provider, ProviderError};

use everturn_provider::testing::TableAccess as _;

use crate::faulty_store::{BatchFate, BatchFates, FaultyStore, LostBatch, Unanswered};
use crate::plan::Plan;
use crate::random::SeededRandom;
use crate::store::{Opened, Standing, Store};
use crate::weather::Fault;

/// Of so many batches after it was decided, one is lost.
const BATCHES_TO_LOSS_MAX: u64 = 20;

/// A store in memory.
pub(crate) fn found(clock: Arc<dyn Clock>, plan: &Plan) -> Arc<dyn Store> {
    let luck = Arc::new(Luck::default());
    let provider = FaultyStore::in_memory(clock);
    let provider = match plan.weather.batch_ms {
        Some(batch_ms) => {
            let fates = Arc::clone(&luck) as Arc<dyn BatchFates>;
            provider.with_batches(Duration::from_millis(batch_ms), fates)
        }
        None => provider,
    };
    Arc::new(MemoryStore { provider: Arc::new(provider), luck })
}

struct MemoryStore {
    provider: Arc<FaultyStore>,
    luck: Arc<Luck>,
}

/// Which batches are lost, and what came of all of them.
#[derive(Debug, Default)]
struct Luck(Mutex<Losses>);

#[derive(Debug, Default)]
struct Losses {
    batches: u64,
    /// The numbers of batches that are to be lost.
    to_come: BTreeMap<u64, Unanswered>,
    /// Locks that were handed out in lost batches.
    void: Vec<String>,
    effects: Vec<(Fault, String)>,
    turns_in_one_batch: u64,
}

impl Luck {
    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchFates for Luck {
    fn next(&self) -> BatchFate {
        let mut losses = self.losses();
        losses.batches += 1;
        let number = losses.batches;
        losses.to_come.remove(&number).map_or(BatchFate::Committed, BatchFate::Lost)
    }

    fn committed(&self, whole_turns: usize) {
        self.losses().turns_in_one_batch += whole_turns as u64;
    }

    fn lost(&self, batch: &LostBatch) {
        let LostBatch { operations, early_tokens } = batch;
        let what = format!("a batch of {operations} calls, {} turns begun", early_tokens.len());
        let mut losses = self.losses();
        losses.effects.push((Fault::LostBatch, what));
        let turns = early_tokens.iter().map(|token| (Fault::LostTurn, format!("begun under {token}")));
        losses.effects.extend(turns);
        losses.void.extend(early_tokens.iter().cloned());
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn open(&self) -> Result<Arc<dyn Opened>, ProviderError> {
        Ok(Arc::new(OpenedMemory(Arc::clone(&self.provider))))
    }

    fn standing(&self, _kind: LockKind, token: &str) -> Standing {
        self.provider.memory().lock_left(token).map_or(Standing::Void, |left| Standing::HeldFor { left })
    }

    fn take_void(&self) -> Vec<String> {
        std::mem::take(&mut self.luck.losses().void)
    }

    fn rows_left(&self, instance: &str) -> usize {
        self.provider.memory().message_attempts(instance).len()
            + self.provider.memory().work_item_attempts(instance).len()
    }

    fn locked_instances(&self) -> Vec<String> {
        self.provider.memory().locked_instances()
    }

    fn turns_in_one_batch(&self) -> u64 {
        self.luck.losses().turns_in_one_batch
    }

    fn strike(&self, fault: Fault, chance: &mut SeededRandom) {
        if fault != Fault::LostBatch {
            return;
        }
        let mut losses = self.luck.losses();
        let first = losses.batches + chance.between(1, BATCHES_TO_LOSS_MAX);
        let unanswered = chance.pick([Unanswered::RunAgain, Unanswered::Fail]);
        for number in first..first + chance.pick([1, 1, 1, 3]) {
            losses.to_come.insert(number, unanswered);
        }
    }

    fn tick(&self, _chance: &mut SeededRandom) -> Vec<(Fault, String)> {
        std::mem::take(&mut self.luck.losses().effects)
    }

    fn heal(&self) {
        self.luck.losses().to_come.clear();
    }
}

/// Nothing of it is any process's own.
struct OpenedMemory(Arc<FaultyStore>);

#[async_trait]
impl Opened for OpenedMemory {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0) as Arc<dyn Provider>
    }

    async fn close(&self) {}

    async fn kill(&self) {}
}
