//! One execution of an instance in memory, and the loop of its turns.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::apply::OpenSchedule;
use super::cancellation::{CancelReason, cancellation_of};
use super::draft::TurnDraft;
use super::history_index::{CompletableKind, HistoryIndex};
use super::record::ExecutionRecord;
use super::start_event::StartEvent;
use super::{ExecutionIdentity, Turn, TurnClock, TurnOutcome, panic_text, turn_limit};
use crate::action::EmittedAction;
use crate::context::OrchestrationContext;
use crate::replay_state::SharedState;
use crate::{AppErrorKind, ErrorDetails, Event, EventKind, KvEntry, OrchestrationHandlerRef, WorkItem};

type Code = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Memory of an execution without payloads: its future, its maps, its place in a cache.
const BASE_WEIGHT_BYTES: usize = 4096;

/// Memory per event, beside its payload.
const EVENT_WEIGHT_BYTES: usize = 64;

/// One execution of an instance in memory.
///
/// Dropping it cancels nothing.
pub struct Execution {
    pub(super) record: ExecutionRecord,
    pub(super) shared: Arc<SharedState>,
    /// The running code; `None` after it returned.
    code: Option<Code>,
    /// What the code returned.
    pub(super) output: Option<Result<String, String>>,
    /// Whether something was delivered to the code since its last poll.
    pub(super) must_poll: bool,
    /// Actions of the code that no event records yet, oldest first.
    pub(super) emitted: VecDeque<EmittedAction>,
    pub(super) open_schedules: HashMap<u64, OpenSchedule>,
    pub(super) payload_bytes_max: usize,
    /// Stored events that the next turn replays.
    unreplayed: Vec<Event>,
    /// The start event that the first turn records.
    new_start: Option<Event>,
    /// Whether the first event of the history has been checked.
    begun: bool,
}

impl Execution {
    /// A new execution. Its first turn records `start`, which must be an `OrchestrationStarted` event.
    pub fn begin(
        handler: OrchestrationHandlerRef,
        identity: ExecutionIdentity,
        start: Event,
        kv: HashMap<String, KvEntry>,
        payload_bytes_max: usize,
    ) -> Self {
        let mut execution = Self::new(handler, identity, Some(&start), false, kv, payload_bytes_max);
        execution.new_start = Some(start);
        execution
    }

    /// An execution with a stored history. Its next turn replays the history.
    pub fn replay(
        handler: OrchestrationHandlerRef,
        identity: ExecutionIdentity,
        history: Vec<Event>,
        kv: HashMap<String, KvEntry>,
        payload_bytes_max: usize,
    ) -> Self {
        let mut execution = Self::new(handler, identity, history.first(), true, kv, payload_bytes_max);
        for event in &history {
            execution.record.history.record(event);
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
        let start = first.and_then(StartEvent::of);
        let custom_status = start.as_ref().and_then(|start| start.initial_custom_status.clone());
        let input = start.as_ref().map(|start| start.input.clone()).unwrap_or_default();
        let first_event_ms = first.map_or(0, |event| event.timestamp_ms);
        let shared =
            Arc::new(SharedState::new(identity.clone(), replaying, kv, custom_status, first_event_ms));
        let ctx = OrchestrationContext { shared: Arc::clone(&shared) };
        Self {
            record: ExecutionRecord { identity, start, history: HistoryIndex::default() },
            shared,
            code: Some(Box::pin(async move { handler.invoke(ctx, input).await })),
            output: None,
            must_poll: true,
            emitted: VecDeque::new(),
            open_schedules: HashMap::new(),
            payload_bytes_max,
            unreplayed: Vec::new(),
            new_start: None,
            begun: false,
        }
    }

    /// Takes a turn: applies the messages and runs the code until it waits.
    ///
    /// After any outcome but [`TurnOutcome::Continue`] the execution is over and must be dropped.
    pub fn take_turn(&mut self, messages: Vec<WorkItem>, clock: &dyn TurnClock) -> Turn {
        let stored = std::mem::take(&mut self.unreplayed);
        let mut draft = TurnDraft::default();
        if let Some(start) = self.new_start.take() {
            self.append(start, &mut draft);
        }
        let had_ended = self.record.history.terminal;
        let converted = self.convert_messages(messages, &mut draft, clock);
        draft.received = draft.delta.len();
        draft.received_event_id = self.record.history.last_event_id;
        if converted.is_ok() && had_ended {
            return Turn::without_changes();
        }
        let ran = converted
            .and_then(|()| self.apply_all(&stored, &draft.delta, clock))
            .and_then(|()| self.decide_all(&mut draft, clock))
            .and_then(|()| self.check_limits(&draft));
        match ran {
            Ok(()) => self.finish(draft, clock),
            Err(details) => self.record.fail(draft, details.cut_to(self.payload_bytes_max), clock),
        }
    }

    /// The id of the last event, including the events of the last turn.
    pub fn last_event_id(&self) -> u64 {
        self.record.history.last_event_id
    }

    /// The number of events in the history, including those of the last turn unless it ended the execution.
    pub fn event_count(&self) -> usize {
        self.record.history.event_count
    }

    /// Whether this activity was asked for and has neither ended nor been cancelled.
    pub fn awaits_activity(&self, id: u64) -> bool {
        let schedule = self.record.history.schedules.get(&id);
        schedule.is_some_and(|schedule| schedule.is_open(CompletableKind::Activity))
    }

    /// An estimate of the memory that this execution holds: a base, the payloads it was given, and a little for each
    /// event. The size of a future cannot be measured from outside.
    pub fn weight_bytes(&self) -> usize {
        let history = &self.record.history;
        let input = self.record.start.as_ref().map_or(0, |start| start.input.len());
        BASE_WEIGHT_BYTES + input + history.payload_bytes + EVENT_WEIGHT_BYTES * history.event_count
    }

    /// Applies the stored and the new events, and makes each owed poll before it applies the next event. Live turns and
    /// replay are this one loop.
    fn apply_all(
        &mut self,
        stored: &[Event],
        new: &[Event],
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        if !std::mem::replace(&mut self.begun, true) {
            match stored.first().or(new.first()).map(|event| &event.kind) {
                Some(EventKind::OrchestrationStarted { .. }) => {}
                None => return Err(ErrorDetails::nondeterminism("corrupted history: empty")),
                Some(_) => {
                    return Err(ErrorDetails::nondeterminism(
                        "corrupted history: first event must be OrchestrationStarted",
                    ));
                }
            }
        }
        let mut events = stored.iter().chain(new).enumerate().peekable();
        while let Some((index, event)) = events.next() {
            self.poll_if_owed(clock)?;
            if self.output.is_some() {
                self.skip(std::iter::once(event).chain(events.map(|(_, event)| event)));
                break;
            }
            if index >= stored.len() {
                self.shared.lock().replaying = false;
            }
            self.apply(event, events.peek().map(|(_, next)| *next))?;
        }
        self.poll_if_owed(clock)?;
        self.shared.lock().replaying = false;
        Ok(())
    }

    /// Skips the events after the code returned. A successor still gets their unread messages, and a drop that they
    /// record is not recorded again.
    fn skip<'a>(&self, events: impl Iterator<Item = &'a Event>) {
        let mut state = self.shared.lock();
        for event in events {
            if let EventKind::QueueEventDelivered { name, data } = &event.kind {
                state.queues.arrive(name, data);
            }
            if let Some((kind, Some(CancelReason::DroppedFuture))) = cancellation_of(&event.kind) {
                state.expect_drop(kind, event.source_event_id.unwrap_or_default());
            }
        }
    }

    /// Polls the code if something was delivered to it, and takes its actions.
    pub(super) fn poll_if_owed(&mut self, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        if !self.must_poll || self.output.is_some() {
            return Ok(());
        }
        self.must_poll = false;
        {
            let mut state = self.shared.lock();
            state.now_ms = clock.store_ms();
            state.polling = true;
        }
        let (code, shared) = (&mut self.code, &self.shared);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let output = match code.as_mut()?.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(output) => output,
                Poll::Pending => {
                    let state = shared.lock();
                    if state.continue_as_new_asked || state.waits_on_something_durable() {
                        return None;
                    }
                    Err("the orchestration waits on something that is not durable: await only futures made by its \
                         context"
                        .to_owned())
                }
            };
            // Dropped within the poll, so that the futures it still holds are dropped like those of its locals.
            *code = None;
            Some(output)
        }));
        let mut state = self.shared.lock();
        state.polling = false;
        self.emitted.extend(std::mem::take(&mut state.emitted));
        if state.turn_limit_hit {
            return Err(turn_limit());
        }
        self.output = polled.map_err(|panic| {
            let text = panic_text(panic.as_ref()).unwrap_or("orchestration panicked");
            ErrorDetails::application(AppErrorKind::Panicked, text)
        })?;
        Ok(())
    }

    /// Appends an event to the turn and to the history.
    pub(super) fn append(&mut self, event: Event, draft: &mut TurnDraft) {
        self.record.history.record(&event);
        draft.delta.push(event);
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.shared.detached.store(true, Ordering::SeqCst);
        let code = self.code.take();
        // Destructors of the user's code run here. A panic in them must not reach the thread that drops the execution.
        if catch_unwind(AssertUnwindSafe(|| drop(code))).is_err() {
            tracing::warn!(
                target: "everturn::runtime",
                instance_id = %self.record.identity.instance,
                "an orchestration panicked while it was being dropped; the panic is ignored"
            );
        }
    }
}

impl Turn {
    fn without_changes() -> Self {
        Self {
            outcome: TurnOutcome::Continue,
            history_delta: Vec::new(),
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            cancelled_activities: Vec::new(),
        }
    }
}
