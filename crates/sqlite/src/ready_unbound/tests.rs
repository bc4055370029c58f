use std::cell::Cell;
use std::time::Duration;

use rusqlite::{StatementStatus, params};

use super::*;
use crate::unreadable::UnreadableRows;
use crate::{pragmas, schema};

const INSERT: &str = "INSERT INTO everturn_worker_queue (instance_id, execution_id, activity_id, tag, ready, lock_token, \
     locked_until_ms, lock_ms, work_item) \
     VALUES ('i', 1, 1, ?1, ?2, iif(?2, NULL, 'token'), iif(?2, NULL, 9), iif(?2, NULL, 9), '')";

/// How many steps of SQLite's machine these statements took so far.
fn steps(conn: &Connection, statements: &[&str]) -> i32 {
    let steps_of = |sql: &&str| conn.prepare_cached(sql).unwrap().get_status(StatementStatus::VmStep);
    statements.iter().map(steps_of).sum()
}

#[test]
fn a_worker_for_any_tag_reads_neither_locked_rows_nor_all_rows_of_a_tag() {
    let mut conn = Connection::open_in_memory().unwrap();
    pragmas::set_up_writer(&conn, false, crate::options::Synchronous::Full).unwrap();
    schema::migrate(&mut conn).unwrap();
    for row in 0..4_000 {
        let (tag, ready) = match row {
            0..2_000 => (None, 0),
            2_000..3_000 => (Some("gpu"), 1),
            _ => (None, 1),
        };
        conn.prepare_cached(INSERT).unwrap().execute(params![tag, ready]).unwrap();
    }
    let (unreadable, current) = (UnreadableRows::default(), Cell::new(None));
    let rows = RowReads::new(&unreadable, &current, Duration::ZERO, false);
    assert_eq!(
        oldest_for_all(&conn, rows, &TagFilter::Any).unwrap(),
        Some(2_001),
        "the oldest that is ready"
    );
    let taken = steps(&conn, &[OLDEST_UNTAGGED, OLDEST_TAGGED, FIRST_TAG, NEXT_TAG]);
    assert!(taken < 200, "{taken} steps for a queue of 4,000 rows");
}
