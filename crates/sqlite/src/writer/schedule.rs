//! When the writer wakes up, and what it then looks at.

use everturn_provider::encoded::unsigned;
use std::time::Duration;

use everturn_core::SemverRange;
use rusqlite::Connection;

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::expired_locks::FutureLocks;
use crate::locks::OwnLocks;

/// The clocks are read at least this often while a fetch is parked: they may have been set.
pub(crate) const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// A busy writer finds out what becomes due next this long after a commit at the latest.
const DUE_UNKNOWN_MAX: Duration = Duration::from_millis(1);
/// Pauses between looks at instances that are passed over while their runtime takes a step of them. A step that commits makes
/// the writer look at once.
const STEP_PAUSE_MIN: Duration = Duration::from_millis(5);
const STEP_PAUSE_MAX: Duration = Duration::from_millis(100);
/// How many batches in a row postpone the expiry of locks because calls of lock holders are pending.
const EXPIRY_DEFERRED_MAX: u32 = 16;
/// Up to so many instances are looked at again after every commit of another process. If more were skipped, the look that is
/// taken every second finds what the other process made ready among them.
const SKIPPED_FEW: usize = 256;
const NEXT_DUE: &str = "SELECT min(at_ms) FROM ( \
     SELECT min(visible_at_ms) AS at_ms FROM everturn_orchestrator_queue WHERE visible_at_ms > 0 AND visible_at_ms > ?1 \
     UNION ALL SELECT min(visible_at_ms) FROM everturn_worker_queue WHERE visible_at_ms > 0 AND visible_at_ms > ?1 \
     UNION ALL SELECT min(delayed_until_ms) FROM everturn_instances \
         WHERE delayed_until_ms IS NOT NULL AND delayed_until_ms > ?1 \
     UNION ALL SELECT min(locked_until_ms) FROM everturn_instances \
         WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 \
     UNION ALL SELECT min(locked_until_ms) FROM everturn_worker_queue \
         WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 \
     UNION ALL SELECT min(lease_until_ms) FROM everturn_sessions WHERE lease_until_ms > ?1)";

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

/// When to look again at instances whose runtime takes a step of them. Nothing reports a step that ends without a commit.
#[derive(Debug, Default)]
struct StepRetry {
    /// By the monotonic clock; `None` if no instance was passed over.
    at: Option<Duration>,
    pause: Duration,
}

/// The schedule of wake-ups.
#[derive(Debug)]
pub(crate) struct WakeSchedule {
    pub(crate) hints: WorkHints,
    /// The last batch was full before every parked fetch was served.
    pub(crate) assignment_owed: bool,
    /// At least as many instances were ready as were asked for, and a fetch may take several of them.
    pub(crate) several_are_ready: bool,
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
    step_retry: StepRetry,
}

impl Default for WakeSchedule {
    fn default() -> Self {
        Self {
            hints: WorkHints::ALL,
            assignment_owed: false,
            several_are_ready: false,
            future_locks: FutureLocks::default(),
            skipped: None,
            woken_ms: i64::MIN,
            next_due_ms: None,
            due_unknown_since: Some(Duration::ZERO),
            looked_at: Duration::ZERO,
            expiry_deferred: 0,
            step_retry: StepRetry::default(),
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
        let by_step = self.step_retry.at.map(|at| at.saturating_sub(now.monotonic));
        [by_wall, by_monotonic, by_step].into_iter().flatten().min()
    }

    /// When the next lock ends that is judged by the monotonic clock.
    #[inline(always)]
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

    /// All ready instances were looked at; some were passed over because their runtime takes a step of them, or none.
    pub(crate) fn note_stepping(&mut self, was_passed_over: bool, now: ClockReading) {
        if !was_passed_over {
            self.step_retry = StepRetry::default();
        } else if self.step_retry.at.is_none() {
            let pause = self.step_retry.pause.saturating_mul(2).clamp(STEP_PAUSE_MIN, STEP_PAUSE_MAX);
            self.step_retry = StepRetry { at: Some(now.monotonic.saturating_add(pause)), pause };
        }
    }

    /// Looks again at instances that were passed over for a step, if their pause is over.
    pub(crate) fn look_at_stepping(&mut self, now: ClockReading) {
        if self.step_retry.at.is_some_and(|at| at <= now.monotonic) {
            self.step_retry.at = None;
            self.hints.turns = true;
        }
    }

    /// Notes a wake-up without a command.
    pub(crate) fn tick(&mut self, now: ClockReading, must_look: bool) {
        self.look_at_least_every_second(now);
        self.look_at_stepping(now);
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
mod tests;
