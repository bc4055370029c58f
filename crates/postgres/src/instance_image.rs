//! The row of an instance, read and locked by a batch, changed in memory, and written back once.

use everturn_provider::encoded::EventCounts;
use tokio_postgres::{Error, Row};

use crate::locks::StoredLock;

/// The row of an instance, with what the batch must know of its messages.
#[derive(Debug, Default)]
pub(crate) struct InstanceImage {
    pub(crate) key: i64,
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) current_execution_id: Option<i64>,
    pub(crate) parent: Option<String>,
    /// It exists once this is set.
    pub(crate) created_at_ms: Option<i64>,
    pub(crate) updated_at_ms: Option<i64>,
    /// The status of its current execution.
    pub(crate) status: Option<String>,
    pub(crate) ended_at_ms: Option<i64>,
    pub(crate) failure_kind: Option<String>,
    pub(crate) needs_engine: i64,
    pub(crate) is_paused: bool,
    pub(crate) stamp: Option<i64>,
    /// The events of the current execution.
    pub(crate) events: EventCounts,
    /// Its messages need no start among them: it exists, or its history has a start.
    pub(crate) startable: bool,
    pub(crate) ready_seq: Option<i64>,
    pub(crate) unstarted_since_ms: Option<i64>,
    pub(crate) orphaned: bool,
    pub(crate) lock: StoredLock,
    pub(crate) delayed_until_ms: Option<i64>,
    pub(crate) missing_handler: Option<String>,
    pub(crate) missing_version: Option<String>,
    /// Its row was made by this batch.
    pub(crate) is_new: bool,
    /// The turn that created the instance is in this batch.
    pub(crate) is_created_now: bool,
    pub(crate) is_changed: bool,
    pub(crate) is_deleted: bool,
    /// When the latest of its visible messages arrived.
    pub(crate) latest_arrival_ms: Option<i64>,
    /// Messages that no lock holder has.
    pub(crate) untagged: QueuedMessages,
    /// Those of the lock holder. Known only of an instance that is not startable.
    pub(crate) tagged: QueuedMessages,
}

/// What decides about an instance whose messages wait for a start; of any other only the oldest visible one is known, and only
/// if its lock may end.
#[derive(Debug, Default, Clone)]
pub(crate) struct QueuedMessages {
    /// The oldest that is visible.
    pub(crate) oldest: Option<i64>,
    /// A start is there, visible or not.
    pub(crate) has_start: bool,
    pub(crate) has_visible_start: bool,
    /// A visible one is no queue message.
    pub(crate) has_visible_other: bool,
    /// When the first one arrived.
    pub(crate) first_arrival_ms: Option<i64>,
}

/// The columns that [`InstanceImage::of`] reads.
macro_rules! instance_columns {
    () => {
        "i.instance_key, i.instance_id, i.orchestration_name, i.orchestration_version, i.current_execution_id, \
         i.parent_instance_id, i.created_at_ms, i.updated_at_ms, i.status, i.ended_at_ms, i.failure_kind, i.needs_engine, \
         i.paused_at_ms IS NOT NULL, i.turn_stamp, i.event_count, i.event_bytes, i.last_event_id, i.startable, i.ready_seq, \
         i.unstarted_since_ms, i.orphaned, i.lock_token, i.locked_until_ms, i.lock_ms, i.delayed_until_ms, \
         i.missing_handler, i.missing_version"
    };
}
pub(crate) use instance_columns;

impl InstanceImage {
    pub(crate) fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            key: row.try_get(0)?,
            id: row.try_get(1)?,
            name: row.try_get(2)?,
            version: row.try_get(3)?,
            current_execution_id: row.try_get(4)?,
            parent: row.try_get(5)?,
            created_at_ms: row.try_get(6)?,
            updated_at_ms: row.try_get(7)?,
            status: row.try_get(8)?,
            ended_at_ms: row.try_get(9)?,
            failure_kind: row.try_get(10)?,
            needs_engine: row.try_get(11)?,
            is_paused: row.try_get(12)?,
            stamp: row.try_get(13)?,
            events: EventCounts {
                count: row.try_get(14)?,
                bytes: row.try_get(15)?,
                last_event_id: row.try_get(16)?,
            },
            startable: row.try_get(17)?,
            ready_seq: row.try_get(18)?,
            unstarted_since_ms: row.try_get(19)?,
            orphaned: row.try_get(20)?,
            lock: StoredLock {
                token: row.try_get(21)?,
                until_ms: row.try_get(22)?,
                lock_ms: row.try_get(23)?,
            },
            delayed_until_ms: row.try_get(24)?,
            missing_handler: row.try_get(25)?,
            missing_version: row.try_get(26)?,
            ..Self::default()
        })
    }

    pub(crate) fn is_created(&self) -> bool {
        self.created_at_ms.is_some()
    }

    /// Whether it exists, or a start of it is queued.
    pub(crate) fn is_taken(&self) -> bool {
        self.startable || self.untagged.has_start || self.tagged.has_start
    }

    /// Whether it is given back with a delay for all.
    fn waits(&self) -> bool {
        self.delayed_until_ms.is_some() && self.missing_handler.is_none()
    }

    /// Finds out again whether the instance is ready, and whether its messages are orphans. An expired lock stays in its row
    /// until another fetch takes it over; a lock that holds keeps the instance from being ready.
    pub(crate) fn refresh(&mut self) {
        if self.lock.token.is_some() && self.ready_seq.is_none() {
            return;
        }
        self.expose();
    }

    /// The same although a lock is in the row: it has expired.
    pub(crate) fn expose(&mut self) {
        self.is_changed = true;
        let [untagged, tagged] = [&self.untagged, &self.tagged];
        let oldest = [untagged.oldest, tagged.oldest].into_iter().flatten().min();
        let has_start = untagged.has_start || tagged.has_start;
        let may_start = self.startable || untagged.has_visible_start || tagged.has_visible_start;
        let has_other = untagged.has_visible_other || tagged.has_visible_other;
        self.ready_seq = oldest.filter(|_| may_start && !self.waits());
        self.orphaned = !self.startable && !has_start && oldest.is_some() && !has_other;
    }

    /// Notes that messages wait for a start from `arrived_at_ms` on, unless a start is queued.
    pub(crate) fn note_unstarted(&mut self, arrived_at_ms: i64) {
        if self.untagged.has_start || self.tagged.has_start {
            return;
        }
        let earliest = self.unstarted_since_ms.map_or(arrived_at_ms, |since| since.min(arrived_at_ms));
        self.unstarted_since_ms = Some(earliest);
        self.is_changed = true;
    }

    /// Clears the lock.
    pub(crate) fn unlock(&mut self) {
        self.lock = StoredLock::default();
        self.is_changed = true;
    }

    /// Ends a delay.
    pub(crate) fn end_delay(&mut self) {
        (self.delayed_until_ms, self.missing_handler, self.missing_version) = (None, None, None);
        self.is_changed = true;
    }
}
