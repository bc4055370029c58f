//! Everything the provider knows, as plain ordered tables.
//!
//! Each verb of the store is a method of [`Tables`] in a file of its own. It gets the time and fresh tokens as arguments,
//! never waits, and checks everything before it changes anything: a refused call leaves the tables as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use everturn_core::{Event, EventKind, ExecutionStatus, WorkItem};
use semver::Version;

use super::hand_back::Claim;
use super::kv::KvStore;
use crate::error::ProviderError;
use crate::store::{CheckIn, CustomStatus, OrchestrationName, Stamp};
use crate::types::ScheduledActivityIdentifier;

/// All tables, and what the last verb may have set in motion.
#[derive(Debug, Default, Clone)]
pub(super) struct Tables {
    pub(super) instances: BTreeMap<String, Instance>,
    pub(super) executions: BTreeMap<String, BTreeMap<u64, Execution>>,
    pub(super) instance_locks: BTreeMap<String, Lock>,
    pub(super) orchestrator_queue: BTreeMap<u64, Message>,
    pub(super) worker_queue: BTreeMap<u64, Activity>,
    pub(super) sessions: BTreeMap<String, Session>,
    pub(super) kv: BTreeMap<String, KvStore>,
    /// What the last change of any execution left: a copy in memory is compared with it.
    pub(super) stamps: BTreeMap<String, Stamp>,
    /// Kept apart from the instances: a turn may set a status before any turn names the orchestration.
    pub(super) custom_statuses: BTreeMap<String, CustomStatus>,
    /// Activities of which nothing can be read, not even the instance that scheduled them.
    pub(super) dead_letters: Vec<Activity>,
    pub(super) changes: Changes,
    pub(super) changed_hands: ChangedHands,
    last_row_id: u64,
}

/// What came of a verb besides its answer: whom to wake, and what to remember until it is committed.
#[derive(Debug, Default, Clone)]
pub(super) struct Changes {
    /// Something may have become fetchable by a dispatcher, now or at a new moment.
    pub(super) orchestrator_queue: bool,
    /// The same for a worker.
    pub(super) worker_queue: bool,
    /// These instances have changed.
    pub(super) instances: BTreeSet<String>,
    /// Locks and leases that were given or renewed, and are answered after the commit: they count from then on.
    pub(super) held: Vec<Held>,
    /// The tokens of turns that may be answered before the commit.
    pub(super) early: Vec<String>,
    /// The token of a turn that was written.
    pub(super) written: Option<String>,
    /// A fetch found something that had changed hands before, see [`ChangedHands`].
    pub(super) passed_over: bool,
    /// Sessions that a fetch claimed and that had no owner, by the token of the activity.
    pub(super) claims: BTreeMap<String, Claim>,
    /// Instances to be put back into memory.
    pub(super) check_ins: CheckIns,
}

/// Callbacks of committed turns.
#[derive(Default, Clone)]
pub(super) struct CheckIns(pub(super) Vec<CheckIn>);

impl fmt::Debug for CheckIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckIns").field(&self.0.len()).finish()
    }
}

/// A lock or a lease, and how long it lasts.
#[derive(Debug, Clone)]
pub(super) enum Held {
    Lock { token: String, lasts: Duration },
    Lease { session_id: String, owner_id: String, lasts: Duration },
}

/// What was handed out or let go in the open batch. It is not handed out again in it: nobody works on what is not
/// committed, and who lets go hears of it before somebody else begins.
#[derive(Debug, Default, Clone)]
pub(super) struct ChangedHands {
    pub(super) instances: BTreeSet<String>,
    pub(super) activities: BTreeSet<u64>,
}

/// A record as it was written, or what is left of it.
#[derive(Debug, Clone)]
pub(super) enum Stored<T> {
    Good(T),
    Damaged(String),
}

/// An instance exists from its first commit on.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub(super) orchestration_name: String,
    pub(super) orchestration_version: String,
    pub(super) current_execution_id: u64,
    pub(super) parent_instance_id: Option<String>,
    pub(super) created_at_ms: u64,
    pub(super) updated_at_ms: u64,
}

/// One execution of an instance, with its history.
#[derive(Debug, Clone)]
pub(super) struct Execution {
    pub(super) status: ExecutionStatus,
    pub(super) output: Option<String>,
    pub(super) started_at_ms: u64,
    pub(super) completed_at_ms: Option<u64>,
    pub(super) pinned_engine_version: Option<Version>,
    pub(super) events: BTreeMap<u64, Stored<Event>>,
    /// The last event that completed or failed this execution.
    pub(super) outcome_event_id: Option<u64>,
}

/// Both clocks at the moment of a verb. Visibility goes by the wall, as fire times do; how long a lock or a lease lasts
/// goes by the monotonic clock, so that setting the wall neither takes locks away nor makes them last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) wall_ms: u64,
    pub(super) monotonic: Duration,
}

/// The time from which on a row is visible that is visible already.
pub(super) const VISIBLE: u64 = 0;

/// The right to commit, until a moment of the monotonic clock.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub(super) token: String,
    pub(super) held_until: Duration,
}

/// A row of the orchestrator queue.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) instance: String,
    pub(super) is_start: bool,
    pub(super) is_queue_message: bool,
    pub(super) item: Stored<WorkItem>,
    pub(super) visible_at_ms: u64,
    pub(super) attempt_count: u32,
    /// The token of the fetch that last took this row along.
    pub(super) tagged_by: Option<String>,
}

/// A row of the worker queue.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    /// Whose it is; `None` if that can no longer be read.
    pub(super) identity: Option<ScheduledActivityIdentifier>,
    pub(super) session_id: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) item: Stored<WorkItem>,
    pub(super) visible_at_ms: u64,
    pub(super) attempt_count: u32,
    pub(super) lock: Option<Lock>,
}

/// Who may take the activities of a session.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) owner_id: String,
    pub(super) leased_until: Duration,
    pub(super) last_activity_at: Duration,
}

impl Tables {
    /// The newest execution of an instance, by its history.
    pub(super) fn latest_execution(&self, instance: &str) -> Option<(u64, &Execution)> {
        let (id, execution) = self.executions.get(instance)?.last_key_value()?;
        Some((*id, execution))
    }

    pub(super) fn execution(&self, instance: &str, execution_id: u64) -> Option<&Execution> {
        self.executions.get(instance)?.get(&execution_id)
    }

    /// A message as a row of the orchestrator queue, behind all others.
    pub(super) fn push_message(&mut self, item: WorkItem, visible_at_ms: u64) {
        let row_id = self.next_row_id();
        self.orchestrator_queue.insert(
            row_id,
            Message {
                instance: item.instance().to_owned(),
                is_start: item.is_start(),
                is_queue_message: matches!(item, WorkItem::QueueMessage { .. }),
                item: Stored::Good(item),
                visible_at_ms,
                attempt_count: 0,
                tagged_by: None,
            },
        );
        self.changes.orchestrator_queue = true;
    }

    /// An activity as a row of the worker queue, behind all others. Anything else is passed over: callers check first.
    pub(super) fn push_activity(&mut self, item: WorkItem) {
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
            visible_at_ms: VISIBLE,
            attempt_count: 0,
            lock: None,
        };
        let row_id = self.next_row_id();
        self.worker_queue.insert(row_id, activity);
        self.changes.worker_queue = true;
    }

    /// Goes back to what was stored before a batch. Numbers that were given out in it are never given out again.
    pub(super) fn go_back_to(&mut self, before: Self) {
        let last_row_id = self.last_row_id;
        *self = before;
        self.last_row_id = last_row_id;
    }

    fn next_row_id(&mut self) -> u64 {
        self.last_row_id += 1;
        self.last_row_id
    }
}

impl Instance {
    pub(super) fn orchestration(&self) -> OrchestrationName {
        OrchestrationName {
            name: self.orchestration_name.clone(),
            version: self.orchestration_version.clone(),
        }
    }
}

impl Execution {
    /// A new execution without events.
    pub(super) fn running(now_ms: u64) -> Self {
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
    pub(super) fn append(&mut self, events: Vec<Event>) {
        for event in events {
            if let EventKind::OrchestrationCompleted { .. } | EventKind::OrchestrationFailed { .. } =
                event.kind
            {
                self.outcome_event_id = self.outcome_event_id.max(Some(event.event_id));
            }
            self.events.insert(event.event_id, Stored::Good(event));
        }
    }

    /// All events in order, or the first one that cannot be read.
    pub(super) fn history(&self) -> Result<Vec<Event>, String> {
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
    pub(super) fn new(token: String, now: Moment, lasts: Duration) -> Self {
        Self { token, held_until: now.monotonic.saturating_add(lasts) }
    }

    pub(super) fn is_held(&self, now: Moment) -> bool {
        now.monotonic < self.held_until
    }
}

impl Message {
    pub(super) fn is_visible(&self, now: Moment) -> bool {
        self.visible_at_ms <= now.wall_ms
    }
}

impl Activity {
    pub(super) fn is_of(&self, instance: &str) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.instance == instance)
    }
}

impl Session {
    pub(super) fn is_leased(&self, now: Moment) -> bool {
        now.monotonic < self.leased_until
    }
}

impl Moment {
    /// The wall time, rounded up to a millisecond, from which on a row is visible that waits so long.
    pub(super) fn visible_after(self, delay: Option<Duration>) -> u64 {
        let delay_ms = delay.unwrap_or_default().as_nanos().div_ceil(1_000_000);
        self.visible_from(self.wall_ms.saturating_add(u64::try_from(delay_ms).unwrap_or(u64::MAX)))
    }

    /// The wall time from which on a row is visible that is due then.
    pub(super) fn visible_from(self, due_ms: u64) -> u64 {
        if due_ms <= self.wall_ms { VISIBLE } else { due_ms }
    }

    /// How long it is to this wall time.
    pub(super) fn until_wall(self, wall_ms: u64) -> Duration {
        Duration::from_millis(wall_ms.saturating_sub(self.wall_ms))
    }

    /// How long it is to this moment of the monotonic clock.
    pub(super) fn until(self, monotonic: Duration) -> Duration {
        monotonic.saturating_sub(self.monotonic)
    }
}

/// Refuses event ids that are 0, given twice, or there already.
pub(super) fn check_new_events(
    operation: &str,
    instance: &str,
    execution_id: u64,
    existing: Option<&Execution>,
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
