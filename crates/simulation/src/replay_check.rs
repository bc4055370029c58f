//! Replays the turns of a world on a node that keeps nothing in memory.
//!
//! The node is a real runtime. It gets the messages of each turn, in the same order, replays every history from its
//! beginning, and must write the same events, apart from their times.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn::providers::memory::MemoryProvider;
use everturn::providers::store::{
    Feature, FetchedTurn, FetchedWork, Receipt, Settlement, Store, StoreLayer, Submission, TurnCommit,
    TurnFetch, WorkFetch,
};
use everturn::providers::{ManualClock, Provider, ProviderError};
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{Event, RuntimeOptions};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::activities::orchestrations;
use crate::plan::Plan;
use crate::turn_trace::TracedTurn;
use crate::world::run_with_turns;

/// How long the replay may take, in the world's own time.
const REPLAY_MAX: Duration = Duration::from_secs(600);

/// What became of a world that was replayed.
#[derive(Debug, Default)]
pub struct ReplayCheck {
    /// How many turns it has.
    pub turns: u64,
    /// How many of them ran on an instance in memory.
    pub warm_turns: u64,
    /// How many events were written.
    pub events: u64,
    /// Where world and replay differ, or what went wrong.
    pub differences: Vec<String>,
}

/// Runs a plan, then replays its turns on a node that keeps nothing in memory.
pub fn check_replay(plan: &Plan) -> ReplayCheck {
    let (outcome, turns) = run_with_turns(plan);
    let mut check = ReplayCheck {
        turns: turns.len() as u64,
        warm_turns: turns.iter().filter(|turn| turn.was_warm).count() as u64,
        events: turns.iter().map(|turn| turn.events.len() as u64).sum(),
        differences: outcome.violations,
    };
    match tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => check.differences.extend(runtime.block_on(replay(turns))),
        Err(error) => check.differences.push(format!("no async runtime could be made: {error}")),
    }
    check
}

async fn replay(turns: Vec<TracedTurn>) -> Vec<String> {
    let store = Arc::new(ReplayStore::new(turns));
    let options = RuntimeOptions {
        orchestration_concurrency: 1,
        warm_instances_max: 0,
        max_attempts: u32::MAX,
        ..RuntimeOptions::default()
    };
    let handle = Arc::clone(&store) as Arc<dyn Provider>;
    let activities = ActivityRegistry::builder().build();
    let runtime = Runtime::start_with_options(handle, activities, orchestrations(), options).await;
    let ended = timeout(REPLAY_MAX, store.ended()).await;
    runtime.shutdown(None).await;
    let mut progress = store.progress();
    if ended.is_err() {
        let at = progress.turns.get(progress.next.saturating_sub(1));
        let stuck = format!("the replay got no further than turn {}: {at:?}", progress.next);
        progress.differences.push(stuck);
    }
    std::mem::take(&mut progress.differences)
}

/// A store that offers the traced turns, one after the other. What a turn sends is dropped: its effects are in the trace
/// already.
struct ReplayStore {
    inner: MemoryProvider,
    progress: Mutex<ReplayProgress>,
    /// A turn was committed.
    committed: Notify,
}

struct ReplayProgress {
    turns: Vec<TracedTurn>,
    /// How many were fetched.
    next: usize,
    /// Whether the last of them is not committed yet.
    is_running: bool,
    differences: Vec<String>,
}

impl ReplayStore {
    fn new(turns: Vec<TracedTurn>) -> Self {
        let progress = ReplayProgress { turns, next: 0, is_running: false, differences: Vec::new() };
        // Its time is earlier than any in the trace, whatever the date is today.
        let inner = MemoryProvider::with_clock(Arc::new(ManualClock::new(0)));
        Self { inner, progress: Mutex::new(progress), committed: Notify::new() }
    }

    fn progress(&self) -> MutexGuard<'_, ReplayProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the last turn is committed, or one differed.
    async fn ended(&self) {
        loop {
            let committed = self.committed.notified();
            {
                let progress = self.progress();
                let is_over = progress.next == progress.turns.len() && !progress.is_running;
                if is_over || !progress.differences.is_empty() {
                    return;
                }
            }
            committed.await;
        }
    }

    /// The next turn, if the last one is committed.
    fn take_next(&self) -> Option<TracedTurn> {
        let mut progress = self.progress();
        if progress.is_running {
            return None;
        }
        let turn = progress.turns.get(progress.next)?.clone();
        progress.next += 1;
        progress.is_running = true;
        Some(turn)
    }

    /// Compares what the replay writes with the trace.
    fn compare(&self, execution_id: u64, events: &[Event]) {
        let mut progress = self.progress();
        progress.is_running = false;
        let Some(number) = progress.next.checked_sub(1) else { return };
        let Some(turn) = progress.turns.get(number) else { return };
        let (traced, replayed) = (without_times(&turn.events), without_times(events));
        if (turn.execution_id, &traced) != (execution_id, &replayed) {
            let difference = format!(
                "turn {number} of {} x{} ({}) wrote\n{traced:#?}\nand its replay, in x{execution_id},\n{replayed:#?}",
                turn.instance,
                turn.execution_id,
                if turn.was_warm { "warm" } else { "cold" }
            );
            progress.differences.push(difference);
        }
    }
}

fn without_times(events: &[Event]) -> Vec<Event> {
    events.iter().map(Event::without_times).collect()
}

/// Only turns are replayed: nothing else is written.
fn not_replayed<T>(verb: &str) -> Result<T, ProviderError> {
    Err(ProviderError::permanent(verb, "is not part of a replay"))
}

impl StoreLayer for ReplayStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn supports(&self, _feature: Feature) -> bool {
        false
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let Some(turn) = self.take_next() else {
            // The next turn comes when the running one is committed.
            drop(timeout(fetch.poll_timeout, self.committed.notified()).await);
            return Ok(Vec::new());
        };
        for message in turn.messages {
            self.inner.submit(&Submission::of(message)).await?;
        }
        let mut one = TurnFetch::new(fetch.lock_timeout, Duration::ZERO);
        one.filter.clone_from(&fetch.filter);
        let mut fetched = self.inner.fetch_turns(&one).await?;
        // Messages are submitted without notes, because clients send none.
        for replayed in &mut fetched {
            replayed.notes.clone_from(&turn.notes);
        }
        Ok(fetched)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.compare(commit.execution_id, &commit.history_delta);
        let mut events_only = commit.clone();
        events_only.worker_items.clear();
        events_only.orchestrator_items.clear();
        events_only.cancelled_activities.clear();
        let answer = self.inner.commit_turn(&events_only).await;
        self.committed.notify_waiters();
        answer
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        sleep(fetch.poll_timeout).await;
        Ok(Vec::new())
    }

    async fn settle_work(&self, _settlement: &Settlement) -> Result<(), ProviderError> {
        not_replayed("settle_work")
    }

    async fn submit(&self, _submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        not_replayed("submit")
    }
}
