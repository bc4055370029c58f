//! Tests of query plans: what the statements of large stores look at.

use rusqlite::Connection;

use crate::{dead_letters, delete, delete_bulk, owned_rows, prune, queue_depths, totals};

fn schema() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../migrations/0001_initial.sql")).unwrap();
    conn
}

/// The steps of a statement's plan.
fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for parameter in 1..=explain.parameter_count() {
        explain.raw_bind_parameter(parameter, 1).unwrap();
    }
    let mut rows = explain.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

/// Fails if the plan looks at every row of a table of instances, executions or events, or at every entry of an index of one.
fn assert_no_scan(conn: &Connection, sql: &str) {
    let plan = plan(conn, sql);
    let is_scan = |step: &&String| {
        step.starts_with("SCAN") && !step.contains("CONSTANT ROW") && !step.contains("SCAN (subquery")
    };
    let scans: Vec<_> = plan.iter().filter(is_scan).collect();
    assert!(scans.is_empty(), "{sql}\n{plan:#?}");
}

#[test]
fn no_statement_of_a_deletion_scans_a_table() {
    let conn = schema();
    for sql in [
        dead_letters::DELETE_OLD,
        delete::SELECT_INSTANCE,
        delete::SELECT_CHILDREN,
        delete::IS_ENDED_ROOT,
        delete::DELETE_ACTIVITIES,
        delete::DELETE_RECORDS,
        delete_bulk::ENDED_ROOTS,
        owned_rows::SIZE_OF_INSTANCE,
        owned_rows::SIZE_OF_EXECUTION,
        prune::SELECT_INSTANCE,
        prune::SELECT_IDS,
        prune::SELECT_PRUNABLE,
        totals::READ,
    ] {
        assert_no_scan(&conn, sql);
    }
    for sql in owned_rows::statements() {
        assert_no_scan(&conn, sql);
    }
}

#[test]
fn ended_roots_are_read_in_the_order_of_their_end() {
    let plan = plan(&schema(), delete_bulk::ENDED_ROOTS).join("\n");
    assert!(plan.contains("everturn_executions_ended (completed_at_ms>? AND completed_at_ms<?)"), "{plan}");
    assert!(!plan.contains("USE TEMP B-TREE FOR ORDER BY"), "{plan}");
}

#[test]
fn old_dead_letters_are_found_in_the_order_of_their_age() {
    let plan = plan(&schema(), dead_letters::DELETE_OLD).join("\n");
    assert!(plan.contains("everturn_dead_letters_by_age (dead_lettered_at_ms<?)"), "{plan}");
    assert!(!plan.contains("USE TEMP B-TREE FOR ORDER BY"), "{plan}");
}

#[test]
fn every_condition_of_an_instance_that_lists_can_ask_for_has_an_index() {
    let conn = schema();
    for (condition, index) in [
        ("status = 'Failed'", "by_status"),
        ("waiting_for IS NOT NULL", "waiting"),
        ("parked_since_ms IS NOT NULL", "parked"),
        ("paused_at_ms IS NOT NULL", "paused"),
        ("held = 1", "held"),
        ("start_name IS NOT NULL AND created_at_ms IS NULL", "scheduled"),
    ] {
        let select = format!("SELECT instance_key FROM everturn_instances WHERE {condition}");
        let plan = plan(&conn, &select).join("\n");
        assert!(plan.contains(&format!("everturn_instances_{index}")), "{condition}\n{plan}");
    }
}

#[test]
fn queue_depths_are_counted_in_indexes_and_look_up_no_instance_per_message() {
    let conn = schema();
    for sql in [queue_depths::MESSAGES, queue_depths::ACTIVITIES] {
        let plan = plan(&conn, sql);
        let scans: Vec<_> = plan.iter().filter(|step| step.starts_with("SCAN")).collect();
        let is_short = |step: &&&String| {
            // The number of entries of an index, and the garbage list, which is short.
            step.contains("_queue USING COVERING INDEX")
                || step.starts_with("SCAN g")
                || step.contains("CONSTANT ROW")
        };
        assert_eq!(scans.iter().filter(is_short).count(), scans.len(), "{plan:#?}");
    }
}
