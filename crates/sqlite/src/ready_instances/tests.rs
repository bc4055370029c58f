use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use super::*;
use crate::options::Synchronous;
use crate::unreadable::UnreadableRows;
use crate::{pragmas, schema};

/// Smaller than what is ready in every index, so that a walk has several pages, and the last one is full.
const PAGE: i64 = 3;

/// Eighteen instances by their key, each with its key as its oldest message: six are ready for every fetch, twelve were given
/// back for the lack of one of two handlers. Two more are not ready.
const INSTANCES: &str = "WITH keys (key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM keys WHERE key < 18) \
     INSERT INTO everturn_instances (instance_key, instance_id, ready_seq, orchestration_name, orchestration_version, \
         current_execution_id, created_at_ms, startable, turn_stamp, needs_engine, delayed_until_ms, missing_handler, \
         missing_version) \
     SELECT key, 'i' || key, key, iif(key % 2, 'order', NULL), iif(key % 2, '1.0.0', NULL), iif(key % 2, 2, NULL), \
         iif(key % 2, 10, NULL), key % 4 <> 0, 1000 + key, key * 10, iif(key % 3, 5000, NULL), \
         iif(key % 3, 'pay', NULL), CASE key % 3 WHEN 1 THEN '*' WHEN 2 THEN '=1.0.0' END FROM keys; \
     INSERT INTO everturn_instances (instance_key, instance_id) VALUES (19, 'not ready'); \
     INSERT INTO everturn_instances (instance_key, instance_id, delayed_until_ms) VALUES (20, 'delayed', 5000); \
     INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, pinned_engine_version) \
     SELECT instance_key, 2, 'Running', 10, iif(instance_key % 5, '0.1.' || instance_key, 'damaged') \
         FROM everturn_instances WHERE created_at_ms IS NOT NULL AND instance_key <> 9";

/// What a fetch finds: all of a row that it looks at.
fn found(candidate: &Candidate) -> String {
    let Candidate {
        key,
        ready_seq,
        instance_id,
        is_named,
        origin,
        stamp,
        pin,
        needs_engine,
        missing_handler,
    } = candidate;
    let row = (key, ready_seq, instance_id, is_named, origin, stamp);
    format!("{row:?} {pin:?} {needs_engine} {missing_handler:?}")
}

/// Which instances a walk looks for.
#[derive(Debug)]
enum Wanted {
    ForAll,
    For(StoredHandler),
}

impl Wanted {
    fn every_kind() -> [Self; 3] {
        let of = |version: &str| Self::For(StoredHandler { name: "pay".into(), version: version.into() });
        [Self::ForAll, of("*"), of("=1.0.0")]
    }

    fn page(&self, conn: &Connection, rows: RowReads<'_>, after: i64) -> ReadyPage {
        match self {
            Self::ForAll => ready(conn, rows, after, PAGE).unwrap(),
            Self::For(handler) => ready_for(conn, rows, handler, after, PAGE).unwrap(),
        }
    }

    /// All pages, the last one included.
    fn walk(&self, conn: &Connection, rows: RowReads<'_>) -> Vec<ReadyPage> {
        let mut pages = Vec::new();
        let mut after = Some(0);
        while let Some(behind) = after {
            let page = self.page(conn, rows, behind);
            after = page.up_to;
            assert!(after.is_none_or(|up_to| up_to > behind), "a page goes on behind {behind}: {after:?}");
            pages.push(page);
        }
        pages
    }
}

/// The keys of all pages.
fn keys(pages: &[ReadyPage]) -> Vec<i64> {
    pages.iter().flat_map(|page| &page.candidates).map(|candidate| candidate.key).collect()
}

fn migrated(mut conn: Connection) -> Connection {
    pragmas::set_up_writer(&conn, false, Synchronous::Full).unwrap();
    schema::migrate(&mut conn).unwrap();
    conn
}

fn instances() -> Connection {
    let conn = migrated(Connection::open_in_memory().unwrap());
    conn.execute_batch(INSTANCES).unwrap();
    conn
}

/// Runs a check with rows of which these cannot be read.
fn with_reads<T>(unreadable: &UnreadableRows, one_by_one: bool, check: impl FnOnce(RowReads<'_>) -> T) -> T {
    let current = Cell::new(None);
    let checked = check(RowReads::new(unreadable, &current, Duration::ZERO, one_by_one));
    assert_eq!(current.get(), None, "after the read no row is the reason of an error");
    checked
}

fn unreadable(place: RowPlace) -> UnreadableRows {
    let mut rows = UnreadableRows::default();
    rows.note(place, Duration::ZERO, 0).unwrap();
    rows
}

#[test]
fn rows_that_are_read_one_by_one_make_the_same_pages() {
    let (conn, readable) = (instances(), UnreadableRows::default());
    for wanted in Wanted::every_kind() {
        let seen = |one_by_one| {
            let pages = with_reads(&readable, one_by_one, |rows| wanted.walk(&conn, rows));
            let seen = |page: &ReadyPage| {
                (page.candidates.iter().map(found).collect::<Vec<_>>(), page.up_to, page.has_gaps)
            };
            pages.iter().map(seen).collect::<Vec<_>>()
        };
        let together = seen(false);
        assert_eq!(together.len(), 3, "two full pages and an empty one of {wanted:?}: {together:?}");
        assert_eq!(seen(true), together, "{wanted:?}, read one by one");
    }
}

#[test]
fn an_instance_that_was_given_back_names_the_handler_that_it_waits_for() {
    let (conn, readable) = (instances(), UnreadableRows::default());
    let handler = StoredHandler { name: "pay".to_owned(), version: "=1.0.0".to_owned() };
    for one_by_one in [false, true] {
        let page =
            with_reads(&readable, one_by_one, |rows| ready_for(&conn, rows, &handler, 0, PAGE).unwrap());
        for candidate in &page.candidates {
            let waits_for = candidate.missing_handler.as_ref();
            assert_eq!(
                waits_for,
                Some(&HandlerKey::orchestration("pay", Some("1.0.0".to_owned()))),
                "instance {}",
                candidate.key
            );
        }
        assert_eq!(page.candidates.len(), 3, "a full page");
    }
}

#[test]
fn only_the_instance_that_cannot_be_read_is_left_out() {
    let conn = instances();
    for wanted in Wanted::every_kind() {
        let all = with_reads(&UnreadableRows::default(), true, |rows| keys(&wanted.walk(&conn, rows)));
        for left_out in &all {
            let rows = unreadable(RowPlace::Instance(*left_out));
            let pages = with_reads(&rows, true, |rows| wanted.walk(&conn, rows));
            let others: Vec<i64> = all.iter().copied().filter(|key| key != left_out).collect();
            assert_eq!(keys(&pages), others, "all but {left_out} of {wanted:?}");
            let gaps = pages.iter().filter(|page| page.has_gaps).count();
            assert_eq!(gaps, 1, "the page of {left_out} has a gap, no other page of {wanted:?}");
        }
    }
}

#[test]
fn a_walk_goes_on_beyond_a_part_of_the_index_that_cannot_be_read() {
    let conn = instances();
    let damaged = RowPlace::ReadyBehind(6);
    let mut rows = unreadable(damaged);
    rows.note_beyond(damaged, 12);
    let page = |after| with_reads(&rows, true, |rows| ready(&conn, rows, after, PAGE).unwrap());
    let before = page(0);
    assert_eq!(keys(&[before]), [3, 6], "what is before the damaged part");
    assert!(page(0).has_gaps && page(0).up_to == Some(6), "the page ends at the damaged part");
    let damaged = page(6);
    assert!(damaged.candidates.is_empty(), "nothing is read of the damaged part");
    assert_eq!(damaged.up_to, Some(12), "the walk goes on where the index can be read");
    assert!(damaged.has_gaps, "instances are left out");
    assert_eq!(keys(&[page(12)]), [15, 18], "what is behind the damaged part");
}

/// Two hundred ready instances in a file, in whose index of ready instances one page cannot be read.
fn with_damaged_index(folder: &std::path::Path) -> Connection {
    let path = folder.join("store.db");
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "page_size", 512).unwrap();
    let conn = migrated(conn);
    let insert = "WITH seqs (seq) AS (SELECT 10 UNION ALL SELECT seq + 10 FROM seqs WHERE seq < 2000) \
         INSERT INTO everturn_instances (instance_id, ready_seq) SELECT 'i' || seq, seq FROM seqs";
    conn.execute(insert, []).unwrap();
    let leaf = "SELECT pageno FROM dbstat WHERE name = 'everturn_instances_ready' AND pagetype = 'leaf' \
         ORDER BY path LIMIT 1 OFFSET 1";
    let page: u32 = conn.query_row(leaf, [], |row| row.get(0)).unwrap();
    conn.close().unwrap();
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(u64::from(page - 1) * 512)).unwrap();
    file.write_all(&[0; 512]).unwrap();
    Connection::open(&path).unwrap()
}

#[test]
fn the_index_is_read_again_at_the_first_place_where_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let conn = with_damaged_index(folder.path());
    let fails_behind = |place: i64| {
        let first = conn.query_row(READY_KEYS, [place, 1], |row| row.get::<_, i64>(0));
        first.is_err_and(|error| is_unreadable(&error))
    };
    let damaged: Vec<i64> = (0..2000).filter(|place| fails_behind(*place)).collect();
    let (first, last) = (damaged[0], damaged[damaged.len() - 1]);
    assert!(first > 0 && last < 1990 && damaged.len() > 100, "a page in the middle: {first} to {last}");
    for after in damaged {
        assert_eq!(readable_beyond(&conn, after), last + 1, "the index cannot be read behind {after}");
    }
}
