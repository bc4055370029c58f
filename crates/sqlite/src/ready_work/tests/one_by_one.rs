//! After a row could not be read, rows are read one by one: all others are found as before.

use everturn_provider::store::HandlerKey;
use rusqlite::params;

use super::*;

const INSERT: &str = "INSERT INTO everturn_worker_queue (instance_id, execution_id, activity_id, tag, session_id, \
     missing_handler, visible_at_ms, needs_engine, work_item) VALUES ('i', 1, 1, ?1, ?2, ?3, iif(?3 IS NULL, 0, 5000), ?4, '')";
/// An engine version that no engine has yet.
const FUTURE: i64 = 999_999_999;

/// One activity of every kind: without and with a tag, free and bound to a session, ready for all workers and for those with
/// a handler only, for this engine and for a newer one. Before them are as many of one session as are read at once.
fn mixed_queue() -> Connection {
    let conn = queue_of(vec!["busy".to_owned(); FRONT_ROWS]);
    lease(&conn, "busy", "other");
    for tag in [None, Some("gpu"), Some("cpu")] {
        for session in [None, Some("s"), Some("t")] {
            for missing_handler in [None, Some("pay"), Some("ship")] {
                for needs_engine in [0, FUTURE] {
                    conn.execute(INSERT, params![tag, session, missing_handler, needs_engine]).unwrap();
                }
            }
        }
    }
    conn
}

/// A runtime that can pay and not ship.
#[derive(Debug)]
struct CanPay;

impl HandlerView for CanPay {
    fn has(&self, handler: &HandlerKey) -> bool {
        handler.name == "pay"
    }
}

struct OnlySession(&'static str);

impl SessionPlaces for OnlySession {
    fn room(&self) -> SessionRoom {
        SessionRoom::Only(vec![self.0.to_owned()])
    }

    fn reserve(&self, _session_id: &str) -> Option<SessionPlace> {
        None
    }
}

/// Fetches of every kind, each with what it is.
fn every_fetch() -> Vec<(String, ParkedWorkFetch)> {
    let gpu = || ["gpu".to_owned()].into();
    let filters = [
        TagFilter::None,
        TagFilter::Any,
        TagFilter::DefaultOnly,
        TagFilter::Tags(gpu()),
        TagFilter::DefaultAnd(gpu()),
    ];
    let mut fetches = Vec::new();
    for tags in filters {
        for can_pay_only in [false, true] {
            let views = || can_pay_only.then(|| Arc::new(CanPay) as Arc<dyn HandlerView>);
            let of = |fetch| ParkedWorkFetch { tags: tags.clone(), handlers: views(), ..fetch };
            let what = |sessions: &str| format!("{tags:?}, can only pay: {can_pay_only}, {sessions}");
            fetches.push((what("no session"), of(ParkedWorkFetch { session: None, ..fetch_of("", None) })));
            fetches.push((what("free sessions"), of(fetch_of("worker", None))));
            fetches.push((what("every session"), of(fetch_of("other", None))));
            let places: Arc<dyn SessionPlaces> = Arc::new(OnlySession("t"));
            fetches.push((what("one session"), of(fetch_of("worker", Some(places)))));
        }
    }
    fetches
}

/// All activities that fetches like this one take, in their order.
fn taken_by(
    conn: &Connection,
    fetch: &ParkedWorkFetch,
    unreadable: &UnreadableRows,
    one_by_one: bool,
) -> Vec<(i64, Option<String>)> {
    let undone = conn.unchecked_transaction().unwrap();
    let current = Cell::new(None);
    let reads = RowReads::new(unreadable, &current, Duration::ZERO, one_by_one);
    let (mut ready, mut taken) = (ReadyWork::for_fetches(4), Vec::new());
    while let Some(oldest) = ready.oldest_for(&undone, reads, fetch, NOW_MS).unwrap() {
        undone.execute("DELETE FROM everturn_worker_queue WHERE seq = ?1", [oldest.seq]).unwrap();
        ready.taken(&undone, reads, &oldest, fetch, NOW_MS).unwrap();
        taken.push((oldest.seq, oldest.session_id));
    }
    assert_eq!(current.get(), None, "after the read no row is the reason of an error");
    taken
}

#[test]
fn a_fetch_takes_the_same_activities_when_rows_are_read_one_by_one() {
    let (conn, readable) = (mixed_queue(), UnreadableRows::default());
    let mut longest = 0;
    for (what, fetch) in every_fetch() {
        let together = taken_by(&conn, &fetch, &readable, false);
        longest = longest.max(together.len());
        assert_eq!(taken_by(&conn, &fetch, &readable, true), together, "{what}");
    }
    assert_eq!(longest, FRONT_ROWS + 27, "one of the fetches takes all that this engine can run");
}

#[test]
fn only_the_activity_that_cannot_be_read_is_left_out() {
    let conn = mixed_queue();
    for (what, fetch) in every_fetch() {
        let all = taken_by(&conn, &fetch, &UnreadableRows::default(), true);
        for left_out in &all {
            let mut unreadable = UnreadableRows::default();
            unreadable.note(RowPlace::Activity(left_out.0), Duration::ZERO, 0).unwrap();
            let others: Vec<_> = all.iter().filter(|activity| *activity != left_out).cloned().collect();
            let taken = taken_by(&conn, &fetch, &unreadable, true);
            assert_eq!(taken, others, "all but {left_out:?} of a fetch of {what}");
        }
    }
}
