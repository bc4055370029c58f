//! Aids for tests: damaging records as a bad disk would, and seeing what no verb tells.

use std::time::Duration;

use super::MemoryProvider;
use super::tables::Stored;

/// What is left of a damaged record.
const DAMAGE: &str = "expected value at line 1 column 1";

impl MemoryProvider {
    /// A testing aid: makes one stored event unreadable. Returns whether there was such an event.
    ///
    /// Nothing else changes, so an instance that a runtime keeps in memory does not notice before it reads its history
    /// again.
    pub fn damage_event(&self, instance: &str, execution_id: u64, event_id: u64) -> bool {
        self.with_tables(|tables| {
            let execution = tables.executions.get_mut(instance).and_then(|all| all.get_mut(&execution_id));
            let event = execution.and_then(|execution| execution.events.get_mut(&event_id));
            event.map(|event| *event = Stored::Damaged(DAMAGE.to_owned())).is_some()
        })
    }

    /// A testing aid: makes every message that waits for this instance unreadable. Returns how many there were.
    pub fn damage_messages(&self, instance: &str) -> usize {
        self.with_tables(|tables| {
            let rows = tables.orchestrator_queue.values_mut().filter(|message| message.instance == instance);
            rows.map(|message| message.item = Stored::Damaged(DAMAGE.to_owned())).count()
        })
    }

    /// A testing aid: makes every queued activity of this instance unreadable; on request also the columns that say
    /// whose it is. Returns how many there were.
    pub fn damage_work_items(&self, instance: &str, also_identity: bool) -> usize {
        self.with_tables(|tables| {
            let rows = tables.worker_queue.values_mut().filter(|activity| activity.is_of(instance));
            rows.map(|activity| {
                activity.item = Stored::Damaged(DAMAGE.to_owned());
                activity.identity = activity.identity.take().filter(|_| !also_identity);
            })
            .count()
        })
    }

    /// A testing aid: how many activities were set aside because nobody can tell whose they are.
    pub fn work_items_set_aside(&self) -> usize {
        self.with_tables(|tables| tables.dead_letters.len())
    }

    /// A testing aid: how often each message that waits for this instance was fetched, oldest first.
    pub fn message_attempts(&self, instance: &str) -> Vec<u32> {
        self.with_tables(|tables| {
            let rows = tables.orchestrator_queue.values().filter(|message| message.instance == instance);
            rows.map(|message| message.attempt_count).collect()
        })
    }

    /// A testing aid: how often each queued activity of this instance was fetched, oldest first.
    pub fn work_item_attempts(&self, instance: &str) -> Vec<u32> {
        self.with_tables(|tables| {
            let rows = tables.worker_queue.values().filter(|activity| activity.is_of(instance));
            rows.map(|activity| activity.attempt_count).collect()
        })
    }

    /// A testing aid: how long the lock with this token still lasts; `None` if no row bears it.
    pub fn lock_left(&self, token: &str) -> Option<Duration> {
        let now = self.moment();
        self.with_tables(|tables| tables.lock(token).map(|lock| now.until(lock.held_until)))
    }

    /// A testing aid: the instances that are locked, and those whose lock ran out unreleased.
    pub fn locked_instances(&self) -> Vec<String> {
        self.with_tables(|tables| tables.instance_locks.keys().cloned().collect())
    }
}
