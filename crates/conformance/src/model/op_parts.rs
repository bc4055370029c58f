//! The values that operations of the model test are made of, as plain data.

use std::collections::BTreeSet;
use std::fmt;

use everturn_provider::store::{HandlerKey, HandlerView};

/// A lock token, by how long ago a fetch returned it: 0 is the newest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token {
    /// A token of an orchestration fetch.
    Turn(usize),
    /// A token of a worker fetch.
    Work(usize),
    /// One that no fetch returned.
    NeverIssued,
}

/// Which executions a dispatcher can replay. Pins are whole versions: 1.0.0, 2.0.0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Filter {
    /// No filter.
    Everything,
    /// A filter without ranges.
    Nothing,
    /// Up to 1.0.0.
    UpTo1,
    /// From 2.0.0 on.
    From2,
    /// Up to 1.0.0, and a second range that does not count.
    UpTo1ThenFrom2,
}

/// What becomes of a fetched activity.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the fields of the settlement of that name")]
pub enum Settled {
    /// It leaves the queue, with a completion or without.
    Ended(Option<Item>),
    /// It returns to the queue, perhaps for the lack of a handler.
    Abandoned { delay_ms: Option<u64>, refund: bool, missing: Option<Handler> },
}

/// A handler that a runtime has or lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// One name, whatever the version.
    One,
    /// Another name, whatever the version.
    Two,
    /// The same name, in an exact version.
    TwoExactly,
}

impl Handler {
    /// Its key as an orchestration.
    pub(super) fn orchestration(self) -> HandlerKey {
        match self {
            Self::One => HandlerKey::orchestration("One", None),
            Self::Two => HandlerKey::orchestration("Two", None),
            Self::TwoExactly => HandlerKey::orchestration("Two", Some("2.0.0".to_owned())),
        }
    }

    /// Its key as an activity.
    pub(super) fn activity(self) -> HandlerKey {
        match self {
            Self::One => HandlerKey::activity("One"),
            Self::Two => HandlerKey::activity("Two"),
            Self::TwoExactly => HandlerKey::activity("Two exactly"),
        }
    }
}

/// The handlers of a runtime.
#[derive(Debug)]
pub(super) struct HandlerKeys(pub(super) Vec<HandlerKey>);

impl HandlerView for HandlerKeys {
    fn has(&self, handler: &HandlerKey) -> bool {
        self.0.contains(handler)
    }
}

/// What a commit says it was built on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Base {
    /// Nothing is compared.
    Unchecked,
    /// The stamp that came with the fetch of this turn, if one came.
    AsFetched,
    /// A stamp that no execution has.
    Stale,
}

/// Which activities a worker takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tags {
    /// Untagged ones.
    Untagged,
    /// Those with this tag.
    Tagged(&'static str),
    /// Both.
    UntaggedAnd(&'static str),
    /// All.
    AnyTag,
    /// None.
    NoTag,
}

/// Whether a turn names its orchestration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Naming {
    /// Neither name nor version.
    #[default]
    Unnamed,
    /// Both.
    Named,
    /// The name alone.
    NameOnly,
    /// The version alone.
    VersionOnly,
}

/// An event of a delta.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each is the event of its name")]
pub enum NewEvent {
    Started,
    /// With so many queue messages carried over.
    StartedCarrying(usize),
    Scheduled,
    Completed,
    Failed,
    ContinuedAsNew,
    StatusSet(&'static str),
    StatusCleared,
    KeySet(&'static str, &'static str),
    KeyCleared(&'static str),
    KeysCleared,
}

/// A work item.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each is the work item of its name, for the instance it names")]
pub enum Item {
    Start(&'static str),
    StartUnversioned(&'static str),
    /// A child and its parent.
    StartChild(&'static str, &'static str),
    NextExecution(&'static str),
    Signal(&'static str),
    QueueMessage(&'static str),
    Cancel(&'static str),
    /// Due so many milliseconds after the beginning.
    Timer {
        instance: &'static str,
        at_ms: u64,
    },
    ActivityDone(&'static str, u64),
    ActivityBroke(&'static str, u64),
    ChildDone(&'static str),
    ChildBroke(&'static str),
    Activity {
        instance: &'static str,
        execution: u64,
        id: u64,
        session: Option<&'static str>,
        tag: Option<&'static str>,
    },
}

/// Which instances a bulk operation is about. `ended_before` counts from the beginning.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of the filter of that name")]
pub struct Which {
    pub ids: Option<Vec<&'static str>>,
    pub ended_before: Option<u64>,
    pub limit: Option<u32>,
}

/// What a turn decided. Its `Debug` form leaves out what is at its default.
#[derive(Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "the fields of the commit of that name")]
pub struct Decided {
    pub execution: u64,
    pub events: Vec<(u64, NewEvent)>,
    pub worker_items: Vec<Item>,
    pub orchestrator_items: Vec<Item>,
    pub naming: Naming,
    pub parent: Option<&'static str>,
    /// The major version of the pin.
    pub pin: Option<u64>,
    pub status: Option<&'static str>,
    pub output: Option<&'static str>,
    pub cancelled: Vec<(&'static str, u64, u64)>,
}

impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            execution,
            events,
            worker_items,
            orchestrator_items,
            naming,
            parent,
            pin,
            status,
            output,
            cancelled,
        } = self;
        write!(f, "Decided {{ execution: {execution}, ")?;
        if !events.is_empty() {
            write!(f, "events: {events:?}, ")?;
        }
        if !worker_items.is_empty() {
            write!(f, "worker_items: {worker_items:?}, ")?;
        }
        if !orchestrator_items.is_empty() {
            write!(f, "orchestrator_items: {orchestrator_items:?}, ")?;
        }
        if *naming != Naming::Unnamed {
            write!(f, "naming: {naming:?}, ")?;
        }
        let texts = [("parent", parent), ("status", status), ("output", output)];
        for (field, text) in texts.into_iter().filter(|(_, text)| text.is_some()) {
            write!(f, "{field}: {text:?}, ")?;
        }
        if pin.is_some() {
            write!(f, "pin: {pin:?}, ")?;
        }
        if !cancelled.is_empty() {
            write!(f, "cancelled: {cancelled:?}, ")?;
        }
        f.write_str("..Decided::default() }")
    }
}

impl Item {
    /// Whether it belongs into the worker queue.
    pub(super) fn is_activity(&self) -> bool {
        matches!(self, Self::Activity { .. })
    }
}

impl Decided {
    /// Whether no store may accept it.
    pub(super) fn is_malformed(&self) -> bool {
        let ids: BTreeSet<u64> = self.events.iter().map(|(id, _)| *id).collect();
        ids.contains(&0)
            || ids.len() < self.events.len()
            || !self.worker_items.iter().all(Item::is_activity)
            || self.orchestrator_items.iter().any(Item::is_activity)
    }
}
