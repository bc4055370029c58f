//! Tests of query plans: what the statements of large stores look at.

use rusqlite::Connection;

use crate::{delete, delete_bulk, garbage, prune, queue_depths, totals};

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
        delete::SELECT_INSTANCE,
        delete::SELECT_CHILDREN,
        delete::IS_ENDED_ROOT,
        delete::DELETE_ACTIVITIES,
        delete_bulk::ENDED_ROOTS,
        garbage::ROWS_OF_INSTANCE,
        garbage::ROWS_OF_EXECUTION,
        prune::SELECT_INSTANCE,
        prune::SELECT_IDS,
        prune::SELECT_PRUNABLE,
        totals::READ,
    ] {
        assert_no_scan(&conn, sql);
    }
    for table in garbage::swept_statements() {
        assert_no_scan(&conn, table);
    }
}

#[test]
fn ended_roots_are_read_in_the_order_of_their_end() {
    let plan = plan(&schema(), delete_bulk::ENDED_ROOTS).join("\n");
    assert!(plan.contains("executions_ended (completed_at_ms>? AND completed_at_ms<?)"), "{plan}");
    assert!(!plan.contains("USE TEMP B-TREE FOR ORDER BY"), "{plan}");
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
