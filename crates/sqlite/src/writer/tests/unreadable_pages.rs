//! Pages that cannot be read, and what the writer does about them by itself.

use everturn_provider::encoded::StoredActivity;
use std::sync::atomic::AtomicUsize;

use everturn_provider::SessionFetchConfig;
use rusqlite::ffi;

use super::*;
use crate::stale_locks::StaleLocks;
use crate::unreadable::RowPlace;

/// Lets a table begin at this page. A table that begins where one of another kind does cannot be read.
fn set_root(writer: &Writer, table: &str, root: i64) {
    let conn = &writer.db.conn;
    conn.pragma_update(None, "writable_schema", "ON").unwrap();
    conn.execute("UPDATE sqlite_schema SET rootpage = ?2 WHERE name = ?1", (table, root)).unwrap();
    conn.pragma_update(None, "writable_schema", "RESET").unwrap();
}

fn root_of(writer: &Writer, table: &str) -> i64 {
    let select = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    writer.db.conn.query_row(select, [table], |row| row.get(0)).unwrap()
}

/// Makes a table without row ids unreadable. Returns where it begins.
fn damage(writer: &Writer, table: &str) -> i64 {
    let root = root_of(writer, table);
    set_root(writer, table, root_of(writer, "everturn_worker_queue"));
    root
}

fn in_session(id: u64, session: &str) -> EnqueueWork {
    let item = WorkItem::ActivityExecute {
        instance: "a".to_owned(),
        execution_id: 1,
        id,
        name: "pay".to_owned(),
        input: String::new(),
        session_id: Some(session.to_owned()),
        tag: None,
    };
    EnqueueWork(StoredActivity::encode("test", &item).unwrap())
}

fn session_fetch(writer: &mut Writer, id: u64) -> Answer<Option<WorkAnswer>> {
    let (reply, answer) = oneshot::channel();
    let session = SessionFetchConfig { owner_id: "worker".to_owned(), lock_timeout: LOCK };
    writer.accept(Command::FetchWork(ParkedWorkFetch {
        id,
        once: false,
        lock_timeout: LOCK,
        session: Some(session),
        session_places: None,
        tags: TagFilter::DefaultOnly,
        handlers: None,
        reply,
    }));
    answer
}

#[test]
fn unreadable_sessions_delay_only_activities_that_are_bound_to_one() {
    let mut writer = writer(512);
    let _bound = call(&mut writer, in_session(1, "s"));
    let mut leased = session_fetch(&mut writer, 1);
    drive(&mut writer);
    leased.try_recv().unwrap().unwrap().expect("the session is free").guard.disarm();
    let _more = [call(&mut writer, in_session(2, "s")), call(&mut writer, in_session(3, "t"))];
    drive(&mut writer);
    damage(&writer, "everturn_sessions");
    let _plain = call(&mut writer, activity(4, 10));
    let mut fetched = session_fetch(&mut writer, 2);
    let mut turn = turn_fetch(&mut writer, 3, None);
    let _started = call(&mut writer, start());
    drive(&mut writer);
    fetched.try_recv().expect("the activity without a session is assigned").unwrap().unwrap();
    turn.try_recv().expect("and so is the turn").unwrap().unwrap();
}

#[test]
fn locks_are_found_although_the_sessions_cannot_be_read() {
    let mut writer = writer(512);
    let _queued = [call(&mut writer, activity(1, 10)), call(&mut writer, in_session(2, "s"))];
    let mut held = [session_fetch(&mut writer, 1), session_fetch(&mut writer, 2)];
    drive(&mut writer);
    for held in &mut held {
        held.try_recv().unwrap().unwrap().unwrap().guard.disarm();
    }
    damage(&writer, "everturn_sessions");
    let found = StaleLocks::find(&writer.db.conn, None).expect("the activities can be read");
    assert!(!found.is_empty());
}

/// Two entries: a deleted instance, whose key-value store is a part of the garbage, and a pruned execution.
const GARBAGE: &str = "INSERT INTO everturn_garbage (instance_key, execution_id) VALUES (1, 0), (2, 1); \
     INSERT INTO everturn_kv_base (instance_key, key, value, last_updated_at_ms) VALUES (1, 'k', 'v', 1); \
     INSERT INTO everturn_history (instance_key, execution_id, first_event_id, last_event_id, events) VALUES (2, 1, 1, 1, '[]')";

fn listed(writer: &Writer) -> i64 {
    writer.db.conn.query_row("SELECT count(*) FROM everturn_garbage", [], |row| row.get(0)).unwrap()
}

#[test]
fn garbage_that_cannot_be_read_is_passed_over_and_the_rest_is_removed() {
    let (mut writer, clock) = writer_and_clock(512);
    writer.db.conn.execute_batch(GARBAGE).unwrap();
    let root = damage(&writer, "everturn_kv_base");
    writer.garbage.note(writer.db.now());
    writer.tick();
    drive(&mut writer);
    assert_eq!(listed(&writer), 1, "the pruned execution is removed");
    let mut batches = 0;
    for _ in 0..100 {
        clock.advance(Duration::from_millis(10));
        writer.tick();
        batches += usize::from(writer.step(&mut Script::default()) == WriterStep::Done);
    }
    assert!(batches <= 8, "{batches} batches in a second for what cannot be read");
    set_root(&writer, "everturn_kv_base", root);
    for _ in 0..10 {
        clock.advance(Duration::from_secs(10));
        writer.tick();
        drive(&mut writer);
    }
    assert_eq!(listed(&writer), 0, "it is removed when it can be read again");
}

#[test]
fn a_garbage_list_that_cannot_be_read_costs_few_batches() {
    let (mut writer, clock) = writer_and_clock(512);
    damage(&writer, "everturn_garbage");
    writer.garbage.note(writer.db.now());
    let mut batches = 0;
    for _ in 0..100 {
        clock.advance(Duration::from_millis(10));
        writer.tick();
        batches += usize::from(writer.step(&mut Script::default()) == WriterStep::Done);
    }
    assert!(batches <= 8, "{batches} batches in a second for a list that cannot be read");
}

/// Needs a page that cannot be read.
struct Unreadable(Arc<AtomicUsize>);

impl Verb for Unreadable {
    type Answer = ();
    const NAME: &'static str = "unreadable";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn run(&self, _scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None).into())
    }
}

#[test]
fn an_owed_operation_that_cannot_read_is_not_tried_again_with_every_commit() {
    let (mut writer, clock) = writer_and_clock(512);
    let tried = Arc::new(AtomicUsize::new(0));
    let owed = PendingOperation::new(Unreadable(Arc::clone(&tried)), None);
    writer.accept(Command::Run(Box::new(owed)));
    for id in 1..=20 {
        let mut other = call(&mut writer, activity(id, 10));
        drive(&mut writer);
        other.try_recv().unwrap().unwrap();
    }
    assert_eq!(tried.load(Ordering::Relaxed), 2, "in its batch, and alone");
    let pause = writer.next_wake().expect("it is tried again");
    assert!(pause > Duration::ZERO);
    let mut pauses = vec![pause];
    for _ in 0..30 {
        clock.advance(writer.next_wake().unwrap());
        writer.tick();
        drive(&mut writer);
        pauses.push(writer.next_wake().unwrap());
    }
    assert!(tried.load(Ordering::Relaxed) > 10, "{pauses:?}");
    let longest = pauses.iter().max().unwrap().as_secs();
    assert!((29..=30).contains(&longest), "{pauses:?}");
}

#[test]
fn rows_are_read_together_again_a_while_after_one_could_not_be_read() {
    let (mut writer, clock) = writer_and_clock(512);
    writer.pass_over(RowPlace::Instance(7), None, "a read failed once");
    clock.advance(Duration::from_secs(61));
    let _other = call(&mut writer, activity(1, 10));
    drive(&mut writer);
    assert!(writer.db.unreadable.is_empty());
}
