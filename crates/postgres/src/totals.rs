//! The totals: how many instances, executions and events there are, kept by the transactions that change them.

use everturn_core::ExecutionStatus;

/// How operations change the totals.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TotalsChange {
    pub(crate) instances: i64,
    pub(crate) running: i64,
    pub(crate) completed: i64,
    pub(crate) failed: i64,
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
}
