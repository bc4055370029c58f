//! Splitting a batch of messages into the one start that counts, and the rest.

use everturn_core::WorkItem;

use super::standing::ParentLink;

/// A batch, split.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitBatch {
    /// The start or successor that counts.
    pub(crate) start: Option<StartItem>,
    /// Everything that is not a start, in order; what a successor carries comes first.
    pub(crate) messages: Vec<WorkItem>,
    /// Starts that do not count.
    pub(crate) ignored: Vec<IgnoredStart>,
}

/// How an execution is asked to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartItem {
    pub(crate) orchestration: String,
    pub(crate) input: String,
    /// Exact version, or `None` for the registry's policy.
    pub(crate) version: Option<String>,
    pub(crate) parent: Option<ParentLink>,
    /// Set for the successor of a continued execution.
    pub(crate) successor: Option<Carried>,
}

/// What a continued execution leaves its successor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Unread queue messages: (queue, data), oldest first.
    pub(crate) events: Vec<(String, String)>,
    pub(crate) custom_status: Option<String>,
}

/// A start that came too late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IgnoredStart {
    pub(crate) orchestration: String,
    /// The call that waits for it, if it is a child's.
    pub(crate) parent: Option<ParentLink>,
}

impl StartItem {
    /// Whether the start belongs to the successor of a continued execution.
    pub(crate) fn is_successor(&self) -> bool {
        self.successor.is_some()
    }
}

/// Splits a batch. An instance with history does not start again; of several starts the first counts; a successor
/// counts before all of them.
pub(crate) fn split(instance: &str, messages: Vec<WorkItem>, has_history: bool) -> SplitBatch {
    let mut split = SplitBatch::default();
    let mut carried = Vec::new();
    let has_successor = messages.iter().any(|message| matches!(message, WorkItem::ContinueAsNew { .. }));
    for message in messages {
        let Some(start) = (match message {
            WorkItem::StartOrchestration { .. } | WorkItem::ContinueAsNew { .. } => start_item(message),
            other => {
                split.messages.push(other);
                continue;
            }
        }) else {
            continue;
        };
        let counts = split.start.is_none() && (start.is_successor() || !(has_history || has_successor));
        if !counts {
            split.ignored.push(IgnoredStart { orchestration: start.orchestration, parent: start.parent });
            continue;
        }
        for (name, data) in start.successor.iter().flat_map(|successor| &successor.events) {
            carried.push(WorkItem::QueueMessage {
                instance: instance.to_owned(),
                name: name.clone(),
                data: data.clone(),
            });
        }
        split.start = Some(start);
    }
    if !carried.is_empty() {
        carried.append(&mut split.messages);
        split.messages = carried;
    }
    split
}

fn start_item(message: WorkItem) -> Option<StartItem> {
    match message {
        WorkItem::StartOrchestration {
            orchestration,
            input,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        } => Some(StartItem {
            orchestration,
            input,
            version,
            parent: ParentLink::new(parent_instance.as_ref(), parent_id, parent_execution_id),
            successor: None,
        }),
        WorkItem::ContinueAsNew {
            orchestration,
            input,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            carry_forward_events,
            initial_custom_status,
            ..
        } => Some(StartItem {
            orchestration,
            input,
            version,
            parent: ParentLink::new(parent_instance.as_ref(), parent_id, parent_execution_id),
            successor: Some(Carried { events: carry_forward_events, custom_status: initial_custom_status }),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(orchestration: &str, parent: Option<&str>) -> WorkItem {
        WorkItem::StartOrchestration {
            instance: "i".into(),
            orchestration: orchestration.into(),
            input: String::new(),
            version: None,
            parent_instance: parent.map(Into::into),
            parent_id: parent.map(|_| 2),
            parent_execution_id: parent.map(|_| 1),
            execution_id: 1,
        }
    }

    fn successor(carried: &[(&str, &str)]) -> WorkItem {
        WorkItem::ContinueAsNew {
            instance: "i".into(),
            orchestration: "S".into(),
            input: "next".into(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            carry_forward_events: carried
                .iter()
                .map(|(name, data)| ((*name).to_owned(), (*data).to_owned()))
                .collect(),
            initial_custom_status: Some("s".into()),
        }
    }

    fn queued(data: &str) -> WorkItem {
        WorkItem::QueueMessage { instance: "i".into(), name: "q".into(), data: data.into() }
    }

    #[test]
    fn first_start_counts_and_the_second_is_ignored() {
        let split = split("i", vec![start("A", None), queued("1"), start("B", Some("p"))], false);
        assert_eq!(split.start.unwrap().orchestration, "A");
        assert_eq!(split.messages, vec![queued("1")]);
        assert_eq!(split.ignored.len(), 1);
        assert_eq!(split.ignored[0].parent.as_ref().unwrap().instance, "p");
    }

    #[test]
    fn start_of_an_instance_with_history_is_ignored() {
        let split = split("i", vec![start("A", None), queued("1")], true);
        assert_eq!(split.start, None);
        assert_eq!(split.messages, vec![queued("1")]);
        assert_eq!(split.ignored.len(), 1);
    }

    #[test]
    fn successor_counts_in_any_order() {
        for batch in
            [vec![start("A", Some("p")), successor(&[])], vec![successor(&[]), start("A", Some("p"))]]
        {
            for has_history in [true, false] {
                let split = split("i", batch.clone(), has_history);
                assert_eq!(split.start.unwrap().orchestration, "S");
                assert_eq!(split.ignored.len(), 1);
            }
        }
    }

    #[test]
    fn carried_messages_come_before_all_others() {
        let batch = vec![queued("3"), successor(&[("q", "1"), ("q", "2")]), queued("4")];
        let split = split("i", batch, true);
        assert_eq!(split.messages, vec![queued("1"), queued("2"), queued("3"), queued("4")]);
        assert_eq!(split.start.unwrap().successor.unwrap().custom_status.as_deref(), Some("s"));
    }
}
