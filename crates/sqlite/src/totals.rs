//! The totals: how many instances, executions and events there are, kept by the transactions that change them.

use everturn_core::ExecutionStatus;
use everturn_provider::encoded::unsigned;
use everturn_provider::management::SystemMetrics;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::columns;

/// A stored number of events; 0 if it is damaged, so that it can be added and subtracted.
macro_rules! sound_count {
    ($count:literal) => {
        concat!("iif(", $count, " BETWEEN 0 AND 1000000000000, CAST(", $count, " AS INTEGER), 0)")
    };
}
pub(crate) use sound_count;

/// A total after a change. A damaged one stays within what can be stored: a wrong total must not fail a turn.
macro_rules! changed {
    ($total:literal, $change:literal) => {
        concat!(
            $total,
            " = max(0, min(CAST(coalesce(",
            $total,
            ", 0) AS INTEGER), 4611686018427387903) + ",
            $change,
            ")"
        )
    };
}

const CHANGE: &str = concat!(
    "UPDATE everturn_totals SET ",
    changed!("instances", "?1"),
    ", ",
    changed!("running", "?2"),
    ", ",
    changed!("completed", "?3"),
    ", ",
    changed!("failed", "?4"),
    ", ",
    changed!("executions", "?5"),
    ", ",
    changed!("events", "?6"),
    " WHERE totals_key = 1"
);
pub(crate) const READ: &str = "SELECT instances, running, completed, failed, executions, events FROM everturn_totals WHERE totals_key = 1";

/// How operations change the totals.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TotalsChange {
    pub(crate) instances: i64,
    running: i64,
    completed: i64,
    failed: i64,
    pub(crate) executions: i64,
    pub(crate) events: i64,
}

impl TotalsChange {
    /// An instance has a status that it did not have before; `None` if it did not exist, or no longer does.
    pub(crate) fn instance_moves(&mut self, from: Option<&str>, to: Option<&str>) {
        if from == to {
            return;
        }
        for (status, change) in [(from, -1), (to, 1)] {
            match status.and_then(ExecutionStatus::from_name) {
                Some(ExecutionStatus::Running) => self.running += change,
                Some(ExecutionStatus::Completed) => self.completed += change,
                Some(ExecutionStatus::Failed) => self.failed += change,
                // An instance that waits for its successor is counted as an instance alone.
                Some(ExecutionStatus::ContinuedAsNew) | None => {}
            }
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.instances += other.instances;
        self.running += other.running;
        self.completed += other.completed;
        self.failed += other.failed;
        self.executions += other.executions;
        self.events += other.events;
    }

    /// Writes the change, if there is one.
    pub(crate) fn write(&self, conn: &Connection) -> rusqlite::Result<()> {
        if *self != Self::default() {
            conn.prepare_cached(CHANGE)?.execute(params![
                self.instances,
                self.running,
                self.completed,
                self.failed,
                self.executions,
                self.events
            ])?;
        }
        Ok(())
    }
}

/// The totals as they are stored.
pub(crate) fn read(conn: &Connection) -> rusqlite::Result<SystemMetrics> {
    let found = conn.prepare_cached(READ)?.query_row([], |row| {
        Ok(SystemMetrics {
            total_instances: number(row, 0)?,
            running_instances: number(row, 1)?,
            completed_instances: number(row, 2)?,
            failed_instances: number(row, 3)?,
            total_executions: number(row, 4)?,
            total_events: number(row, 5)?,
        })
    });
    Ok(found.optional()?.unwrap_or_default())
}

/// A total; a damaged one is 0.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(unsigned(columns::integer(row, column)?.unwrap_or(0).max(0)))
}
