use std::cell::Cell;

use super::*;

thread_local! {
    /// How many reads were looked at.
    pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
}

const READS: u64 = 3000;

/// Queues with so many reads of one queue and no message; the tokens are the event ids plus 1,000,000.
fn with_reads(reads: u64) -> Queues {
    let mut queues = Queues::default();
    for id in 0..reads {
        assert!(!queues.subscribe("q", id, token(id)));
    }
    queues
}

const fn token(event_id: u64) -> u64 {
    event_id + 1_000_000
}

/// How many reads are looked at meanwhile.
fn steps(run: impl FnOnce()) -> u64 {
    STEPS.with(|steps| steps.set(0));
    run();
    STEPS.with(Cell::get)
}

/// What a binary search among [`READS`] looks at, at most.
const SEARCH: u64 = 13;

#[test]
fn work_of_a_thousand_reads_grows_with_their_number_only() {
    let mut queues = with_reads(READS);
    let delivered = steps(|| {
        for id in 0..READS {
            assert_eq!(queues.arrive("q", "m"), Some(token(id)));
        }
    });
    assert_eq!(delivered, 0, "a delivery looks for nothing");
    let read = steps(|| {
        for id in (0..READS).rev() {
            assert_eq!(queues.read(token(id)).as_deref(), Some("m"));
        }
    });
    assert!(read <= READS * SEARCH, "{READS} reads looked at {read} reads");
}

#[test]
fn work_of_a_thousand_drops_grows_with_their_number_only() {
    let mut queues = with_reads(READS);
    let dropped = steps(|| {
        for id in 0..READS {
            assert_eq!(queues.cancel(token(id)), None);
        }
    });
    assert!(dropped <= READS * SEARCH, "{READS} drops looked at {dropped} reads");
}

#[test]
fn asking_which_of_a_thousand_reads_are_open_looks_at_each_a_few_times() {
    let mut queues = with_reads(READS);
    queues.arrive("q", "m");
    let asked = steps(|| {
        let answered = (0..READS).filter(|id| queues.was_answered(*id)).count();
        assert_eq!(answered, 1);
    });
    assert!(asked <= READS * SEARCH, "{READS} questions looked at {asked} reads");
}

#[test]
fn queue_that_holds_nothing_is_forgotten() {
    let mut queues = Queues::default();
    for id in 0..100 {
        let name = format!("q{id}");
        queues.subscribe(&name, id, token(id));
        if id % 2 == 0 {
            queues.arrive(&name, "m");
            queues.read(token(id));
        } else {
            queues.cancel(token(id));
        }
    }
    assert!(queues.by_name.is_empty() && queues.reads.is_empty() && queues.tokens.is_empty());
    queues.arrive("kept", "m");
    assert_eq!((queues.by_name.len(), queues.unread_bytes()), (1, 5));
}

#[test]
fn removed_read_gives_its_message_to_the_first_read_without_one() {
    let mut queues = with_reads(4);
    assert_eq!(queues.arrive("q", "a"), Some(token(0)));
    assert_eq!(queues.arrive("q", "b"), Some(token(1)));
    assert_eq!(queues.cancel(token(3)), None, "it had no message");
    assert_eq!(queues.cancel(token(0)), Some(token(2)));
    assert_eq!(queues.cancel(token(1)), None, "no read is left without a message");
    assert_eq!(queues.read(token(2)).as_deref(), Some("a"));
    assert!(queues.subscribe("q", 9, token(9)), "a message waits for it");
    assert_eq!(queues.read(token(9)).as_deref(), Some("b"));
}
