use super::*;

const TAKEN: ClockReading = ClockReading { wall_ms: 1_000, monotonic: Duration::from_secs(100) };

fn after(ms: u64) -> ClockReading {
    ClockReading { monotonic: TAKEN.monotonic + Duration::from_millis(ms), ..TAKEN }
}

#[test]
fn a_lock_with_less_left_than_clocks_are_rounded_has_ended() {
    let mut locks = OwnLocks::default();
    locks.hold("t", TAKEN, 10);
    assert_eq!(locks.left("t", after(7)), Some(Duration::from_millis(3)));
    assert_eq!(locks.left("t", after(8)), None, "two milliseconds are within the rounding");
    assert_eq!(locks.left("t", after(11)), None, "it has ended");
    assert_eq!(locks.left("other", TAKEN), None, "this process does not hold it");
}

#[test]
fn locks_that_end_at_this_moment_have_ended() {
    let mut locks = OwnLocks::default();
    locks.hold("first", TAKEN, 10);
    locks.hold("second", TAKEN, 11);
    assert_eq!(locks.ended(after(9)).count(), 0);
    assert_eq!(locks.ended(after(10)).collect::<Vec<_>>(), ["first"]);
    assert_eq!(locks.ended(after(11)).collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(locks.next_deadline(), Some(after(10).monotonic));
}

#[test]
fn a_renewed_lock_ends_once_and_later() {
    let mut locks = OwnLocks::default();
    locks.hold("t", TAKEN, 10);
    locks.hold("t", after(5), 10);
    assert_eq!(locks.ended(after(14)).count(), 0, "its first end does not count any more");
    assert_eq!(locks.ended(after(15)).count(), 1);
    locks.release("t");
    assert_eq!((locks.ended(after(15)).count(), locks.deadline("t")), (0, None));
}

#[test]
fn ended_locks_are_remembered_up_to_a_limit_and_renewed_ones_are_not_forgotten() {
    let mut locks = OwnLocks::default();
    for token in ["renewed", "lost"] {
        locks.hold(token, TAKEN, 10);
        locks.end(token);
    }
    assert_eq!(locks.next_deadline(), None, "the writer need not wake for them");
    locks.hold("renewed", TAKEN, 20);
    // With the two above they are one more than are remembered.
    for nth in 1..ENDED_MAX {
        let token = nth.to_string();
        locks.hold(&token, TAKEN, 10);
        locks.end(&token);
    }
    assert!(locks.deadline("renewed").is_some(), "it has not ended after all");
    assert!(locks.deadline("lost").is_some(), "as many as the limit are remembered");
    locks.hold("last", TAKEN, 10);
    locks.end("last");
    assert!(locks.deadline("lost").is_none(), "the oldest goes first");
    assert!(locks.deadline("1").is_some(), "and no other");
}

#[test]
fn a_lock_has_aged_after_a_tenth_of_it_or_a_tenth_of_a_second() {
    for (lock_ms, unnoticed_ms) in [(30_000, 100), (1_000, 100), (500, 50)] {
        assert!(!has_aged(TAKEN, after(unnoticed_ms), lock_ms), "{unnoticed_ms} of {lock_ms} ms are spent");
        assert!(has_aged(TAKEN, after(unnoticed_ms + 1), lock_ms), "one more of {lock_ms} ms is spent");
    }
}

#[test]
fn a_lock_is_half_spent_after_more_than_half_of_it() {
    assert!(!half_spent(TAKEN, after(500), 1_000));
    assert!(half_spent(TAKEN, after(501), 1_000));
}

#[test]
fn what_is_left_of_a_lock_counts_from_when_it_was_taken() {
    let length = Duration::from_secs(1);
    assert_eq!(left(TAKEN, after(300), length), Duration::from_millis(700));
    assert_eq!(left(TAKEN, after(1_300), length), Duration::ZERO);
}
