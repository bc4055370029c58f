use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use everturn_provider::ManualClock;

use super::*;
use crate::command_queue::CommandQueue;
use crate::writer::WriterShared;

/// Lets another process lock the file at the moment when the clock is read: between the two reads of a look.
#[derive(Debug)]
struct LockingClock {
    time: ManualClock,
    other: Mutex<Option<Connection>>,
}

impl Clock for LockingClock {
    fn wall_ms(&self) -> u64 {
        self.time.wall_ms()
    }

    fn monotonic(&self) -> Duration {
        if let Some(other) = &*self.other.lock().unwrap() {
            other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        }
        self.time.monotonic()
    }

    fn random_u128(&self) -> u128 {
        self.time.random_u128()
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.time.moved()
    }
}

fn users(path: &Path) -> FileUsers {
    let (commands, shared) = (Arc::new(CommandQueue::default()), Arc::new(WriterShared::default()));
    let process_writers = ProcessWriters::join(path, commands, shared, None, false);
    FileUsers {
        folder: OwnerFolder::beside(path),
        own: None,
        process_writers,
        read_only: false,
        frozen: None,
    }
}

#[test]
fn a_commit_is_noticed_although_the_first_look_at_the_schema_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // In this mode a writer keeps readers out.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (a)").unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.busy_timeout(Duration::ZERO).unwrap();
    let mut others = OtherProcesses::new(&conn, Some(users(&path))).unwrap();
    let clock = Arc::new(LockingClock { time: ManualClock::new(0), other: Mutex::new(None) });
    let db = WriteConnection::new(conn, Arc::clone(&clock) as _, Duration::ZERO);
    let guard = StoreGuard::default();
    other.pragma_update(None, "user_version", 99).unwrap();
    *clock.other.lock().unwrap() = Some(other);
    assert!(others.have_committed(&db, &guard).is_err(), "the file was locked in the middle of the look");
    clock.other.lock().unwrap().take().unwrap().execute_batch("ROLLBACK").unwrap();
    assert!(others.have_committed(&db, &guard).unwrap(), "the commit is noticed after all");
    assert!(guard.refusal().is_some(), "and with it the newer schema");
}

/// A file, another connection to it, and what a writer knows of other processes.
struct SharedFile {
    folder: tempfile::TempDir,
    other: Connection,
    db: WriteConnection,
    clock: Arc<ManualClock>,
    others: OtherProcesses,
}

impl SharedFile {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("store.db")
    }

    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE t (a)").unwrap();
        let conn = Connection::open(&path).unwrap();
        let others = OtherProcesses::new(&conn, Some(users(&path))).unwrap();
        let clock = Arc::new(ManualClock::new(0));
        let db = WriteConnection::new(conn, Arc::clone(&clock) as _, Duration::ZERO);
        Self { folder, other, db, clock, others }
    }

    /// Another process commits, and the writer looks.
    fn commit_elsewhere(&mut self) {
        self.other.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert!(self.others.have_committed(&self.db, &StoreGuard::default()).unwrap(), "it is noticed");
    }

    fn look_interval(&self) -> Duration {
        self.others.look_interval(self.clock.monotonic())
    }

    fn find_dead(&mut self) -> usize {
        self.others.find_dead(self.clock.monotonic()).len()
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn the_writer_leaves_gaps_for_a_second_after_a_foreign_commit() {
    let mut file = SharedFile::open();
    assert!(!file.others.need_gaps(&*file.clock), "no other process has committed");
    file.commit_elsewhere();
    assert!(file.others.need_gaps(&*file.clock), "another process has just committed");
    file.clock.advance(FOREIGN_PRESENCE - MILLISECOND);
    assert!(file.others.need_gaps(&*file.clock), "the second is not over");
    file.clock.advance(MILLISECOND);
    assert!(!file.others.need_gaps(&*file.clock), "the second is over");
}

#[test]
fn the_writer_leaves_gaps_while_another_waits_for_the_file_however_long_ago_it_committed() {
    let mut file = SharedFile::open();
    let folder = OwnerFolder::beside(&file.path());
    let conn = Connection::open(file.path()).unwrap();
    let own = folder.join(&*file.clock).expect("the file system locks files");
    let mut starving =
        OtherProcesses::new(&conn, Some(FileUsers { own: Some(own), ..users(&file.path()) })).unwrap();
    assert_eq!(file.find_dead(), 0);
    assert!(!file.others.need_gaps(&*file.clock), "the other process needs nothing");
    for round in 1..=BUSY_ROUNDS_BEFORE_ASKING {
        assert!(!file.others.need_gaps(&*file.clock), "it finds the file locked for the first time: {round}");
        starving.note_busy(Duration::from_secs(1));
    }
    for _ in 0..2 {
        assert!(file.others.need_gaps(&*file.clock), "it found the file locked again");
        file.clock.advance(FOREIGN_PRESENCE);
    }
    starving.note_not_busy();
    assert!(!file.others.need_gaps(&*file.clock), "it has had the file");
    while !starving.note_busy(Duration::from_secs(1)) {}
    assert!(!file.others.need_gaps(&*file.clock), "its callers have given up");
}

#[test]
fn the_writer_looks_often_for_ten_seconds_after_another_process_was_seen() {
    let mut file = SharedFile::open();
    assert_eq!(file.look_interval(), ALONE_LOOK);
    file.commit_elsewhere();
    file.clock.advance(SHARED_FOR - MILLISECOND);
    assert_eq!(file.look_interval(), SHARED_LOOK);
    file.clock.advance(MILLISECOND);
    assert_eq!(file.look_interval(), ALONE_LOOK);
}

#[test]
fn a_commit_of_another_provider_of_this_process_shows_no_other_process() {
    let mut file = SharedFile::open();
    let _second = users(&file.path());
    file.commit_elsewhere();
    assert_eq!(file.look_interval(), ALONE_LOOK, "that provider wakes the writer by itself");
}

#[test]
fn a_database_in_memory_is_looked_at_for_clocks_alone() {
    let conn = Connection::open_in_memory().unwrap();
    let mut others = OtherProcesses::new(&conn, None).unwrap();
    assert_eq!(others.look_interval(Duration::ZERO), CLOCK_LOOK);
    assert!(others.find_dead(Duration::ZERO).is_empty() && !others.are_possible());
}

#[test]
fn dead_owners_are_looked_for_five_times_a_second() {
    let mut file = SharedFile::open();
    assert_eq!(file.find_dead(), 0);
    let dead = OwnerFolder::beside(&file.path()).join(&*file.clock).expect("the file system locks files");
    drop(dead);
    file.clock.advance(OWNERS_LOOK - MILLISECOND);
    assert_eq!(file.find_dead(), 0, "the last look was a short while ago");
    file.clock.advance(MILLISECOND);
    assert_eq!(file.find_dead(), 1, "this look finds it");
    assert_eq!(file.look_interval(), ALONE_LOOK, "it does not run");
}

#[test]
fn a_reader_notices_who_has_the_file_and_takes_nothing_over() {
    let mut file = SharedFile::open();
    file.others.users.as_mut().unwrap().read_only = true;
    assert_eq!((file.find_dead(), file.look_interval()), (0, ALONE_LOOK));
    let dead = OwnerFolder::beside(&file.path()).join(&*file.clock).expect("the file system locks files");
    drop(dead);
    file.clock.advance(OWNERS_LOOK);
    assert_eq!((file.find_dead(), file.look_interval()), (0, SHARED_LOOK));
}

#[test]
fn callers_wait_for_a_locked_file_as_long_as_the_timeout_says() {
    let mut file = SharedFile::open();
    for round in 0..2 {
        let waits = [(); 4].map(|()| file.others.note_busy(BUSY_PAUSE * 4));
        assert_eq!(waits, [false, false, false, true], "round {round}");
    }
    file.others.note_busy(BUSY_PAUSE * 2);
    file.others.note_not_busy();
    assert!(!file.others.note_busy(BUSY_PAUSE * 2), "the writer had the file meanwhile");
}

#[test]
fn a_frozen_file_is_opened_again_only_when_it_has_changed() {
    let mut file = SharedFile::open();
    let frozen = FrozenFile::now(&file.path()).unwrap();
    file.others.users.as_mut().unwrap().frozen = Some(frozen);
    assert!(file.others.reopened().is_none(), "the file is as it was");
    file.other.execute_batch("CREATE TABLE u (a); INSERT INTO u VALUES (zeroblob(100000))").unwrap();
    let reopened = file.others.reopened().expect("the file has grown");
    let rows: i64 = reopened.query_row("SELECT count(*) FROM u", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1, "the new connection shows the change");
    assert!(file.others.reopened().is_none(), "the new connection follows changes");
}
