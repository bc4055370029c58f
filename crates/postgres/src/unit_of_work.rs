//! A batch under way: the rows that its operations work on.
//!
//! The rows are read and locked in one round trip, in the order that all transactions keep: instances by their keys, then
//! activities by `seq`. The operations then decide in memory, one after the other: each sees what those before it did, and
//! one that is refused has changed nothing. What they changed is written and committed in a second round trip, with one
//! statement for each kind of row.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use everturn_provider::encoded::{EventCounts, StoredActivity};

use crate::instance_image::InstanceImage;
use crate::locks::StoredLock;
use crate::totals::TotalsChange;
use crate::writes::Writes;

/// The rows of a batch.
#[derive(Default)]
pub(crate) struct UnitOfWork {
    /// The time of the store.
    pub(crate) now_ms: i64,
    /// A moment before that, by the monotonic clock of this process.
    pub(crate) began: Duration,
    pub(crate) instances: BTreeMap<i64, InstanceImage>,
    pub(crate) by_id: HashMap<String, i64>,
    pub(crate) executions: HashMap<(i64, i64), ExecutionImage>,
    /// Rows of the history that may overlap with new events.
    pub(crate) stored_events: Vec<StoredRange>,
    pub(crate) activities: HashMap<i64, ActivityImage>,
    /// Ready activities for the workers of steps, the oldest first. None of them is named by an operation of the batch: what
    /// becomes of those is for the operations to say.
    pub(crate) ready: VecDeque<ReadyRow>,
    /// Activities that the batch cancels.
    pub(crate) cancelled: HashSet<ActivityIdentity>,
    /// Numbers for new rows, in order.
    pub(crate) message_seqs: VecDeque<i64>,
    pub(crate) activity_seqs: VecDeque<i64>,
    /// Messages that have become due: their instances and their numbers.
    pub(crate) due_messages: Vec<(i64, i64)>,
    /// How many leases each renewal has extended.
    pub(crate) renewed_leases: VecDeque<usize>,
    pub(crate) writes: Writes,
    pub(crate) effects: CommitEffects,
    /// The owner of the locks that are taken here.
    pub(crate) owner: i64,
}

/// The row of an execution.
#[derive(Debug, Clone)]
pub(crate) struct ExecutionImage {
    pub(crate) status: String,
    pub(crate) pin: Option<String>,
    /// Its events, unless it is the current one.
    pub(crate) events: EventCounts,
}

/// Events that are stored in one row.
#[derive(Debug, Clone)]
pub(crate) struct StoredRange {
    pub(crate) key: i64,
    pub(crate) execution_id: i64,
    pub(crate) events: String,
}

/// The row of an activity.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActivityImage {
    pub(crate) lock: StoredLock,
    pub(crate) session_id: Option<String>,
}

/// An instance, an execution of it, and the event that scheduled an activity there.
pub(crate) type ActivityIdentity = (String, i64, i64);

/// An activity that is ready for any worker without tags.
#[derive(Debug, Clone)]
pub(crate) struct ReadyRow {
    pub(crate) seq: i64,
    pub(crate) identity: ActivityIdentity,
    pub(crate) attempt_count: i64,
    pub(crate) work_item: String,
    /// It is inserted by this batch.
    pub(crate) is_new: bool,
}

/// What the provider must know of a batch that was committed.
#[derive(Debug, Default)]
pub(crate) struct CommitEffects {
    /// An instance became ready.
    pub(crate) turns: bool,
    /// There are orphaned messages to delete.
    pub(crate) orphans: bool,
    /// An activity became ready.
    pub(crate) work: bool,
    /// When the first of the new rows becomes visible, or the first lock ends.
    pub(crate) due_ms: Option<i64>,
    /// Instances whose watches fire.
    pub(crate) touched: Vec<String>,
    /// How the totals change.
    pub(crate) totals: TotalsChange,
}

impl CommitEffects {
    /// Something becomes due then.
    pub(crate) fn due_at(&mut self, at_ms: i64) {
        self.due_ms = Some(self.due_ms.map_or(at_ms, |due_ms| due_ms.min(at_ms)));
    }
}

impl UnitOfWork {
    /// The key of an instance that was read or made.
    pub(crate) fn key_of(&self, instance_id: &str) -> Option<i64> {
        self.by_id.get(instance_id).copied()
    }

    /// A number for a new message. There are as many as the operations said.
    pub(crate) fn next_message(&mut self) -> Option<i64> {
        self.message_seqs.pop_front()
    }

    /// A number for a new activity.
    pub(crate) fn next_activity(&mut self) -> Option<i64> {
        self.activity_seqs.pop_front()
    }

    /// An activity is inserted by this batch: the workers of its steps may take it.
    pub(crate) fn note_new_activity(&mut self, seq: i64, activity: &StoredActivity) {
        if activity.session_id.is_none() && activity.tag.is_none() {
            let identity = (activity.instance_id.clone(), activity.execution_id, activity.activity_id);
            let work_item = activity.work_item.clone();
            self.ready.push_back(ReadyRow { seq, identity, attempt_count: 0, work_item, is_new: true });
        } else {
            self.effects.work = true;
        }
    }

    /// The oldest activity that the worker of a step may take.
    pub(crate) fn next_ready(&mut self) -> Option<ReadyRow> {
        loop {
            let row = self.ready.pop_front()?;
            if !self.cancelled.contains(&row.identity) {
                return Some(row);
            }
        }
    }

    /// All operations have run: rows that were made and are not needed go. Activities that no worker of a step took are news;
    /// those that were there before were locked for a moment, and another process that looked then has not seen them.
    pub(crate) fn finish(&mut self) {
        self.effects.work |= self.ready.iter().any(|row| !self.cancelled.contains(&row.identity));
        let is_unused =
            |instance: &&InstanceImage| instance.is_new && !instance.is_changed && !instance.is_taken();
        let unused =
            self.instances.values().filter(is_unused).filter(|instance| instance.untagged.oldest.is_none());
        let unused: Vec<i64> = unused.map(|instance| instance.key).collect();
        self.writes.delete_empty.extend(unused);
    }

    /// Whether nothing waits for a timer of this execution any more.
    pub(crate) fn is_unawaited(&self, key: i64, execution_id: i64) -> bool {
        let current = self.instances.get(&key).and_then(|instance| instance.current_execution_id);
        let status = self.executions.get(&(key, execution_id)).map(|execution| execution.status.as_str());
        current.is_some_and(|current| current > execution_id)
            || status.is_some_and(|status| status != "Running")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everturn_core::WorkItem;

    use super::*;
    use crate::fetch_work::WorkLock;

    fn unit_with_activity(tag: Option<&str>) -> UnitOfWork {
        let item = WorkItem::ActivityExecute {
            instance: "i".to_owned(),
            execution_id: 1,
            id: 2,
            name: "Charge".to_owned(),
            input: String::new(),
            session_id: None,
            tag: tag.map(str::to_owned),
        };
        let activity = StoredActivity::encode("commit_step", &item).unwrap();
        let mut unit = UnitOfWork::default();
        unit.writes.activities.push(7, &activity, 1);
        unit.note_new_activity(7, &activity);
        unit
    }

    #[test]
    fn an_activity_that_a_worker_of_its_step_takes_is_no_news() {
        let mut unit = unit_with_activity(None);
        unit.assign_ready(&WorkLock { random: 1, lock_timeout: Duration::from_secs(30) }).unwrap();
        unit.finish();
        assert!(!unit.effects.work);
    }

    #[test]
    fn an_activity_that_is_left_ready_is_news() {
        for tag in [None, Some("gpu")] {
            let mut unit = unit_with_activity(tag);
            unit.finish();
            assert!(unit.effects.work, "{tag:?}");
        }
    }
}
