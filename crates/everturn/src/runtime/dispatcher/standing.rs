//! What stored history says of an execution before its turn.

use everturn_core::{Event, EventKind};

/// How an execution began, as its start event records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFacts {
    /// Registered name of the orchestration.
    pub(crate) name: String,
    /// Version of its handler.
    pub(crate) version: String,
    /// The call that waits for this instance.
    pub(crate) parent: Option<ParentLink>,
}

/// The call of a parent that waits for a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParentLink {
    pub(crate) instance: String,
    /// The parent's schedule event.
    pub(crate) id: u64,
    /// The parent's execution, if the call said which.
    pub(crate) execution_id: Option<u64>,
}

impl ParentLink {
    /// The link, if both halves of it are there.
    pub(crate) fn new(instance: Option<&String>, id: Option<u64>, execution_id: Option<u64>) -> Option<Self> {
        Some(Self { instance: instance?.clone(), id: id?, execution_id })
    }
}

/// Where an execution stands before its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether anything is recorded.
    pub(crate) has_history: bool,
    /// How it began, if that is recorded.
    pub(crate) started: Option<StartFacts>,
    /// Id of its last event, or 0.
    pub(crate) last_event_id: u64,
    /// Whether and how it is over.
    pub(crate) end: Option<End>,
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Completed or failed: the instance is over.
    Terminal,
    /// A successor follows.
    ContinuedAsNew,
}

impl Standing {
    /// Reads it off a history.
    pub(crate) fn of(history: &[Event]) -> Self {
        let mut end = None;
        for event in history {
            match event.kind {
                EventKind::OrchestrationCompleted { .. } | EventKind::OrchestrationFailed { .. } => {
                    end = Some(End::Terminal);
                }
                EventKind::OrchestrationContinuedAsNew { .. } if end.is_none() => {
                    end = Some(End::ContinuedAsNew);
                }
                _ => {}
            }
        }
        Self {
            has_history: !history.is_empty(),
            started: history.iter().find_map(start_facts),
            last_event_id: history.last().map_or(0, |event| event.event_id),
            end,
        }
    }

    /// The same of an execution in memory, which is under way or it would not be there.
    pub(crate) fn warm(facts: &StartFacts, last_event_id: u64) -> Self {
        Self { has_history: true, started: Some(facts.clone()), last_event_id, end: None }
    }

    /// The call that waits for this instance.
    pub(crate) fn parent(&self) -> Option<&ParentLink> {
        self.started.as_ref().and_then(|started| started.parent.as_ref())
    }
}

/// How an execution began, if this is its start event.
pub(crate) fn start_facts(event: &Event) -> Option<StartFacts> {
    match &event.kind {
        EventKind::OrchestrationStarted {
            name,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        } => Some(StartFacts {
            name: name.clone(),
            version: version.clone(),
            parent: ParentLink::new(parent_instance.as_ref(), *parent_id, *parent_execution_id),
        }),
        _ => None,
    }
}

/// How many turns wrote this history, as far as it shows: a turn begins where a message follows a decision.
pub(crate) fn turns_in(history: &[Event]) -> u64 {
    let mut turns = 0;
    let mut after_decision = true;
    for event in history {
        let is_message = is_message(&event.kind);
        if is_message && after_decision {
            turns += 1;
        }
        after_decision = !is_message;
    }
    // The first turn may begin with the start event and no message; both count as one beginning.
    turns
}

fn is_message(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::OrchestrationStarted { .. }
            | EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::TimerFired { .. }
            | EventKind::ExternalEvent { .. }
            | EventKind::QueueEventDelivered { .. }
            | EventKind::SubOrchestrationCompleted { .. }
            | EventKind::SubOrchestrationFailed { .. }
            | EventKind::OrchestrationCancelRequested { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, kind: EventKind) -> Event {
        Event::stamped(id, "i", 1, None, 0, kind)
    }

    fn started() -> EventKind {
        EventKind::OrchestrationStarted {
            name: "N".into(),
            version: "1.0.0".into(),
            input: String::new(),
            parent_instance: Some("p".into()),
            parent_id: Some(4),
            parent_execution_id: None,
            carry_forward_events: None,
            initial_custom_status: None,
        }
    }

    #[test]
    fn empty_history_stands_nowhere() {
        let standing = Standing::of(&[]);
        assert_eq!(standing, Standing { has_history: false, started: None, last_event_id: 0, end: None });
    }

    #[test]
    fn start_event_tells_name_version_and_parent() {
        let standing = Standing::of(&[event(1, started())]);
        assert_eq!(standing.last_event_id, 1);
        assert_eq!(standing.end, None);
        assert_eq!(standing.parent().unwrap().id, 4);
        assert_eq!(standing.started.unwrap().name, "N");
    }

    #[test]
    fn failure_after_continue_as_new_is_terminal() {
        let can = event(2, EventKind::OrchestrationContinuedAsNew { input: String::new() });
        let details = everturn_core::ErrorDetails::nondeterminism("x");
        let failed = event(99_999, EventKind::OrchestrationFailed { details });
        assert_eq!(Standing::of(&[event(1, started()), can.clone()]).end, Some(End::ContinuedAsNew));
        assert_eq!(Standing::of(&[event(1, started()), can, failed]).end, Some(End::Terminal));
    }

    #[test]
    fn turn_begins_where_a_message_follows_a_decision() {
        let scheduled = || EventKind::ActivityScheduled {
            name: "A".into(),
            input: String::new(),
            session_id: None,
            tag: None,
        };
        let done = || EventKind::ActivityCompleted { result: String::new() };
        let history: Vec<Event> = [started(), scheduled(), scheduled(), done(), done(), scheduled(), done()]
            .into_iter()
            .map(|kind| event(1, kind))
            .collect();
        assert_eq!(turns_in(&history), 3);
    }
}
