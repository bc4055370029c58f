use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_provider::ManualClock;

use super::*;

/// A clock that does something whenever its monotonic time is read.
struct ScriptedClock {
    time: ManualClock,
    on_read: Box<dyn Fn(&ManualClock) + Send + Sync>,
}

impl fmt::Debug for ScriptedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.time.fmt(f)
    }
}

impl Clock for ScriptedClock {
    fn wall_ms(&self) -> u64 {
        self.time.wall_ms()
    }

    fn monotonic(&self) -> Duration {
        (self.on_read)(&self.time);
        self.time.monotonic()
    }

    fn random_u128(&self) -> u128 {
        self.time.random_u128()
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.time.moved()
    }
}

/// A file, the connection of another process, and one that does not wait for it by itself.
fn shared_file() -> (tempfile::TempDir, Connection, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (0)").unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.busy_timeout(Duration::ZERO).unwrap();
    (folder, other, conn)
}

fn connection(conn: Connection, on_read: impl Fn(&ManualClock) + Send + Sync + 'static) -> WriteConnection {
    let clock = ScriptedClock { time: ManualClock::new(0), on_read: Box::new(on_read) };
    WriteConnection::new(conn, Arc::new(clock), BUSY_PAUSE * 4)
}

#[test]
fn no_transaction_begins_while_another_process_has_the_file() {
    let (_folder, other, conn) = shared_file();
    let db = connection(conn, |_| {});
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = db.begin().expect("a locked file is no failure of the store");
    assert!(!began, "another process has the file");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(db.begin().unwrap(), "the file is free");
}

#[test]
fn an_error_that_is_no_lock_does_not_count_as_one() {
    let (_folder, _other, conn) = shared_file();
    let db = connection(conn, |_| {});
    assert!(db.begin().unwrap());
    db.begin().expect_err("a transaction is open");
    db.begin_before(Duration::MAX).expect_err("waiting would change nothing");
}

#[test]
fn a_transaction_that_may_wait_begins_when_the_other_process_has_left() {
    let (_folder, other, conn) = shared_file();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let other = Mutex::new(Some(other));
    let leaves = move |_: &ManualClock| drop(other.lock().unwrap().take());
    let db = connection(conn, leaves);
    db.begin_before(Duration::from_secs(1)).expect("the other process has left before the deadline");
}

#[test]
fn a_transaction_waits_no_longer_than_its_deadline() {
    let (_folder, other, conn) = shared_file();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let db = connection(conn, |time| time.advance(Duration::from_millis(400)));
    // Read at 400 ms, at 800 ms and at the deadline.
    db.begin_before(Duration::from_millis(1_200)).expect_err("the other process still has the file");
    assert_eq!(db.clock.monotonic(), Duration::from_millis(1_600), "the clock was read three times before");
}

static COMMITS_TRIED: AtomicUsize = AtomicUsize::new(0);

/// Counts, and does not wait.
fn count_commit(_tries: i32) -> bool {
    COMMITS_TRIED.fetch_add(1, Ordering::SeqCst);
    false
}

#[test]
fn a_commit_waits_for_readers_as_long_as_the_timeout_says() {
    let (_folder, other, mut conn) = shared_file();
    conn.busy_handler(Some(count_commit)).unwrap();
    let mut db = connection(conn, |_| {});
    let changes_before = db.conn.total_changes();
    assert!(db.begin().unwrap());
    db.conn.execute("INSERT INTO t VALUES (1)", []).unwrap();
    // In this journal mode a reader keeps a commit from the file.
    other.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    let lost = db.commit(changes_before).expect_err("the reader has not left");
    assert!(matches!(lost, BatchLoss::Storage(_)), "{lost:?}");
    assert_eq!(COMMITS_TRIED.load(Ordering::SeqCst), 5, "at once, and after each of four pauses");
    db.roll_back().unwrap();
    assert!(db.conn.is_autocommit(), "nothing of it is left");
}

#[test]
fn a_transaction_that_wrote_nothing_is_not_committed() {
    let (_folder, _other, conn) = shared_file();
    let mut db = connection(conn, |_| {});
    assert!(db.begin().unwrap());
    assert!(!db.commit(db.conn.total_changes()).unwrap(), "nothing was written");
    assert!(db.conn.is_autocommit(), "but the transaction is over");
}

#[test]
fn what_a_commit_takes_is_a_moving_average() {
    let (_folder, _other, conn) = shared_file();
    let mut db = connection(conn, |time| time.advance(Duration::from_micros(800)));
    let mut windows = Vec::new();
    for value in 0..2 {
        let changes_before = db.conn.total_changes();
        assert!(db.begin().unwrap());
        db.conn.execute("INSERT INTO t VALUES (?1)", [value]).unwrap();
        assert!(db.commit(changes_before).unwrap(), "a row was written");
        windows.push(db.window());
    }
    assert_eq!(windows, [Duration::from_nanos(100_000), Duration::from_nanos(187_500)], "an eighth is new");
}

#[test]
fn a_batch_waits_for_others_only_if_a_commit_costs_something() {
    let mut db = connection(Connection::open_in_memory().unwrap(), |_| {});
    // Microseconds: what a commit takes, the wait for early turns, and the wait for a burst.
    let expected = [(49, 0, 0), (50, 100, 12), (200, 200, 50), (300, 300, 75), (1_000, 300, 100)];
    for (commit, window, gap) in expected {
        db.set_commit_time(Duration::from_micros(commit));
        let waits = (db.window().as_micros(), db.burst_gap().as_micros());
        assert_eq!(waits, (window, gap), "if a commit takes {commit} microseconds");
    }
}
