//! One operation of a large deletion changes a bounded number of rows, whatever the store and the histories hold.

use super::*;
use crate::delete::{DeleteInstances, DeleteTrees};
use crate::garbage::{SLICE_COST, SweepGarbage};
use crate::shrink::ShrinkFile;

/// Besides the rows that a slice pays for: the instances it removes, their entries in the garbage list and the totals.
fn bound(instances: usize) -> u64 {
    u64::try_from(SLICE_COST + 2 * instances + 1).unwrap()
}

/// Completed instances `i-0`, `i-1`, …, each with so many events.
fn fill(writer: &Writer, instances: u32, events: u32) {
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {instances}) \
         INSERT INTO everturn_instances (instance_id, orchestration_name, orchestration_version, current_execution_id, \
             created_at_ms, startable, event_count) SELECT 'i-' || i, 'order', '1.0.0', 1, 1, 1, {events} FROM n; \
         INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, completed_at_ms, event_count) \
             SELECT instance_key, 1, 'Completed', 1, 1, {events} FROM everturn_instances; \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events}) \
         INSERT INTO everturn_history (instance_key, execution_id, first_event_id, last_event_id, events) \
             SELECT instance_key, 1, i, i, '[]' FROM everturn_instances CROSS JOIN n"
    );
    writer.db.conn.execute_batch(&sql).unwrap();
}

fn ids(instances: u32) -> Vec<String> {
    (0..instances).map(|nth| format!("i-{nth}")).collect()
}

/// Runs one batch. Returns how many rows it changed.
fn changes(writer: &mut Writer) -> u64 {
    let before = writer.db.conn.total_changes();
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    writer.db.conn.total_changes() - before
}

#[test]
fn a_slice_of_a_bulk_deletion_removes_a_bounded_number_of_rows() {
    for (instances, events) in [(20_000, 2), (200, 50), (20, 2_000)] {
        let mut writer = writer(512);
        fill(&writer, instances, events);
        let mut left = ids(instances);
        let mut deleted = 0;
        while !left.is_empty() {
            let candidates = left.clone();
            let verb = DeleteTrees { candidates, ended_until_ms: i64::MAX, trees_max: usize::MAX };
            let mut answer = call(&mut writer, verb);
            let changed = changes(&mut writer);
            let done = answer.try_recv().unwrap().unwrap();
            assert!(done.candidates > 0, "a slice that does nothing would be repeated for ever");
            assert!(changed <= bound(done.trees), "{changed} rows of {} trees", done.trees);
            assert_eq!(done.removed.events_deleted, u64::from(events) * done.removed.instances_deleted);
            left.drain(..done.candidates);
            deleted += done.trees;
        }
        assert_eq!(deleted, usize::try_from(instances).unwrap());
    }
}

#[test]
fn an_atomic_deletion_removes_few_rows_beside_those_of_the_instances() {
    let mut writer = writer(512);
    fill(&writer, 500, 200);
    let mut answer = call(&mut writer, DeleteInstances { ids: ids(500), force: false });
    let changed = changes(&mut writer);
    let deleted = answer.try_recv().unwrap().unwrap();
    assert_eq!((deleted.executions_deleted, deleted.events_deleted), (500, 100_000));
    assert!(changed <= bound(500), "{changed} rows of 500 instances");
}

#[test]
fn garbage_is_removed_in_slices_while_the_writer_has_nothing_else_to_do() {
    let mut writer = writer(512);
    fill(&writer, 10, 5_000);
    let _answer = call(&mut writer, DeleteInstances { ids: ids(10), force: false });
    changes(&mut writer);
    let mut slices = 0;
    while let Some(pause) = writer.next_wake() {
        assert!(!pause.is_zero(), "other operations come first");
        writer.tick();
        let changed = changes(&mut writer);
        assert!(changed <= bound(10), "{changed} rows in one slice");
        slices += 1;
    }
    assert!(slices >= 50, "50,000 events went in {slices} slices");
    let left: i64 =
        writer.db.conn.query_row("SELECT count(*) FROM everturn_history", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_lost_slice_of_garbage_is_tried_again() {
    let mut writer = writer(512);
    fill(&writer, 2, 2_000);
    let _answer = call(&mut writer, DeleteInstances { ids: ids(2), force: false });
    changes(&mut writer);
    set_outage(&writer, true);
    writer.tick();
    drive(&mut writer);
    set_outage(&writer, false);
    while writer.next_wake().is_some() {
        writer.tick();
        drive(&mut writer);
    }
    let left: i64 =
        writer.db.conn.query_row("SELECT count(*) FROM everturn_history", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_writer_that_takes_no_more_work_does_not_wake_up_for_garbage() {
    for only_reads in [false, true] {
        let mut writer = writer(512);
        fill(&writer, 2, 2_000);
        let _answer = call(&mut writer, DeleteInstances { ids: ids(2), force: false });
        changes(&mut writer);
        if only_reads {
            writer.only_read("opened for reading".to_owned());
        } else {
            writer.outage.break_with("broken".to_owned());
        }
        writer.tick();
        drive(&mut writer);
        assert_eq!(writer.next_wake(), None);
    }
}

#[test]
fn garbage_that_was_due_while_the_file_was_locked_is_removed_later() {
    let mut writer = writer(512);
    fill(&writer, 2, 2_000);
    let _answer = call(&mut writer, DeleteInstances { ids: ids(2), force: false });
    changes(&mut writer);
    writer.tick();
    writer.sweep_garbage_if_due();
    writer.fail_waiting_callers("the database is locked by another process");
    while writer.next_wake().is_some() {
        writer.tick();
        drive(&mut writer);
    }
    let left: i64 =
        writer.db.conn.query_row("SELECT count(*) FROM everturn_history", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn events_of_a_pruned_execution_are_not_counted_again_when_their_instance_is_deleted() {
    let mut writer = writer(512);
    fill(&writer, 1, 1_500);
    // The first execution was pruned: its events are in the list, and the first slice of them is removed.
    let prune = "UPDATE everturn_executions SET execution_id = 2; UPDATE everturn_instances SET current_execution_id = 2, event_count = 0; \
         INSERT INTO everturn_garbage SELECT instance_key, 1 FROM everturn_instances";
    writer.db.conn.execute_batch(prune).unwrap();
    let _swept = call(&mut writer, SweepGarbage);
    changes(&mut writer);
    let mut answer = call(&mut writer, DeleteInstances { ids: ids(1), force: false });
    changes(&mut writer);
    let deleted = answer.try_recv().unwrap().unwrap();
    assert_eq!((deleted.executions_deleted, deleted.events_deleted), (1, 0));
}

/// What another process has left in the garbage list.
fn leave_garbage(writer: &Writer) {
    let list = "INSERT INTO everturn_garbage (instance_key, execution_id) VALUES (1, 0)";
    writer.db.conn.execute(list, []).unwrap();
}

fn listed(writer: &Writer) -> i64 {
    writer.db.conn.query_row("SELECT count(*) FROM everturn_garbage", [], |row| row.get(0)).unwrap()
}

#[test]
fn garbage_of_another_process_is_removed_and_then_looked_for_no_more() {
    let mut writer = writer(512);
    leave_garbage(&writer);
    writer.garbage.want_look();
    assert_eq!(writer.next_wake(), Some(Duration::ZERO), "the list is looked at at once");
    drive(&mut writer);
    writer.tick();
    drive(&mut writer);
    assert_eq!(listed(&writer), 0, "what the look found is removed");
    assert_eq!(writer.next_wake(), None, "nothing was passed over that needs another look");
}

#[test]
fn a_look_at_an_empty_garbage_list_leads_to_no_slice() {
    let mut writer = writer(512);
    writer.garbage.want_look();
    drive(&mut writer);
    assert_eq!(writer.next_wake(), None, "there is nothing to remove");
}

#[test]
fn a_look_at_the_garbage_list_puts_off_no_slice_that_is_due() {
    let mut writer = writer(512);
    leave_garbage(&writer);
    writer.garbage.note(writer.db.now());
    writer.tick();
    writer.garbage.want_look();
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done, "the slice runs after the look");
    assert_eq!(listed(&writer), 0);
}

#[test]
fn a_look_for_free_pages_that_can_change_nothing_is_not_repeated() {
    let writer = writer(512);
    let freed = || {
        let ran = writer.db.run_whole(true, |scope| Ok(ShrinkFile.run(scope).is_ok()));
        ran.unwrap().1.freed
    };
    writer.db.conn.execute_batch("BEGIN").unwrap();
    assert!(freed(), "there may be more free pages");
    // A damaged file has lost the row that the step changes, so that the step is not committed.
    writer.db.conn.execute("DELETE FROM everturn_totals", []).unwrap();
    assert!(!freed());
}
