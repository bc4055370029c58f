use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use everturn_provider::SessionFetchConfig;
use everturn_provider::store::{SessionPlace, SessionPlaces};
use rusqlite::StatementStatus;
use tokio::sync::oneshot;

use super::*;
use crate::options::Synchronous;
use crate::unreadable::UnreadableRows;
use crate::{pragmas, schema};

mod one_by_one;

const NOW_MS: i64 = 1_000;

/// A queue of activities, each bound to a session.
fn queue_of(sessions: impl IntoIterator<Item = String>) -> Connection {
    let mut conn = Connection::open_in_memory().unwrap();
    pragmas::set_up_writer(&conn, false, Synchronous::Full).unwrap();
    schema::migrate(&mut conn).unwrap();
    let insert = "INSERT INTO everturn_worker_queue (instance_id, execution_id, activity_id, session_id, work_item) \
         VALUES ('i', 1, 1, ?1, '')";
    for session in sessions {
        conn.execute(insert, [session]).unwrap();
    }
    conn
}

fn lease(conn: &Connection, session: &str, owner: &str) {
    let insert = "INSERT INTO everturn_sessions (session_id, owner_id, lease_until_ms, lease_ms, active_at_ms) \
         VALUES (?1, ?2, 2000, 1000, 1000)";
    conn.execute(insert, [session, owner]).unwrap();
}

fn fetch_of(owner: &str, session_places: Option<Arc<dyn SessionPlaces>>) -> ParkedWorkFetch {
    ParkedWorkFetch {
        id: 0,
        once: true,
        lock_timeout: Duration::from_secs(1),
        session: Some(SessionFetchConfig {
            owner_id: owner.to_owned(),
            lock_timeout: Duration::from_secs(1),
        }),
        session_places,
        tags: TagFilter::DefaultOnly,
        handlers: None,
        reply: oneshot::channel().0,
    }
}

/// The steps that SQLite took for the looks of so many fetches.
fn steps(conn: &Connection, ready: &mut ReadyWork, fetches: &[ParkedWorkFetch]) -> i32 {
    let statements = [
        ready_unbound::OLDEST_UNTAGGED,
        ready_unbound::OLDEST_TAGGED,
        ready_unbound::FIRST_TAG,
        ready_unbound::NEXT_TAG,
        ready_unbound::FIRST_HANDLER,
        ready_unbound::NEXT_HANDLER,
        ready_unbound::ROWS_FOR_HANDLER,
        OLDEST_BOUND,
        NEXT_SESSION,
        ROWS_OF_SESSION,
        OWNER_OF_SESSION,
    ];
    let count = || {
        let of = |sql| conn.prepare_cached(sql).unwrap().get_status(StatementStatus::VmStep);
        statements.into_iter().map(of).sum::<i32>()
    };
    let before = count();
    let (unreadable, current) = (UnreadableRows::default(), Cell::new(None));
    let reads = RowReads::new(&unreadable, &current, Duration::ZERO, false);
    for fetch in fetches {
        let oldest = ready.oldest_for(conn, reads, fetch, NOW_MS).unwrap();
        assert_eq!(oldest, None, "the session has another owner");
    }
    count() - before
}

#[test]
fn sixty_four_slots_look_at_a_long_session_for_the_price_of_one() {
    let conn = queue_of(vec!["s".to_owned(); 2_000]);
    lease(&conn, "s", "busy");
    let others: Vec<ParkedWorkFetch> = (0..64).map(|slot| fetch_of(&format!("slot {slot}"), None)).collect();
    let one = steps(&conn, &mut ReadyWork::default(), &others[..1]);
    let all = steps(&conn, &mut ReadyWork::default(), &others);
    assert!(all * 2 <= one * 3, "64 slots took {all} steps, one slot takes {one}");
}

#[test]
fn a_look_costs_the_same_however_long_a_session_is() {
    let of_length = |rows| {
        let conn = queue_of(vec!["s".to_owned(); rows]);
        lease(&conn, "s", "busy");
        steps(&conn, &mut ReadyWork::default(), &[fetch_of("other", None)])
    };
    let (short, long) = (of_length(40), of_length(4_000));
    assert!(
        long * 2 <= short * 3,
        "a session of 4,000 activities takes {long} steps, one of 40 takes {short}"
    );
}

struct NoRoom;

impl SessionPlaces for NoRoom {
    fn room(&self) -> SessionRoom {
        SessionRoom::Only(vec!["s1".to_owned()])
    }

    fn reserve(&self, _session_id: &str) -> Option<SessionPlace> {
        None
    }
}

#[test]
fn without_room_only_the_sessions_that_are_served_are_looked_at() {
    let of_sessions = |sessions: usize| {
        let conn = queue_of((0..sessions).map(|session| format!("t{session}")));
        let full: Vec<ParkedWorkFetch> =
            (0..64).map(|slot| fetch_of(&format!("slot {slot}"), Some(Arc::new(NoRoom)))).collect();
        steps(&conn, &mut ReadyWork::default(), &full)
    };
    let (few, many) = (of_sessions(10), of_sessions(1_000));
    assert!(many * 2 <= few * 3, "1,000 sessions take {many} steps, ten take {few}");
}

/// A worker without room for another session serves two.
struct ServesTwo;

impl SessionPlaces for ServesTwo {
    fn room(&self) -> SessionRoom {
        SessionRoom::Only(vec!["s2".to_owned(), "s1".to_owned()])
    }

    fn reserve(&self, _session_id: &str) -> Option<SessionPlace> {
        None
    }
}

#[test]
fn of_the_sessions_that_are_served_the_oldest_activity_comes_first_whatever_their_order() {
    let conn = queue_of(["other", "s1", "s2"].map(str::to_owned));
    let (unreadable, current) = (UnreadableRows::default(), Cell::new(None));
    let reads = RowReads::new(&unreadable, &current, Duration::ZERO, false);
    let fetch = fetch_of("owner", Some(Arc::new(ServesTwo)));
    let oldest = ReadyWork::default().oldest_for(&conn, reads, &fetch, NOW_MS).unwrap();
    assert_eq!(oldest, Some(ReadyActivity { seq: 2, session_id: Some("s1".to_owned()) }));
}
