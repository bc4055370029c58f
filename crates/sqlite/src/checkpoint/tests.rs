use std::cell::RefCell;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::command_queue::CommandQueue;
use crate::options::Synchronous;
use crate::pragmas;

/// A database with a writing connection, and the gate of its readers.
struct Database {
    folder: TempDir,
    writer: Connection,
    checkpointer: Checkpointer,
    readers: Arc<ReaderGate>,
    commands: Arc<CommandQueue>,
}

impl Database {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let writer = Connection::open(folder.path().join("store.db")).unwrap();
        pragmas::set_up_writer(&writer, true, Synchronous::Normal).unwrap();
        writer.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        let (readers, commands) = (Arc::default(), Arc::default());
        Self { folder, writer, checkpointer: Checkpointer::default(), readers, commands }
    }

    /// A connection that reads the database as it is now.
    fn snapshot(&self) -> Connection {
        let reader = Connection::open(self.folder.path().join("store.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM numbers").unwrap();
        reader
    }

    fn log_pages(&self) -> i64 {
        run(&self.writer, "PRAGMA wal_checkpoint(NOOP)").unwrap().log_pages
    }

    /// Writes batches until the log has at least so many pages.
    fn grow_to(&mut self, pages: i64) {
        while self.log_pages() < pages {
            self.batch();
        }
    }

    /// One batch of about 1 MiB, and what follows it.
    fn batch(&mut self) {
        self.writer.execute("INSERT INTO numbers VALUES (zeroblob(1048576))", []).unwrap();
        self.checkpointer.after_batch(&self.writer, &self.readers);
    }

    fn is_held(&self) -> bool {
        self.readers.is_held()
    }
}

#[tokio::test]
async fn above_the_bound_readers_are_held_until_those_under_way_are_over_and_the_log_is_emptied() {
    let mut database = Database::new();
    let pass = database.readers.enter(&database.commands).await;
    let reader = database.snapshot();
    database.grow_to(HOLD_PAGES - 300);
    assert!(!database.is_held());
    database.grow_to(HOLD_PAGES);
    assert!(database.is_held());
    // The writer goes on, and the reader reads what it saw.
    database.batch();
    assert!(database.is_held() && database.log_pages() > HOLD_PAGES);
    drop((reader, pass));
    assert!(database.commands.has_commands(), "the writer is woken");
    database.checkpointer.empty_unread(&database.writer, &database.readers);
    assert_eq!(database.log_pages(), 0);
    assert!(!database.is_held());
}

#[tokio::test]
async fn a_log_that_another_process_reads_holds_no_readers_and_is_tried_again_when_it_has_grown() {
    let mut database = Database::new();
    let foreign = database.snapshot();
    database.grow_to(HOLD_PAGES);
    assert!(!database.is_held(), "they are not held for a log that cannot be emptied");
    assert!(database.checkpointer.has_warned);
    let hold_at = database.checkpointer.hold_at;
    assert!(hold_at >= 2 * HOLD_PAGES, "the next attempt is at {hold_at} pages");
    drop(foreign);
    let pass = database.readers.enter(&database.commands).await;
    let reader = database.snapshot();
    database.grow_to(hold_at);
    assert!(database.is_held());
    drop((reader, pass));
    database.batch();
    assert!(database.log_pages() < HOLD_PAGES && !database.is_held());
    database.batch();
    assert!(!database.checkpointer.has_warned, "if it happens again, the operator is told again");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_takes_too_long_does_not_hold_others_again_and_again() {
    let mut database = Database::new();
    let pass = database.readers.enter(&database.commands).await;
    let _reader = database.snapshot();
    database.grow_to(HOLD_PAGES);
    assert!(database.is_held());
    let _other = database.readers.enter(&database.commands).await;
    database.batch();
    database.batch();
    assert!(!database.is_held() && database.checkpointer.hold_at >= 2 * HOLD_PAGES);
    drop(pass);
}

thread_local! {
    /// A reader of another process that leaves as soon as the writer is in its way.
    static SHORT_READER: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// What is left of a log of one batch after one attempt to empty it, while another process reads for a moment.
fn left_of_log(checkpointer: Checkpointer) -> i64 {
    let mut database = Database::new();
    SHORT_READER.set(Some(database.snapshot()));
    database.batch();
    database.checkpointer = checkpointer;
    let reader_leaves = |_attempts| {
        SHORT_READER.take();
        // This attempt to empty the log is over.
        false
    };
    database.writer.busy_handler(Some(reader_leaves)).unwrap();
    database.readers.hold();
    database.checkpointer.empty_unread(&database.writer, &database.readers);
    assert!(SHORT_READER.take().is_none(), "the reader was in the way");
    assert!(!database.is_held(), "readers of this provider go on");
    database.log_pages()
}

#[test]
fn the_writer_waits_for_a_short_read_of_another_process() {
    assert_eq!(left_of_log(Checkpointer::default()), 0, "the log is emptied when the reader has left");
}

#[test]
fn while_room_is_short_the_writer_does_not_wait_for_other_processes() {
    let short = Checkpointer { short_batches: 1, ..Checkpointer::default() };
    assert!(left_of_log(short) > 0, "the log is left as it is until the next attempt");
}

#[test]
fn a_writer_that_shares_its_thread_does_not_wait_for_other_processes() {
    let mut sharing = Checkpointer::default();
    sharing.never_wait();
    assert!(left_of_log(sharing) > 0, "the log is left as it is until the next attempt");
}
