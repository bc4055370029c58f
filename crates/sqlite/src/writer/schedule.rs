//! When the writer wakes up, and what it then looks at.

use std::time::Duration;

use everturn_core::SemverRange;
use rusqlite::Connection;

use crate::clock_reading::{ClockReading, unsigned};
use crate::columns;
use crate::expired_locks::FutureLocks;
use crate::locks::OwnLocks;

/// The clocks are read at least this often while a fetch is parked: they may have been set.
pub(crate) const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// A busy writer finds out what becomes due next this long after a commit at the latest.
const DUE_UNKNOWN_MAX: Duration = Duration::from_millis(1);
/// How many batches in a row postpone the expiry of locks because calls of lock holders are pending.
const EXPIRY_DEFERRED_MAX: u32 = 16;
/// Up to so many instances are looked at again after every commit of another process. If more were skipped, the look that is
/// taken every second finds what the other process made ready among them.
const SKIPPED_FEW: usize = 256;
const NEXT_DUE: &str = "SELECT min(at_ms) FROM ( \
     SELECT min(visible_at_ms) AS at_ms FROM orchestrator_queue WHERE visible_at_ms > 0 AND visible_at_ms > ?1 \
     UNION ALL SELECT min(visible_at_ms) FROM worker_queue WHERE visible_at_ms > 0 AND visible_at_ms > ?1 \
     UNION ALL SELECT min(delayed_until_ms) FROM instances \
         WHERE delayed_until_ms IS NOT NULL AND delayed_until_ms > ?1 \
     UNION ALL SELECT min(locked_until_ms) FROM instances \
         WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 \
     UNION ALL SELECT min(locked_until_ms) FROM worker_queue \
         WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 \
     UNION ALL SELECT min(lease_until_ms) FROM sessions WHERE lease_until_ms > ?1)";

/// Where a look is worthwhile: hints that may be wrong, never the only record of anything.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WorkHints {
    /// Instances may be ready.
    pub(crate) turns: bool,
    /// Orphaned messages may be there.
    pub(crate) orphans: bool,
    /// Activities may be ready.
    pub(crate) work: bool,
    /// Messages, locks or leases may have become due.
    pub(crate) time: bool,
}

impl WorkHints {
    pub(crate) const ALL: Self = Self { turns: true, orphans: true, work: true, time: true };
}

/// The ready instances at the front of the queue that no parked fetch can replay. They are skipped as long as only
/// instances with newer messages become ready.
#[derive(Debug)]
pub(crate) struct SkippedInstances {
    /// The versions that all parked fetches can replay; `None` if the fetches differ.
    range: Option<Option<SemverRange>>,
    /// The last skipped instance, by its oldest message.
    pub(crate) up_to: i64,
    /// How many there are.
    count: usize,
    /// A parked fetch can replay the next instance.
    pub(crate) ends: bool,
}

impl SkippedInstances {
    /// Skips the instance whose oldest message is `seq`, if all before it are skipped.
    pub(crate) fn skip(&mut self, seq: i64) {
        if !self.ends {
            self.up_to = seq;
            self.count += 1;
        }
    }
}

/// The schedule of wake-ups.
#[derive(Debug)]
pub(crate) struct WakeSchedule {
    pub(crate) hints: WorkHints,
    /// The last batch was full before every parked fetch was served.
    pub(crate) assignment_owed: bool,
    /// Locks that end later than they could: the wall clock was set back.
    pub(crate) future_locks: FutureLocks,
    skipped: Option<SkippedInstances>,
    /// Everything that became due up to this wall time was woken.
    woken_ms: i64,
    /// When something becomes due next, as of the last look ahead.
    next_due_ms: Option<i64>,
    /// Since when something that becomes due earlier may have been written.
    due_unknown_since: Option<Duration>,
    /// When everything was last looked at, by the monotonic clock.
    looked_at: Duration,
    expiry_deferred: u32,
}

impl Default for WakeSchedule {
    fn default() -> Self {
        Self {
            hints: WorkHints::ALL,
            assignment_owed: false,
            future_locks: FutureLocks::default(),
            skipped: None,
            woken_ms: i64::MIN,
            next_due_ms: None,
            due_unknown_since: Some(Duration::ZERO),
            looked_at: Duration::ZERO,
            expiry_deferred: 0,
        }
    }
}

impl WakeSchedule {
    /// Something that becomes due may have been written.
    pub(crate) fn note_unknown_due(&mut self, now: ClockReading) {
        self.due_unknown_since.get_or_insert(now.monotonic);
    }

    /// Discards what earlier looks found, because another process has committed. Its new messages come after all others, so
    /// that instances are still skipped if it is dear to look at them again.
    pub(crate) fn forget_looks(&mut self, now: ClockReading) {
        self.woken_ms = i64::MIN;
        self.next_due_ms = None;
        self.note_unknown_due(now);
        self.skipped = self.skipped.take().filter(|skipped| skipped.count > SKIPPED_FEW);
    }

    /// Finds out when something becomes due next, unless that is known.
    pub(crate) fn find_next_due(
        &mut self,
        conn: &Connection,
        now: ClockReading,
    ) -> Result<(), rusqlite::Error> {
        if self.due_unknown_since.is_some() {
            // If the clock was set back, earlier times count again.
            self.woken_ms = self.woken_ms.min(now.wall_ms);
            self.next_due_ms = next_due(conn, self.woken_ms)?;
            self.due_unknown_since = None;
        }
        Ok(())
    }

    /// Whether a busy writer must find out now what becomes due next.
    pub(crate) fn is_look_ahead_overdue(&self, now: ClockReading) -> bool {
        self.due_unknown_since.is_some_and(|since| now.monotonic.saturating_sub(since) >= DUE_UNKNOWN_MAX)
    }

    /// Everything that became due up to `woken_ms` was woken, or `more` of it is left.
    pub(crate) fn note_woken(&mut self, woken_ms: i64, more: bool, now: ClockReading) {
        self.hints.time = more;
        self.woken_ms = woken_ms;
        self.next_due_ms = None;
        self.note_unknown_due(now);
    }

    /// Whether something has become due.
    pub(crate) fn is_due(&self, own_locks: &OwnLocks, now: ClockReading) -> bool {
        self.next_due_ms.is_some_and(|due_ms| due_ms <= now.wall_ms)
            || self.next_deadline(own_locks).is_some_and(|deadline| deadline <= now.monotonic)
    }

    /// How long until something becomes due.
    pub(crate) fn until_due(&self, own_locks: &OwnLocks, now: ClockReading) -> Option<Duration> {
        let by_monotonic =
            self.next_deadline(own_locks).map(|deadline| deadline.saturating_sub(now.monotonic));
        let by_wall = self.next_due_ms.map(|due_ms| until(due_ms, now));
        [by_wall, by_monotonic].into_iter().flatten().min()
    }

    /// When the next lock ends that is judged by the monotonic clock.
    fn next_deadline(&self, own_locks: &OwnLocks) -> Option<Duration> {
        [own_locks.next_deadline(), self.future_locks.next_end()].into_iter().flatten().min()
    }

    /// Everything is looked at again from time to time: clocks may have been set.
    pub(crate) fn look_at_least_every_second(&mut self, now: ClockReading) {
        if now.monotonic.saturating_sub(self.looked_at) >= CLOCK_LOOK {
            self.looked_at = now.monotonic;
            self.hints = WorkHints::ALL;
            self.skipped = None;
        }
    }

    /// Notes a wake-up without a command.
    pub(crate) fn tick(&mut self, now: ClockReading, must_look: bool) {
        self.look_at_least_every_second(now);
        if must_look {
            self.hints = WorkHints::ALL;
        }
    }

    /// Locks have become due that do not expire yet.
    pub(crate) fn note_expiry_deferred(&mut self) {
        self.hints.time = true;
    }

    /// Whether locks may expire now: not while calls of lock holders are pending, unless that takes too long.
    pub(crate) fn may_expire(&mut self, holders_are_pending: bool) -> bool {
        self.expiry_deferred = if holders_are_pending { self.expiry_deferred + 1 } else { 0 };
        if self.expiry_deferred > EXPIRY_DEFERRED_MAX {
            self.expiry_deferred = 0;
        }
        self.expiry_deferred == 0
    }

    /// Where the queue of ready instances begins for fetches that can replay `range`.
    pub(crate) fn take_skipped(&mut self, range: Option<Option<SemverRange>>) -> SkippedInstances {
        match self.skipped.take() {
            Some(skipped) if range.is_some() && skipped.range == range => {
                SkippedInstances { ends: false, ..skipped }
            }
            _ => SkippedInstances { range, up_to: i64::MIN, count: 0, ends: false },
        }
    }

    pub(crate) fn keep_skipped(&mut self, skipped: SkippedInstances) {
        self.skipped = Some(skipped);
    }

    /// Whether an instance whose oldest message is `seq` stands among the skipped ones.
    pub(crate) fn is_skipped(&self, seq: i64) -> bool {
        self.skipped.as_ref().is_some_and(|skipped| seq <= skipped.up_to)
    }

    /// An instance became ready that may stand among the skipped ones.
    pub(crate) fn forget_skipped(&mut self) {
        self.skipped = None;
    }
}

/// The earliest wall time after `woken_ms` at which something becomes due. Rows that were due before and did not change are
/// damaged and cannot be woken.
fn next_due(conn: &Connection, woken_ms: i64) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NEXT_DUE)?.query_row([woken_ms], |row| columns::integer(row, 0))
}

/// How long until the wall clock shows `due_ms`.
fn until(due_ms: i64, now: ClockReading) -> Duration {
    Duration::from_millis(unsigned(due_ms.saturating_sub(now.wall_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ClockReading = ClockReading { wall_ms: 1_000, monotonic: Duration::from_secs(100) };

    /// A schedule that has skipped so many instances and looked at everything just now.
    fn having_skipped(count: usize) -> WakeSchedule {
        let mut schedule = WakeSchedule::default();
        schedule.look_at_least_every_second(NOW);
        let mut skipped = schedule.take_skipped(Some(None));
        (1_i64..).take(count).for_each(|seq| skipped.skip(seq));
        schedule.keep_skipped(skipped);
        schedule
    }

    fn skipped_up_to(schedule: &mut WakeSchedule) -> i64 {
        schedule.take_skipped(Some(None)).up_to
    }

    #[test]
    fn many_skipped_instances_are_not_looked_at_again_after_every_foreign_commit() {
        let mut schedule = having_skipped(10_000);
        schedule.forget_looks(NOW);
        assert_eq!(skipped_up_to(&mut schedule), 10_000);
    }

    #[test]
    fn what_another_process_made_ready_among_them_is_found_within_a_second() {
        let mut schedule = having_skipped(10_000);
        schedule.forget_looks(NOW);
        schedule.look_at_least_every_second(ClockReading { monotonic: NOW.monotonic + CLOCK_LOOK, ..NOW });
        assert_eq!(skipped_up_to(&mut schedule), i64::MIN);
    }

    #[test]
    fn few_skipped_instances_are_looked_at_again_after_a_foreign_commit() {
        let mut schedule = having_skipped(10);
        schedule.forget_looks(NOW);
        assert_eq!(skipped_up_to(&mut schedule), i64::MIN);
    }

    #[test]
    fn an_instance_behind_the_skipped_ones_is_none_of_them() {
        let schedule = having_skipped(10);
        assert!(schedule.is_skipped(10) && !schedule.is_skipped(11));
    }
}
