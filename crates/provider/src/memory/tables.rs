//! Everything the provider stores, as plain ordered tables.
//!
//! Each verb of the store is a method of [`Tables`] in a file of its own. It gets the time and fresh tokens as arguments,
//! never waits, and checks everything before it changes anything: a refused call leaves the tables as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use everturn_core::{Event, ExecutionStatus, WorkItem};
use semver::Version;

use super::kv::KvStore;
use crate::error::ProviderError;
use crate::store::{
    CheckIn, CustomStatus, HandlerKey, HandlerView, MessageNotes, OrchestrationName, Receipt, Stamp,
};
use crate::types::ScheduledActivityIdentifier;

/// All tables, and what the last verb changed.
#[derive(Debug, Default, Clone)]
pub struct Tables {
    pub(crate) instances: BTreeMap<String, Instance>,
    pub(crate) executions: BTreeMap<String, BTreeMap<u64, TableExecution>>,
    pub(crate) instance_locks: BTreeMap<String, Lock>,
    /// Instances that were given back with a delay.
    pub(crate) instance_delays: BTreeMap<String, Delay>,
    pub(crate) orchestrator_queue: BTreeMap<u64, Message>,
    pub(crate) worker_queue: BTreeMap<u64, Activity>,
    pub(crate) sessions: BTreeMap<String, Session>,
    pub(crate) kv: BTreeMap<String, KvStore>,
    /// The stamp of the last change of an instance: a copy in memory is compared with it.
    pub(crate) stamps: BTreeMap<String, Stamp>,
    /// Kept apart from the instances: a turn may set a status before any turn names the orchestration.
    pub(crate) custom_statuses: BTreeMap<String, CustomStatus>,
    /// Activities of which nothing can be read, not even the instance that scheduled them, and messages that waited too
    /// long for the start of their instance.
    pub(crate) dead_letters: Vec<Stored<WorkItem>>,
    pub(crate) changes: Changes,
    pub(crate) last_row_id: u64,
}

/// What a verb changed besides its answer: what to call and which parked fetches and watches to wake.
#[derive(Default, Clone)]
pub struct Changes {
    /// A fetch of turns may find something, now or at a new moment.
    pub orchestrator_queue: bool,
    /// A fetch of work may find something, now or at a new moment.
    pub worker_queue: bool,
    /// These instances have changed.
    pub instances: BTreeSet<String>,
    /// Check-ins of committed turns.
    pub check_ins: Vec<CheckIn>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("orchestrator_queue", &self.orchestrator_queue)
            .field("worker_queue", &self.worker_queue)
            .field("instances", &self.instances)
            .finish_non_exhaustive()
    }
}

/// A record, readable or damaged.
#[derive(Debug, Clone)]
pub(crate) enum Stored<T> {
    Good(T),
    Damaged(String),
}

/// An instance exists from its first commit on.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) orchestration_name: String,
    pub(crate) orchestration_version: String,
    pub(crate) current_execution_id: u64,
    pub(crate) parent_instance_id: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// One execution of an instance, with its history.
#[derive(Debug, Clone)]
pub(crate) struct TableExecution {
    pub(crate) status: ExecutionStatus,
    pub(crate) output: Option<String>,
    pub(crate) started_at_ms: u64,
    pub(crate) completed_at_ms: Option<u64>,
    pub(crate) pinned_engine_version: Option<Version>,
    pub(crate) events: BTreeMap<u64, Stored<Event>>,
    /// The last event that completed or failed this execution.
    pub(crate) outcome_event_id: Option<u64>,
}

/// Both clocks at the moment of a verb. Visibility goes by the wall clock, as fire times do; locks and leases go by the
/// monotonic clock, so that setting the wall clock neither ends nor extends them.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The wall clock, in milliseconds since the epoch.
    pub wall_ms: u64,
    /// The monotonic clock.
    pub monotonic: Duration,
}

/// The visibility time of a row that is visible already.
pub(crate) const VISIBLE: u64 = 0;

/// The right to commit, until a moment of the monotonic clock.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub(crate) token: String,
    pub(crate) held_until: Duration,
}

/// Work that was given back and waits. The next fetch of it ends the delay.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    pub(crate) until_ms: u64,
    /// A fetch with this handler need not wait.
    pub(crate) missing_handler: Option<HandlerKey>,
}

/// A row of the orchestrator queue. The messages of an instance come in the order of their arrival, those with one arrival
/// in the order of their rows.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) instance: String,
    pub(crate) is_start: bool,
    pub(crate) is_queue_message: bool,
    pub(crate) item: Stored<WorkItem>,
    pub(crate) notes: MessageNotes,
    /// When it was sent, or when it is due if it is a timer. Never changes.
    pub(crate) arrived_at_ms: u64,
    pub(crate) visible_at_ms: u64,
    pub(crate) attempt_count: u32,
    /// The token of the fetch that last took this row.
    pub(crate) tagged_by: Option<String>,
}

/// A row of the worker queue.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    /// The instance and schedule event it belongs to; `None` if that can no longer be read.
    pub(crate) identity: Option<ScheduledActivityIdentifier>,
    pub(crate) session_id: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) item: Stored<WorkItem>,
    pub(crate) delay: Option<Delay>,
    pub(crate) attempt_count: u32,
    pub(crate) lock: Option<Lock>,
}

/// The owner of a session: only it may take the activities.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) owner_id: String,
    pub(crate) leased_until: Duration,
    pub(crate) last_activity_at: Duration,
}

impl Tables {
    /// The newest execution of an instance, by its history.
    pub(crate) fn latest_execution(&self, instance: &str) -> Option<(u64, &TableExecution)> {
        let (id, execution) = self.executions.get(instance)?.last_key_value()?;
        Some((*id, execution))
    }

    pub(crate) fn execution(&self, instance: &str, execution_id: u64) -> Option<&TableExecution> {
        self.executions.get(instance)?.get(&execution_id)
    }

    /// Puts a message into the orchestrator queue.
    ///
    /// A cancellation is kept only if its instance exists or is about to start.
    pub(crate) fn push_message(
        &mut self,
        now: Moment,
        item: WorkItem,
        notes: MessageNotes,
        visible_at_ms: u64,
    ) -> Receipt {
        let receipt = self.receipt_of(&item);
        if receipt == Receipt::Dropped {
            return receipt;
        }
        let arrived_at_ms = self.arrival(now, &item, visible_at_ms);
        let row_id = self.next_row_id();
        self.orchestrator_queue.insert(
            row_id,
            Message {
                instance: item.instance().to_owned(),
                is_start: item.is_start(),
                is_queue_message: matches!(item, WorkItem::QueueMessage { .. }),
                item: Stored::Good(item),
                notes,
                arrived_at_ms,
                visible_at_ms,
                attempt_count: 0,
                tagged_by: None,
            },
        );
        self.changes.orchestrator_queue = true;
        receipt
    }

    /// When a message arrives: a timer at its fire time, or when it becomes visible if that is before; any other one now, but
    /// not before a message that is visible.
    fn arrival(&self, now: Moment, item: &WorkItem, visible_at_ms: u64) -> u64 {
        if let WorkItem::TimerFired { fire_at_ms, .. } = item {
            return visible_at_ms.max(now.wall_ms).min(*fire_at_ms);
        }
        // Only a clock that was set back lets a visible message be later than now.
        let later = self.orchestrator_queue.values().filter(|message| message.arrived_at_ms > now.wall_ms);
        let visible = later.filter(|message| message.instance == item.instance() && message.is_visible(now));
        visible.map(|message| message.arrived_at_ms).fold(now.wall_ms, u64::max)
    }

    /// Puts an activity behind all others in the worker queue. Anything else is ignored: callers check first.
    pub(crate) fn push_activity(&mut self, item: WorkItem) {
        let WorkItem::ActivityExecute { instance, execution_id, id, session_id, tag, .. } = &item else {
            return;
        };
        let activity = Activity {
            identity: Some(ScheduledActivityIdentifier {
                instance: instance.clone(),
                execution_id: *execution_id,
                activity_id: *id,
            }),
            session_id: session_id.clone(),
            tag: tag.clone(),
            item: Stored::Good(item),
            delay: None,
            attempt_count: 0,
            lock: None,
        };
        let row_id = self.next_row_id();
        self.worker_queue.insert(row_id, activity);
        self.changes.worker_queue = true;
    }

    fn next_row_id(&mut self) -> u64 {
        self.last_row_id += 1;
        self.last_row_id
    }
}

impl Instance {
    pub(crate) fn orchestration(&self) -> OrchestrationName {
        OrchestrationName {
            name: self.orchestration_name.clone(),
            version: self.orchestration_version.clone(),
        }
    }
}

impl TableExecution {
    /// A new execution without events.
    pub(crate) fn running(now_ms: u64) -> Self {
        Self {
            status: ExecutionStatus::Running,
            output: None,
            started_at_ms: now_ms,
            completed_at_ms: None,
            pinned_engine_version: None,
            events: BTreeMap::new(),
            outcome_event_id: None,
        }
    }

    /// Adds events whose ids were checked.
    pub(crate) fn append(&mut self, events: Vec<Event>) {
        for event in events {
            if event.kind.ends_instance() {
                self.outcome_event_id = self.outcome_event_id.max(Some(event.event_id));
            }
            self.events.insert(event.event_id, Stored::Good(event));
        }
    }

    /// All events in order, or the first one that cannot be read.
    pub(crate) fn history(&self) -> Result<Vec<Event>, String> {
        self.events
            .iter()
            .map(|(event_id, event)| match event {
                Stored::Good(event) => Ok(event.clone()),
                Stored::Damaged(damage) => Err(format!("event {event_id} cannot be read: {damage}")),
            })
            .collect()
    }
}

impl Lock {
    pub(crate) fn new(token: String, now: Moment, lasts: Duration) -> Self {
        Self { token, held_until: now.monotonic.saturating_add(lasts) }
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        now.monotonic < self.held_until
    }
}

impl Delay {
    /// Whether a fetch with these handlers must wait. A fetch that does not say what it has is let through.
    pub(crate) fn holds(&self, now: Moment, handlers: Option<&dyn HandlerView>) -> bool {
        let is_handled = |missing| handlers.is_none_or(|handlers| handlers.has(missing));
        !self.is_over(now) && !self.missing_handler.as_ref().is_some_and(is_handled)
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.until_ms <= now.wall_ms
    }
}

impl Message {
    pub(crate) fn is_visible(&self, now: Moment) -> bool {
        self.visible_at_ms <= now.wall_ms
    }
}

impl Activity {
    pub(crate) fn is_of(&self, instance: &str) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.instance == instance)
    }
}

impl Session {
    pub(crate) fn is_leased(&self, now: Moment) -> bool {
        now.monotonic < self.leased_until
    }
}

impl Moment {
    /// The wall time, rounded up to a millisecond, at which a row with this delay becomes visible.
    pub(crate) fn visible_after(self, delay: Option<Duration>) -> u64 {
        let delay_ms = delay.unwrap_or_default().as_nanos().div_ceil(1_000_000);
        self.visible_from(self.wall_ms.saturating_add(u64::try_from(delay_ms).unwrap_or(u64::MAX)))
    }

    /// The delay of work that is given back; `None` if it need not wait.
    pub(crate) fn delay(
        self,
        delay: Option<Duration>,
        missing_handler: Option<&HandlerKey>,
    ) -> Option<Delay> {
        let delay = Delay { until_ms: self.visible_after(delay), missing_handler: missing_handler.cloned() };
        Some(delay).filter(|delay| !delay.is_over(self))
    }

    /// The wall time at which a row that is due then becomes visible.
    pub(crate) fn visible_from(self, due_ms: u64) -> u64 {
        if due_ms <= self.wall_ms { VISIBLE } else { due_ms }
    }

    /// How long it is to this wall time.
    pub(crate) fn until_wall(self, wall_ms: u64) -> Duration {
        Duration::from_millis(wall_ms.saturating_sub(self.wall_ms))
    }

    /// How long it is to this moment of the monotonic clock.
    pub(crate) fn until(self, monotonic: Duration) -> Duration {
        monotonic.saturating_sub(self.monotonic)
    }
}

/// Refuses event ids that are 0, given twice, or there already.
pub(crate) fn check_new_events(
    operation: &str,
    instance: &str,
    execution_id: u64,
    existing: Option<&TableExecution>,
    new_events: &[Event],
) -> Result<(), ProviderError> {
    let mut seen = BTreeSet::new();
    for event in new_events {
        let id = event.event_id;
        let refused = if id == 0 {
            "event id 0 is not a position".to_owned()
        } else if !seen.insert(id) || existing.is_some_and(|execution| execution.events.contains_key(&id)) {
            format!("duplicate event id {id}")
        } else {
            continue;
        };
        return Err(ProviderError::permanent(
            operation,
            format!("{instance}, execution {execution_id}: {refused}"),
        ));
    }
    Ok(())
}
