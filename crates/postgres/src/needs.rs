//! What operations need to know before they run: the rows that a batch reads and locks.

use std::collections::BTreeSet;

use crate::sessions::LeaseRenewal;

/// The rows that the operations of a batch need.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Instances by key.
    pub(crate) keys: BTreeSet<i64>,
    /// Instances by id.
    pub(crate) ids: BTreeSet<String>,
    /// Those of them whose rows are made if they are missing: they are sent something.
    pub(crate) receivers: BTreeSet<String>,
    /// Instances by key whose locks may end: the messages that came under the lock are wanted.
    pub(crate) released: BTreeSet<i64>,
    /// Executions, by the key or the id of their instance.
    pub(crate) executions: Vec<(i64, i64)>,
    pub(crate) executions_by_id: Vec<(String, i64)>,
    /// Ranges of events whose ids may be taken, by the key or the id of their instance.
    pub(crate) events: Vec<EventRange>,
    /// Activities.
    pub(crate) activities: BTreeSet<i64>,
    /// Activities whose lock tokens end in these.
    pub(crate) drawn: Vec<String>,
    /// How many messages and activities are inserted at most.
    pub(crate) new_messages: usize,
    pub(crate) new_activities: usize,
    /// How many workers take the oldest ready activities.
    pub(crate) workers: usize,
    /// Instances whose due messages are wanted.
    pub(crate) due: BTreeSet<i64>,
    /// Session leases that are extended, in the order of the operations.
    pub(crate) lease_renewals: Vec<LeaseRenewal>,
}

/// Events of an execution.
#[derive(Debug, Clone)]
pub(crate) struct EventRange {
    pub(crate) instance: InstanceName,
    pub(crate) execution_id: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// How an operation names an instance.
#[derive(Debug, Clone)]
pub(crate) enum InstanceName {
    Key(i64),
    Id(String),
}

impl Needs {
    /// An instance that is sent a message; a new row is made for it if it has none.
    pub(crate) fn receiver(&mut self, instance_id: &str) {
        self.ids.insert(instance_id.to_owned());
        self.receivers.insert(instance_id.to_owned());
    }
}
