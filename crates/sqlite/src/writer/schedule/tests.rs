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

#[test]
fn a_look_skips_on_from_where_the_last_one_ended() {
    let mut schedule = having_skipped(3);
    let mut skipped = schedule.take_skipped(Some(None));
    // A fetch took the next instance.
    skipped.ends = true;
    skipped.skip(5);
    assert_eq!(skipped.up_to, 3, "what stands behind that instance is not skipped");
    schedule.keep_skipped(skipped);
    let mut skipped = schedule.take_skipped(Some(None));
    skipped.skip(4);
    assert_eq!(skipped.up_to, 4, "in the next look no fetch has taken an instance yet");
}

#[test]
fn fetches_that_differ_skip_nothing_that_others_skipped() {
    let mut schedule = having_skipped(3);
    assert_eq!(schedule.take_skipped(None).up_to, i64::MIN, "the fetches before did not differ");
    let mut skipped = schedule.take_skipped(None);
    skipped.skip(7);
    schedule.keep_skipped(skipped);
    assert_eq!(schedule.take_skipped(None).up_to, i64::MIN, "they may differ in another way");
}

#[test]
fn instances_are_few_up_to_256() {
    for (count, up_to) in [(256, i64::MIN), (257, 257)] {
        let mut schedule = having_skipped(count);
        schedule.forget_looks(NOW);
        assert_eq!(skipped_up_to(&mut schedule), up_to, "{count} were skipped before a foreign commit");
    }
}

#[test]
fn what_ends_at_this_moment_is_due() {
    let mut schedule = WakeSchedule::default();
    let mut locks = OwnLocks::default();
    assert!(!schedule.is_due(&locks, NOW), "nothing is known to become due");
    schedule.next_due_ms = Some(NOW.wall_ms + 1);
    assert!(!schedule.is_due(&locks, NOW), "it is due in a millisecond");
    schedule.next_due_ms = Some(NOW.wall_ms);
    assert!(schedule.is_due(&locks, NOW), "it is due now");
    schedule.next_due_ms = None;
    locks.hold("t", NOW, 1);
    assert!(!schedule.is_due(&locks, NOW), "the lock ends in a millisecond");
    locks.hold("t", NOW, 0);
    assert!(schedule.is_due(&locks, NOW), "the lock ends now");
}

#[test]
fn the_writer_sleeps_until_the_first_end_by_either_clock() {
    let mut schedule = WakeSchedule::default();
    let mut locks = OwnLocks::default();
    assert_eq!(schedule.until_due(&locks, NOW), None);
    schedule.next_due_ms = Some(NOW.wall_ms + 30);
    assert_eq!(schedule.until_due(&locks, NOW), Some(Duration::from_millis(30)));
    locks.hold("t", NOW, 20);
    assert_eq!(schedule.until_due(&locks, NOW), Some(Duration::from_millis(20)));
    let late = ClockReading { wall_ms: NOW.wall_ms + 40, monotonic: NOW.monotonic };
    assert_eq!(schedule.until_due(&locks, late), Some(Duration::ZERO), "it is overdue by the wall clock");
}

#[test]
fn expiry_is_deferred_by_sixteen_batches_at_most() {
    let mut schedule = WakeSchedule::default();
    assert!(schedule.may_expire(false), "no call of a lock holder is pending");
    for round in 0..2 {
        for nth in 1..=EXPIRY_DEFERRED_MAX {
            assert!(!schedule.may_expire(true), "batch {nth} of round {round} defers it");
        }
        assert!(schedule.may_expire(true), "the batch after round {round} does not");
    }
    assert!(!schedule.may_expire(true));
    assert!(schedule.may_expire(false), "no call is pending any more");
}

#[test]
fn a_busy_writer_looks_ahead_a_millisecond_after_a_commit() {
    let mut schedule = WakeSchedule { due_unknown_since: None, ..WakeSchedule::default() };
    let after = |micros| ClockReading { monotonic: NOW.monotonic + Duration::from_micros(micros), ..NOW };
    assert!(!schedule.is_look_ahead_overdue(after(5_000)), "nothing was written");
    schedule.note_unknown_due(NOW);
    schedule.note_unknown_due(after(500));
    assert!(!schedule.is_look_ahead_overdue(after(999)));
    assert!(schedule.is_look_ahead_overdue(after(1_000)), "counted from the first commit on");
}
