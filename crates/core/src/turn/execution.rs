//! One execution of an instance in memory, and the loop of its turns.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

use super::apply::OpenSchedule;
use super::cancellation::{CancelReason, cancellation_of};
use super::draft::TurnDraft;
use super::history_index::{CompletableKind, HistoryIndex};
use super::record::ExecutionRecord;
use super::self_wake::SelfWake;
use super::start_event::StartEvent;
use super::{ExecutionIdentity, Turn, TurnClock, TurnOutcome};
use crate::action::EmittedAction;
use crate::context::OrchestrationContext;
use crate::replay_state::SharedState;
use crate::{ErrorDetails, Event, EventKind, KvEntry, OrchestrationHandlerRef, WorkItem};

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
    pub(super) code: Option<Code>,
    pub(super) self_wake: Arc<SelfWake>,
    /// The waker of `self_wake`, which the code is polled with.
    pub(super) waker: Waker,
    /// What the code returned.
    pub(super) output: Option<Result<String, String>>,
    /// Whether something was delivered to the code since its last poll.
    pub(super) must_poll: bool,
    /// Decisions of this turn, and polls that the code asked for by waking itself.
    pub(super) decisions: usize,
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
    #[inline]
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
        let self_wake = Arc::new(SelfWake::default());
        Self {
            record: ExecutionRecord { identity, start, history: HistoryIndex::default() },
            shared,
            code: Some(Box::pin(async move { handler.invoke(ctx, input).await })),
            waker: Waker::from(Arc::clone(&self_wake)),
            self_wake,
            output: None,
            must_poll: true,
            decisions: 0,
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
        self.decisions = 0;
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

    /// An estimate of the memory that this execution holds: a base, its input, the payloads that wait to be taken, the
    /// key-value store, the custom status, the names in its index, and a little for each event.
    ///
    /// The size of a future cannot be measured from outside. So the payloads that the code was given lately count too:
    /// it may hold them. Those of long ago do not.
    pub fn weight_bytes(&self) -> usize {
        let history = &self.record.history;
        let input = self.record.start.as_ref().map_or(0, |start| start.input.len());
        let held = self.shared.lock().held_bytes();
        BASE_WEIGHT_BYTES + input + held + history.name_bytes() + EVENT_WEIGHT_BYTES * history.event_count
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
        // Polls between stored events count each on their own: the turns that made the events stayed within the limit.
        let replays = !stored.is_empty();
        let mut events = stored.iter().chain(new).enumerate().peekable();
        while let Some((index, event)) = events.next() {
            self.poll_if_owed(clock)?;
            if self.output.is_some() {
                self.skip(std::iter::once(event).chain(events.map(|(_, event)| event)));
                break;
            }
            if replays && index <= stored.len() {
                self.decisions = 0;
            }
            if index >= stored.len() {
                self.shared.lock().replaying = false;
            }
            self.apply(event, events.peek().map(|(_, next)| *next))?;
        }
        self.poll_if_owed(clock)?;
        if replays && new.is_empty() {
            self.decisions = 0;
        }
        self.shared.lock().replaying = false;
        Ok(())
    }

    /// Skips the events after the code returned. A successor still gets their unread messages, and a drop that they
    /// record is not recorded again.
    fn skip<'a>(&self, events: impl Iterator<Item = &'a Event>) {
        let mut state = self.shared.lock();
        for event in events {
            if let EventKind::QueueEventDelivered { name, data } = &event.kind {
                // No future is left to take it.
                state.queues.arrive(name, data);
            }
            if let Some((kind, Some(CancelReason::DroppedFuture))) = cancellation_of(&event.kind) {
                state.expect_drop(kind, event.source_event_id.unwrap_or_default());
            }
        }
    }

    /// Appends an event to the turn and to the history.
    pub(super) fn append(&mut self, event: Event, draft: &mut TurnDraft) {
        self.record.history.record(&event);
        draft.delta.push(event);
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.shared.detach();
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
            cancelled_children: Vec::new(),
        }
    }
}
