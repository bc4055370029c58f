//! Which handlers a runtime has, so that work which one runtime cannot do stays ready for another.

use std::fmt;

/// The handler that a row of a queue needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerKey {
    /// What the handler is for. Rows of the orchestrator queue need an orchestration, rows of the worker queue an activity.
    pub kind: HandlerKind,
    /// Its registered name.
    pub name: String,
    /// The exact version; `None` for the one that the runtime chooses.
    pub version: Option<String>,
}

/// What a handler is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HandlerKind {
    /// An orchestration.
    Orchestration,
    /// An activity.
    Activity,
}

impl HandlerKey {
    /// The key of an orchestration: exactly this version, or the one that the runtime chooses.
    pub fn orchestration(name: impl Into<String>, version: Option<String>) -> Self {
        Self { kind: HandlerKind::Orchestration, name: name.into(), version }
    }

    /// The key of an activity. Activities have no versions.
    pub fn activity(name: impl Into<String>) -> Self {
        Self { kind: HandlerKind::Activity, name: name.into(), version: None }
    }
}

impl fmt::Display for HandlerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            HandlerKind::Orchestration => "orchestration",
            HandlerKind::Activity => "activity",
        };
        write!(f, "{kind} {}", self.name)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, " {version}"))
    }
}

/// A runtime's view of its registered handlers. The store asks it when it assigns a row that another runtime returned for
/// the lack of a handler; the answer may change between two assignments.
pub trait HandlerView: fmt::Debug + Send + Sync {
    /// Returns true if the runtime has this handler. Never blocks: the store may call it on the thread that does all its
    /// writes.
    fn has(&self, handler: &HandlerKey) -> bool;
}
