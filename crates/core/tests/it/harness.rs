//! Runs orchestration code turn by turn.
//!
//! Every turn is taken by several executions at once: one that was kept in memory since the first turn, one that is
//! replayed from the history so far, and all those that were replayed before an earlier turn and kept since. They must
//! decide the same, to the last byte.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;
use everturn_core::turn::{Execution, ExecutionIdentity, Turn, TurnClock, TurnOutcome};
use everturn_core::{
    Event, EventKind, KvEntry, OrchestrationContext, OrchestrationHandler, OrchestrationHandlerRef, WorkItem,
};

/// The instance of every harness.
pub const INSTANCE: &str = "order";

/// The time of the start event.
pub const STARTED_MS: u64 = 7;

/// What a handler returns.
pub type HandlerResult = Result<String, String>;

struct Code<F>(F);

#[async_trait]
impl<F, Fut> OrchestrationHandler for Code<F>
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> HandlerResult {
        (self.0)(ctx, input).await
    }
}

/// An async closure as a handler.
pub fn handler<F, Fut>(code: F) -> OrchestrationHandlerRef
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    Arc::new(Code(code))
}

/// The store's time does not move during a turn; every stamp is one millisecond later than the one before.
pub struct HarnessClock {
    store_ms: u64,
    stamp_ms: Cell<u64>,
}

impl HarnessClock {
    /// The time of the n-th turn, counted from 1: n million milliseconds.
    pub fn of_turn(turn: u64) -> Self {
        Self { store_ms: turn * 1_000_000, stamp_ms: Cell::new(turn * 1_000_000) }
    }
}

impl TurnClock for HarnessClock {
    fn store_ms(&self) -> u64 {
        self.store_ms
    }

    fn stamp_ms(&self) -> u64 {
        self.stamp_ms.replace(self.stamp_ms.get() + 1)
    }
}

/// Which executions take each turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Warm and cold ones, compared with each other.
    WarmAndCold,
    /// Only the one kept since the first turn; for code that counts its own polls.
    Warm,
    /// Only a newly replayed one each turn; for code that counts its own polls.
    Cold,
}

pub struct Harness {
    handler: OrchestrationHandlerRef,
    identity: ExecutionIdentity,
    start: Event,
    kv: HashMap<String, KvEntry>,
    payload_bytes_max: usize,
    compared: Compared,
    /// Whether the harness starts the instance.
    fresh: bool,
    history: Vec<Event>,
    kept: Vec<Execution>,
    turns: u64,
}

impl Harness {
    pub fn new<F, Fut>(code: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        Self {
            handler: handler(code),
            identity: identity(1),
            start: started(1, "in"),
            kv: HashMap::new(),
            payload_bytes_max: DEFAULT_PAYLOAD_BYTES_MAX,
            compared: Compared::WarmAndCold,
            fresh: true,
            history: Vec::new(),
            kept: Vec::new(),
            turns: 0,
        }
    }

    /// An instance that already has a history; it is always replayed.
    pub fn resumed<F, Fut>(history: Vec<Event>, code: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        let mut harness = Self::new(code);
        harness.history = history;
        harness.fresh = false;
        harness.compared = Compared::Cold;
        harness
    }

    pub fn warm_only(mut self) -> Self {
        self.compared = Compared::Warm;
        self
    }

    pub fn cold_only(mut self) -> Self {
        self.compared = Compared::Cold;
        self
    }

    pub fn execution(mut self, execution_id: u64) -> Self {
        self.identity.execution_id = execution_id;
        self.start.execution_id = execution_id;
        self
    }

    pub fn payload_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes;
        self
    }

    pub fn kv<const N: usize>(mut self, entries: [(&str, &str, u64); N]) -> Self {
        self.kv = entries
            .into_iter()
            .map(|(key, value, at)| {
                (key.to_owned(), KvEntry { value: value.to_owned(), last_updated_at_ms: at })
            })
            .collect();
        self
    }

    pub fn kv_snapshot(mut self, kv: HashMap<String, KvEntry>) -> Self {
        self.kv = kv;
        self
    }

    pub fn start_event(mut self, change: impl FnOnce(&mut EventKind)) -> Self {
        change(&mut self.start.kind);
        self
    }

    pub fn child_of(self, parent: &str, id: u64, execution: Option<u64>) -> Self {
        let parent = parent.to_owned();
        self.start_event(|kind| {
            if let EventKind::OrchestrationStarted {
                parent_instance, parent_id, parent_execution_id, ..
            } = kind
            {
                *parent_instance = Some(parent);
                *parent_id = Some(id);
                *parent_execution_id = execution;
            }
        })
    }

    /// Deploys new code for the same instance; executions in memory are dropped.
    pub fn deploy<F, Fut>(&mut self, code: F)
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.handler = handler(code);
        self.kept.clear();
    }

    /// Changes the payload limit, as a change of the provider's configuration does.
    pub fn change_payload_max(&mut self, bytes: usize) {
        self.payload_bytes_max = bytes;
        self.kept.clear();
    }

    /// Takes a turn with all executions and checks that they agree.
    pub fn turn<const N: usize>(&mut self, messages: [WorkItem; N]) -> Turn {
        self.turn_with(messages.to_vec())
    }

    pub fn turn_with(&mut self, messages: Vec<WorkItem>) -> Turn {
        self.turns += 1;
        match self.compared {
            Compared::WarmAndCold => self.kept.push(self.replayed()),
            Compared::Warm if self.kept.is_empty() => self.kept.push(self.replayed()),
            Compared::Warm => {}
            Compared::Cold => self.kept = vec![self.replayed()],
        }
        let turns: Vec<Turn> = self
            .kept
            .iter_mut()
            .map(|execution| execution.take_turn(messages.clone(), &HarnessClock::of_turn(self.turns)))
            .collect();
        for (index, turn) in turns.iter().enumerate() {
            assert_eq!(
                turn,
                &turns[0],
                "turn {}: the execution replayed before turn {} disagrees with the one kept since the first turn",
                self.turns,
                index + 1
            );
        }
        let turn = turns.into_iter().next().unwrap();
        for execution in &self.kept {
            if turn.outcome == TurnOutcome::Continue && !turn.history_delta.is_empty() {
                assert_eq!(execution.last_event_id(), turn.history_delta.last().unwrap().event_id);
            }
        }
        self.history.extend(turn.history_delta.iter().cloned());
        if turn.outcome != TurnOutcome::Continue {
            self.kept.clear();
        }
        turn
    }

    /// A new execution from the history so far.
    pub fn replayed(&self) -> Execution {
        let (handler, identity, kv) = (Arc::clone(&self.handler), self.identity.clone(), self.kv.clone());
        if self.fresh && self.history.is_empty() {
            Execution::begin(handler, identity, self.start.clone(), kv, self.payload_bytes_max)
        } else {
            Execution::replay(handler, identity, self.history.clone(), kv, self.payload_bytes_max)
        }
    }

    pub fn history(&self) -> &[Event] {
        &self.history
    }

    /// The whole history, one line per event.
    pub fn summary(&self) -> Vec<String> {
        summarize(&self.history)
    }
}

/// Runs code that needs one turn only; its outcome.
pub fn outcome_of<F, Fut>(code: F) -> TurnOutcome
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    Harness::new(code).turn([]).outcome
}

pub fn identity(execution_id: u64) -> ExecutionIdentity {
    ExecutionIdentity {
        instance: INSTANCE.to_owned(),
        execution_id,
        orchestration_name: "Ship".to_owned(),
        orchestration_version: "1.2.0".to_owned(),
    }
}

/// A start event at [`STARTED_MS`].
pub fn started(execution_id: u64, input: &str) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Ship".to_owned(),
        version: "1.2.0".to_owned(),
        input: input.to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::stamped(1, INSTANCE, execution_id, None, STARTED_MS, kind)
}

/// A stored event of execution 1.
pub fn event(event_id: u64, source: Option<u64>, kind: EventKind) -> Event {
    Event::stamped(event_id, INSTANCE, 1, source, STARTED_MS + event_id, kind)
}

/// A history of execution 1: the start event and what follows, numbered from 2.
pub fn history<const N: usize>(rest: [(Option<u64>, EventKind); N]) -> Vec<Event> {
    let rest = rest.into_iter().zip(2..).map(|((source, kind), id)| event(id, source, kind));
    std::iter::once(started(1, "in")).chain(rest).collect()
}

pub use crate::messages::*;
pub use crate::summaries::{sent, summarize};

/// Wakes itself and is pending, so often.
pub(crate) async fn yields(times: usize) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
