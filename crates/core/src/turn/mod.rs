//! The turn engine: events in, decisions out.
//!
//! An [`Execution`] is one execution of an instance in memory. It is made from a stored history ([`Execution::replay`])
//! or from a fresh start event ([`Execution::begin`]), takes a turn for each batch of messages, and can be kept between
//! turns: the next turn then applies only what is new. Live and replay are the same loop.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::action::Emitted;
use crate::context::OrchestrationContext;
use crate::exchange::Exchange;
use crate::limits::MAX_DECISIONS_PER_TURN;
use crate::{
    AppErrorKind, Bug, ErrorDetails, Event, EventKind, KvEntry, OrchestrationHandlerRef, WorkItem, planted,
};

mod apply;
mod closing;
mod convert;
mod decide;
mod effects;
mod finalise;
mod ledger;
mod matching;
mod start;
mod violations;

pub use closing::fail_from_outside;

use apply::{DROPPED_FUTURE, Open};
use convert::{Converted, convert};
use decide::Draft;
use finalise::cancellation_of;
use ledger::Ledger;
use start::Start;

/// Where a turn gets the time from.
pub trait TurnClock {
    /// The store's time in milliseconds since the epoch; timers are due by it.
    fn store_ms(&self) -> u64;
    /// This node's time in milliseconds since the epoch; it stamps events.
    fn stamp_ms(&self) -> u64;
}

/// Whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionIdentity {
    /// The instance.
    pub instance: String,
    /// Its execution.
    pub execution_id: u64,
    /// Registered name of the orchestration.
    pub orchestration_name: String,
    /// Version of the handler that runs it.
    pub orchestration_version: String,
}

impl ExecutionIdentity {
    /// A new event of this execution.
    fn event(&self, event_id: u64, source: Option<u64>, clock: &dyn TurnClock, kind: EventKind) -> Event {
        Event::stamped(event_id, &self.instance, self.execution_id, source, clock.stamp_ms(), kind)
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The code waits for something durable.
    Continue,
    /// The code returned `Ok`.
    Completed {
        /// What it returned.
        output: String,
    },
    /// The code returned `Err`, or could not go on.
    Failed {
        /// Why.
        details: ErrorDetails,
    },
    /// The code asked for a successor.
    ContinuedAsNew {
        /// Input of the successor.
        input: String,
    },
    /// The instance was cancelled.
    Cancelled {
        /// The reason given.
        reason: String,
    },
}

/// Everything a turn decided, to be committed whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// How it ended.
    pub outcome: TurnOutcome,
    /// New events, in order; begins with the start event in the first turn of an execution.
    pub history_delta: Vec<Event>,
    /// Activities to run.
    pub worker_items: Vec<WorkItem>,
    /// Messages to other instances and to this one: timers, child starts, notices, the successor.
    pub orchestrator_items: Vec<WorkItem>,
    /// Schedule ids of activities that are no longer wanted.
    pub cancelled_activities: Vec<u64>,
}

type Code = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// What an execution costs in memory before it was given anything: its future, its maps, its place in a cache.
const BASE_WEIGHT_BYTES: usize = 4096;

/// What is remembered of each event beside its payload.
const EVENT_WEIGHT_BYTES: usize = 64;

/// One execution of an instance in memory.
///
/// Dropping it is silent: nothing is cancelled by it.
pub struct Execution {
    exchange: Arc<Exchange>,
    identity: ExecutionIdentity,
    start: Option<Start>,
    /// The running code; `None` once it returned or was given up.
    code: Option<Code>,
    output: Option<Result<String, String>>,
    must_poll: bool,
    /// What the code asked for and history does not have yet, oldest first.
    line: VecDeque<Emitted>,
    open: HashMap<u64, Open>,
    ledger: Ledger,
    payload_bytes_max: usize,
    /// Stored events that the code has not been through.
    unreplayed: Vec<Event>,
    /// The start event that the first turn records.
    fresh_start: Option<Event>,
    begun: bool,
}

impl Execution {
    /// A new execution; its first turn records `start`, which must be an `OrchestrationStarted` event.
    pub fn begin(
        handler: OrchestrationHandlerRef,
        identity: ExecutionIdentity,
        start: Event,
        kv: HashMap<String, KvEntry>,
        payload_bytes_max: usize,
    ) -> Self {
        let mut execution = Self::new(handler, identity, Some(&start), false, kv, payload_bytes_max);
        execution.fresh_start = Some(start);
        execution
    }

    /// An execution as its stored history left it; the history is replayed in the next turn.
    pub fn replay(
        handler: OrchestrationHandlerRef,
        identity: ExecutionIdentity,
        history: Vec<Event>,
        kv: HashMap<String, KvEntry>,
        payload_bytes_max: usize,
    ) -> Self {
        let mut execution = Self::new(handler, identity, history.first(), true, kv, payload_bytes_max);
        for event in &history {
            execution.ledger.record(event);
        }
        execution.unreplayed = history;
        execution
    }

    fn new(
        handler: OrchestrationHandlerRef,
        identity: ExecutionIdentity,
        first: Option<&Event>,
        replaying: bool,
        kv: HashMap<String, KvEntry>,
        payload_bytes_max: usize,
    ) -> Self {
        let exchange = Arc::new(Exchange::new(identity.clone(), replaying, kv));
        let start = first.and_then(Start::of);
        {
            let mut state = exchange.state();
            state.last_event_ms = first.map_or(0, |event| event.timestamp_ms);
            state.custom_status = start.as_ref().and_then(|start| start.initial_custom_status.clone());
        }
        let ctx = OrchestrationContext::new(Arc::clone(&exchange));
        let input = start.as_ref().map(|start| start.input.clone()).unwrap_or_default();
        Self {
            exchange,
            identity,
            start,
            code: Some(Box::pin(async move { handler.invoke(ctx, input).await })),
            output: None,
            must_poll: true,
            line: VecDeque::new(),
            open: HashMap::new(),
            ledger: Ledger::default(),
            payload_bytes_max,
            unreplayed: Vec::new(),
            fresh_start: None,
            begun: false,
        }
    }

    /// Takes a turn: applies the messages and runs the code until it waits.
    ///
    /// After any outcome but [`TurnOutcome::Continue`] the execution is over and must be dropped.
    pub fn take_turn(&mut self, messages: Vec<WorkItem>, clock: &dyn TurnClock) -> Turn {
        let persisted = std::mem::take(&mut self.unreplayed);
        let mut draft = Draft::default();
        if let Some(start) = self.fresh_start.take() {
            self.ledger.record(&start);
            draft.delta.push(start);
        }
        let was_terminal = self.ledger.is_terminal();
        let Converted { events, abort } = convert(&mut self.ledger, &self.identity, messages, clock);
        draft.delta.extend(events);
        draft.fix(&self.ledger);

        if let Some(details) = abort {
            return self.fail_hard(draft, details, clock);
        }
        if was_terminal {
            return Turn::nothing();
        }
        let ran = self
            .check_beginning(&persisted, &draft.delta)
            .and_then(|()| self.apply_all(&persisted, &draft.delta, clock))
            .and_then(|()| self.decide_all(&mut draft, clock))
            .and_then(|()| self.check_limits(&draft));
        match ran {
            Ok(()) => self.finalise(draft, clock),
            Err(details) => self.fail_hard(draft, details, clock),
        }
    }

    /// The id of the last event, those of the last turn included.
    pub fn last_event_id(&self) -> u64 {
        self.ledger.last_event_id()
    }

    /// How many events the history has, those of the last turn included unless it ended the execution.
    pub fn event_count(&self) -> usize {
        self.ledger.event_count()
    }

    /// Whether this activity was asked for and has neither ended nor been cancelled.
    pub fn awaits_activity(&self, id: u64) -> bool {
        self.ledger.is_open_activity(id)
    }

    /// An estimate of the memory this execution holds: a base, the payloads it was given, and a
    /// little for each event.
    ///
    /// The size of a future cannot be measured from outside, so this is an estimate and no more.
    pub fn weight_bytes(&self) -> usize {
        let input = self.start.as_ref().map_or(0, |start| start.input.len());
        BASE_WEIGHT_BYTES
            + input
            + self.ledger.payload_bytes()
            + EVENT_WEIGHT_BYTES * self.ledger.event_count()
    }

    /// A history must begin with its start event; nothing else about its ids is taken for granted.
    fn check_beginning(&mut self, persisted: &[Event], fresh: &[Event]) -> Result<(), ErrorDetails> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        match persisted.first().or(fresh.first()) {
            None => Err(ErrorDetails::nondeterminism("corrupted history: empty")),
            Some(Event { kind: EventKind::OrchestrationStarted { .. }, .. }) => Ok(()),
            Some(_) => Err(ErrorDetails::nondeterminism(
                "corrupted history: first event must be OrchestrationStarted",
            )),
        }
    }

    /// The loop, live and replay alike: an owed poll is made before the next event is applied.
    fn apply_all(
        &mut self,
        persisted: &[Event],
        fresh: &[Event],
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        let mut events = persisted.iter().chain(fresh).enumerate().peekable();
        while let Some((index, event)) = events.next() {
            if index <= persisted.len() || !planted(Bug::OnePollATurn) {
                self.make_owed_poll(clock)?;
            }
            if self.output.is_some() {
                let rest = std::iter::once(event).chain(events.map(|(_, event)| event));
                self.pass_over(rest);
                break;
            }
            if index >= persisted.len() {
                self.exchange.state().replaying = false;
            }
            self.apply(event, events.peek().map(|(_, next)| *next))?;
        }
        self.make_owed_poll(clock)?;
        self.exchange.state().replaying = false;
        Ok(())
    }

    /// The code has returned: the rest stays in history unapplied. Its unread messages still go to a successor, and a
    /// drop that is recorded there is not recorded again.
    fn pass_over<'a>(&self, events: impl Iterator<Item = &'a Event>) {
        let mut state = self.exchange.state();
        for event in events {
            if let EventKind::QueueEventDelivered { name, data } = &event.kind {
                state.queues.arrive(name, data);
            }
            if let Some((kind, DROPPED_FUTURE)) = cancellation_of(&event.kind) {
                state.expect_drop(kind, event.source_event_id.unwrap_or_default());
            }
        }
    }

    fn make_owed_poll(&mut self, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        if self.must_poll && self.output.is_none() { self.poll(clock) } else { Ok(()) }
    }

    /// Polls the code once and takes over what it asked for.
    fn poll(&mut self, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        self.must_poll = false;
        self.exchange.state().begin_poll(clock.store_ms());
        let code = &mut self.code;
        let exchange = &self.exchange;
        let polled = catch_unwind(AssertUnwindSafe(|| poll_code(code, exchange)));
        let mut state = self.exchange.state();
        self.line.extend(state.end_poll());
        if state.turn_limit_hit {
            return Err(turn_limit());
        }
        self.output = polled.map_err(|panic| panicked(panic.as_ref()))?;
        Ok(())
    }
}

/// One poll; a code that returned is dropped within it, so that what it still held is dropped like a local.
fn poll_code(code: &mut Option<Code>, exchange: &Exchange) -> Option<Result<String, String>> {
    let mut cx = Context::from_waker(Waker::noop());
    let output = match code.as_mut()?.as_mut().poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => {
            let state = exchange.state();
            if state.continue_as_new_asked || state.waits_on_something_durable() {
                return None;
            }
            Err("the orchestration waits on something that is not durable: await only futures made by its context"
                .to_owned())
        }
    };
    *code = None;
    Some(output)
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.exchange.detach();
        let code = self.code.take();
        // Code of the user runs here; its panic must not spread to whoever lets go of the execution.
        if catch_unwind(AssertUnwindSafe(|| drop(code))).is_err() {
            tracing::warn!(
                target: "everturn::runtime",
                instance_id = %self.identity.instance,
                "an orchestration panicked while it was being dropped"
            );
        }
    }
}

impl Turn {
    /// A turn that changes nothing.
    fn nothing() -> Self {
        Self {
            outcome: TurnOutcome::Continue,
            history_delta: Vec::new(),
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            cancelled_activities: Vec::new(),
        }
    }
}

fn turn_limit() -> ErrorDetails {
    ErrorDetails::Infrastructure {
        operation: "turn_limit".to_owned(),
        message: format!("turn exceeded {MAX_DECISIONS_PER_TURN} decisions"),
        retryable: false,
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ErrorDetails {
    ErrorDetails::application(AppErrorKind::Panicked, panic_text(panic).unwrap_or("orchestration panicked"))
}

/// The text a panic was raised with, if it was raised with one.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}
