//! How an execution began, or is to begin.

use everturn_core::{Event, EventKind, INITIAL_EVENT_ID, WorkItem};
use everturn_provider::store::ParentLink;

/// How an execution began, as its start event records it, or how a start message asks it to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecutionStart {
    /// Registered name of the orchestration.
    pub(crate) name: String,
    /// Version of its handler. `None` only in a message that leaves the choice to the registry's policy.
    pub(crate) version: Option<String>,
    /// The call of a parent that waits for this instance.
    pub(crate) parent: Option<ParentCall>,
    /// Input of the execution. Empty once the start event is written, because the event holds it.
    pub(crate) input: String,
    /// Set only in the message that starts the successor of a continued execution.
    pub(crate) carried: Option<CarriedForward>,
}

/// The call of a parent that waits for a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParentCall {
    pub(crate) instance: String,
    /// The parent's schedule event.
    pub(crate) id: u64,
    /// The parent's execution, if the call named it.
    pub(crate) execution_id: Option<u64>,
}

/// What a continued execution leaves to its successor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CarriedForward {
    /// Unread queue messages: (queue, data), oldest first.
    pub(crate) events: Vec<(String, String)>,
    pub(crate) custom_status: Option<String>,
}

impl ExecutionStart {
    /// What a start message asks for; any other message is returned as it is.
    #[expect(clippy::result_large_err, reason = "the other message is not an error; it is moved on")]
    pub(crate) fn from_message(message: WorkItem) -> Result<Self, WorkItem> {
        match message {
            WorkItem::StartOrchestration {
                orchestration: name,
                input,
                version,
                parent_instance,
                parent_id,
                parent_execution_id,
                ..
            } => {
                let parent = ParentCall::new(parent_instance, parent_id, parent_execution_id);
                Ok(Self { name, version, parent, input, carried: None })
            }
            WorkItem::ContinueAsNew {
                orchestration: name,
                input,
                version,
                parent_instance,
                parent_id,
                parent_execution_id,
                carry_forward_events: events,
                initial_custom_status: custom_status,
                ..
            } => {
                let parent = ParentCall::new(parent_instance, parent_id, parent_execution_id);
                Ok(Self {
                    name,
                    version,
                    parent,
                    input,
                    carried: Some(CarriedForward { events, custom_status }),
                })
            }
            other => Err(other),
        }
    }

    /// What a start event records; `None` for any other event.
    pub(crate) fn from_event(event: &Event) -> Option<Self> {
        let EventKind::OrchestrationStarted {
            name,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        } = &event.kind
        else {
            return None;
        };
        let parent = ParentCall::new(parent_instance.clone(), *parent_id, *parent_execution_id);
        Some(Self::recorded(name.clone(), version.clone(), parent))
    }

    /// A start whose event is written.
    pub(crate) fn recorded(name: String, version: String, parent: Option<ParentCall>) -> Self {
        Self { name, version: Some(version), parent, input: String::new(), carried: None }
    }

    /// The start event that a message asks for, with the version that was chosen.
    pub(crate) fn to_event(&self, instance: &str, execution_id: u64, version: &str, now_ms: u64) -> Event {
        let parent = self.parent.as_ref();
        let carried = self.carried.as_ref();
        let kind = EventKind::OrchestrationStarted {
            name: self.name.clone(),
            version: version.to_owned(),
            input: self.input.clone(),
            parent_instance: parent.map(|parent| parent.instance.clone()),
            parent_id: parent.map(|parent| parent.id),
            parent_execution_id: parent.and_then(|parent| parent.execution_id),
            carry_forward_events: carried
                .filter(|carried| !carried.events.is_empty())
                .map(|carried| carried.events.clone()),
            initial_custom_status: carried.and_then(|carried| carried.custom_status.clone()),
        };
        Event::stamped(INITIAL_EVENT_ID, instance, execution_id, None, now_ms, kind)
    }

    /// Returns true if this message starts the successor of a continued execution.
    pub(crate) fn is_successor(&self) -> bool {
        self.carried.is_some()
    }

    /// The version as text for logs, metrics and activities.
    pub(crate) fn version_text(&self) -> &str {
        self.version.as_deref().unwrap_or("unknown")
    }
}

impl ParentCall {
    /// The call, if both the instance and the schedule event are named.
    fn new(instance: Option<String>, id: Option<u64>, execution_id: Option<u64>) -> Option<Self> {
        Some(Self { instance: instance?, id: id?, execution_id })
    }

    /// Returns true if `link` is this call. A call that did not name its execution is known by its event.
    pub(crate) fn is(&self, link: &ParentLink) -> bool {
        let ParentLink { instance, execution_id, schedule_id } = link;
        self.instance == *instance
            && self.id == *schedule_id
            && self.execution_id.is_none_or(|own| own == *execution_id)
    }
}
