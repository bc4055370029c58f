//! Pages that cannot be read, and what the writer does about them by itself.

use everturn_provider::SessionFetchConfig;

use super::*;
use crate::stale_locks::StaleLocks;

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
    set_root(writer, table, root_of(writer, "worker_queue"));
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
    damage(&writer, "sessions");
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
    damage(&writer, "sessions");
    let found = StaleLocks::find(&writer.db.conn, None).expect("the activities can be read");
    assert!(!found.is_empty());
}
