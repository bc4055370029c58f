//! A story told again to a node that keeps nothing in memory.
//!
//! The node is a real runtime. It is given what each turn of the story was given, in the same order, replays every
//! history from its beginning, and must write the same, time stamps apart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::memory::MemoryProvider;
use everturn::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, Provider, ProviderError,
    ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem,
};
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{Event, EventKind, RuntimeOptions, SystemStats};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::activities::orchestrations;
use crate::plan::Plan;
use crate::story::ToldTurn;
use crate::world::run_told;

/// How long the second telling may take, in the world's own time.
const PATIENCE: Duration = Duration::from_secs(600);

/// What became of a story that was told twice.
#[derive(Debug, Default)]
pub struct Retelling {
    /// How many turns it has.
    pub turns: u64,
    /// How many of them an instance took that was in memory.
    pub warm_turns: u64,
    /// How many events were written.
    pub events: u64,
    /// Where the two tellings differ, or what went wrong.
    pub differences: Vec<String>,
}

/// Lives through a plan, then tells what happened to a node that keeps nothing in memory.
pub fn retell(plan: &Plan) -> Retelling {
    let (outcome, turns) = run_told(plan);
    let mut retelling = Retelling {
        turns: turns.len() as u64,
        warm_turns: turns.iter().filter(|turn| turn.was_warm).count() as u64,
        events: turns.iter().map(|turn| turn.events.len() as u64).sum(),
        differences: outcome.violations,
    };
    match tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(world) => retelling.differences.extend(world.block_on(tell_again(turns))),
        Err(error) => retelling.differences.push(format!("no world could be made: {error}")),
    }
    retelling
}

async fn tell_again(turns: Vec<ToldTurn>) -> Vec<String> {
    let store = Arc::new(ToldStore::new(turns));
    let options = RuntimeOptions {
        orchestration_concurrency: 1,
        warm_instances_max: 0,
        max_attempts: u32::MAX,
        ..RuntimeOptions::default()
    };
    let handle = Arc::clone(&store) as Arc<dyn Provider>;
    let activities = ActivityRegistry::builder().build();
    let runtime = Runtime::start_with_options(handle, activities, orchestrations(), options).await;
    let ended = timeout(PATIENCE, store.ended()).await;
    runtime.shutdown(None).await;
    let mut told = store.told();
    if ended.is_err() {
        let at = told.turns.get(told.next.saturating_sub(1));
        let stuck = format!("the second telling got no further than turn {}: {at:?}", told.next);
        told.differences.push(stuck);
    }
    std::mem::take(&mut told.differences)
}

/// A store that hands out the turns of a story, one after the other. What a turn sends is dropped: whatever comes of it
/// is in the story already.
struct ToldStore {
    inner: MemoryProvider,
    told: Mutex<Told>,
    /// A turn was committed.
    committed: Notify,
}

struct Told {
    turns: Vec<ToldTurn>,
    /// How many were handed out.
    next: usize,
    /// Whether the last of them is not committed yet.
    is_in_hand: bool,
    differences: Vec<String>,
}

impl ToldStore {
    fn new(turns: Vec<ToldTurn>) -> Self {
        let told = Told { turns, next: 0, is_in_hand: false, differences: Vec::new() };
        Self { inner: MemoryProvider::default(), told: Mutex::new(told), committed: Notify::new() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the last turn is committed, or one differed.
    async fn ended(&self) {
        loop {
            let committed = self.committed.notified();
            {
                let told = self.told();
                let is_over = told.next == told.turns.len() && !told.is_in_hand;
                if is_over || !told.differences.is_empty() {
                    return;
                }
            }
            committed.await;
        }
    }

    /// The next turn to hand out, if the last one is committed.
    fn take_next(&self) -> Option<ToldTurn> {
        let mut told = self.told();
        if told.is_in_hand {
            return None;
        }
        let turn = told.turns.get(told.next)?.clone();
        told.next += 1;
        told.is_in_hand = true;
        Some(turn)
    }

    /// Compares what the second telling writes with the first.
    fn compare(&self, execution_id: u64, events: &[Event]) {
        let mut told = self.told();
        told.is_in_hand = false;
        let Some(number) = told.next.checked_sub(1) else { return };
        let Some(turn) = told.turns.get(number) else { return };
        let (first, second) = (without_times(&turn.events), without_times(events));
        if (turn.execution_id, &first) != (execution_id, &second) {
            let difference = format!(
                "turn {number} of {} x{} ({}) wrote\n{first:#?}\nand told again, in x{execution_id},\n{second:#?}",
                turn.instance,
                turn.execution_id,
                if turn.was_warm { "warm" } else { "cold" }
            );
            told.differences.push(difference);
        }
    }
}

/// Events without the times at which they were written, or that follow from them.
fn without_times(events: &[Event]) -> Vec<(u64, Option<u64>, EventKind)> {
    let stripped = events.iter().map(|event| {
        let mut kind = event.kind.clone();
        match &mut kind {
            EventKind::TimerCreated { fire_at_ms } => *fire_at_ms = 0,
            EventKind::KeyValueSet { last_updated_at_ms, .. } => *last_updated_at_ms = 0,
            _ => {}
        }
        (event.event_id, event.source_event_id, kind)
    });
    stripped.collect()
}

/// Only turns are told: nobody else writes.
fn not_told<T>(operation: &str) -> Result<T, ProviderError> {
    Err(ProviderError::permanent(operation, "is no part of the story"))
}

#[async_trait]
impl Provider for ToldStore {
    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let Some(turn) = self.take_next() else {
            // There may be a turn to hand out when the one in hand is committed.
            drop(timeout(poll_timeout, self.committed.notified()).await);
            return Ok(None);
        };
        for message in turn.messages {
            self.inner.enqueue_for_orchestrator(message, None).await?;
        }
        self.inner.fetch_orchestration_item(lock_timeout, Duration::ZERO, filter).await
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        _worker_items: Vec<WorkItem>,
        _orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        _cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        self.compare(execution_id, &history_delta);
        let nothing = (Vec::new(), Vec::new(), Vec::new());
        let answer = self
            .inner
            .ack_orchestration_item(
                lock_token,
                execution_id,
                history_delta,
                nothing.0,
                nothing.1,
                metadata,
                nothing.2,
            )
            .await;
        self.committed.notify_waiters();
        answer
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.inner.abandon_orchestration_item(lock_token, delay, ignore_attempt).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.inner.read(instance).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_with_execution(instance, execution_id).await
    }

    async fn append_with_execution(&self, _: &str, _: u64, _: Vec<Event>) -> Result<(), ProviderError> {
        not_told("append_with_execution")
    }

    async fn enqueue_for_worker(&self, _: WorkItem) -> Result<(), ProviderError> {
        not_told("enqueue_for_worker")
    }

    async fn fetch_work_item(
        &self,
        _: Duration,
        poll_timeout: Duration,
        _: Option<&SessionFetchConfig>,
        _: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        sleep(poll_timeout).await;
        Ok(None)
    }

    async fn ack_work_item(&self, _: &str, _: Option<WorkItem>) -> Result<(), ProviderError> {
        not_told("ack_work_item")
    }

    async fn renew_work_item_lock(&self, _: &str, _: Duration) -> Result<(), ProviderError> {
        not_told("renew_work_item_lock")
    }

    async fn renew_session_lock(&self, _: &[&str], _: Duration, _: Duration) -> Result<usize, ProviderError> {
        Ok(0)
    }

    async fn cleanup_orphaned_sessions(&self, _: Duration) -> Result<usize, ProviderError> {
        Ok(0)
    }

    async fn abandon_work_item(&self, _: &str, _: Option<Duration>, _: bool) -> Result<(), ProviderError> {
        not_told("abandon_work_item")
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.inner.renew_orchestration_item_lock(token, extend_for).await
    }

    async fn enqueue_for_orchestrator(&self, _: WorkItem, _: Option<Duration>) -> Result<(), ProviderError> {
        not_told("enqueue_for_orchestrator")
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.inner.get_custom_status(instance, last_seen_version).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.inner.get_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.inner.get_kv_all_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.inner.get_instance_stats(instance).await
    }
}
