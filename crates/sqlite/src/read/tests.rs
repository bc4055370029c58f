use everturn_core::EventKind;
use everturn_provider::encoded::HistoryDelta;
use rusqlite::StatementStatus;

use super::*;
use crate::history;

const EVENTS: u64 = 20_000;

/// A history of commits with so many events each.
fn history_of(events_per_commit: usize) -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../../migrations/0001_initial.sql")).unwrap();
    conn.execute("INSERT INTO everturn_instances (instance_key, instance_id) VALUES (1, 'i')", []).unwrap();
    let event = |id| Event::with_event_id(id, "i", 1, None, EventKind::KeyValuesCleared);
    let events: Vec<Event> = (1..=EVENTS).map(event).collect();
    for commit in events.chunks(events_per_commit) {
        history::append(&conn, 1, 1, &HistoryDelta::encode("test", commit).unwrap()).unwrap();
    }
    conn
}

/// What reads of a history cost: steps of SQLite's machine, and events that are decoded.
#[derive(Debug, Clone, Copy)]
struct ReadCost {
    steps: i32,
    events: i64,
}

fn cost(conn: &Connection, read: impl FnOnce() -> Vec<UndecodedEvents>) -> ReadCost {
    let steps = || conn.prepare_cached(SELECT_EVENTS).unwrap().get_status(StatementStatus::VmStep);
    let before = steps();
    let events = read().iter().map(|row| row.last - row.first + 1).sum();
    ReadCost { steps: steps() - before, events }
}

fn whole(conn: &Connection) -> Vec<UndecodedEvents> {
    let mut select = conn.prepare_cached(SELECT_EVENTS).unwrap();
    select.query_map([1, 1, 0], UndecodedEvents::of).unwrap().map(Result::unwrap).collect()
}

/// One page after another, as the engine reads.
fn pages(conn: &Connection, page_events: i64) -> Vec<UndecodedEvents> {
    let (mut after, mut rows) = (0, Vec::new());
    loop {
        let page = page(conn, 1, 1, after, page_events).unwrap();
        rows.extend(page.rows);
        after = rows.last().unwrap().last;
        if page.is_last {
            return rows;
        }
    }
}

/// Pages that begin at any event, as a tool reads that shows so many at a time.
fn windows(conn: &Connection, page_events: i64) -> Vec<UndecodedEvents> {
    let starts = (0..20_000).step_by(usize::try_from(page_events).unwrap());
    starts.flat_map(|after| page(conn, 1, 1, after, page_events).unwrap().rows).collect()
}

#[test]
fn a_history_read_page_by_page_costs_at_most_three_times_as_much_as_read_at_once() {
    for events_per_commit in [1, 2, 100, 20_000] {
        let conn = history_of(events_per_commit);
        let at_once = cost(&conn, || whole(&conn));
        assert_eq!(at_once.events, 20_000);
        for page_events in [100, 512] {
            let in_order = cost(&conn, || pages(&conn, page_events));
            assert_eq!(in_order.events, 20_000);
            let windows = cost(&conn, || windows(&conn, page_events));
            assert!(windows.events <= 3 * at_once.events, "{windows:?} instead of {at_once:?}");
            if events_per_commit <= 2 {
                // With large rows there are few steps, and decoding is the cost.
                assert!(in_order.steps <= 3 * at_once.steps, "{in_order:?} instead of {at_once:?}");
                assert!(windows.steps <= 3 * at_once.steps, "{windows:?} instead of {at_once:?}");
            }
        }
        let last = cost(&conn, || page(&conn, 1, 1, EVENTS.cast_signed() - 10, 512).unwrap().rows);
        assert!(last.events <= 64 && last.steps <= 200, "the last events cost {last:?}");
    }
}

#[test]
fn a_commit_is_one_row_unless_its_events_have_gaps_or_are_very_many() {
    let event = |id| Event::with_event_id(id, "i", 1, None, EventKind::KeyValuesCleared);
    for (ids, expected) in [
        (vec![3, 1, 2], vec![(1, 3)]),
        (vec![7, 1, 2, 9, 8], vec![(1, 2), (7, 9)]),
        ((1..=130).collect(), vec![(1, 64), (65, 128), (129, 130)]),
    ] {
        let conn = history_of(20_000);
        let events: Vec<Event> = ids.into_iter().map(event).collect();
        history::append(&conn, 1, 2, &HistoryDelta::encode("test", &events).unwrap()).unwrap();
        let page = page(&conn, 1, 2, 0, 1_000).unwrap();
        let rows: Vec<_> = page.rows.iter().map(|row| (row.first, row.last)).collect();
        assert_eq!(rows, expected);
    }
}
