//! Starts of an instance that exists already: they are ignored, and the parent of an ignored child start is notified.

use everturn_core::{ErrorDetails, WorkItem};

use super::execution_start::{ExecutionStart, ParentCall};

/// The messages of a turn, with its starts taken out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitMessages {
    /// The start that counts: a client's, a parent's, or that of a successor.
    pub(crate) start: Option<ExecutionStart>,
    /// Everything that is not a start, in order. What a successor carries comes first.
    pub(crate) messages: Vec<WorkItem>,
    /// Starts that do not count.
    pub(crate) ignored: Vec<ExecutionStart>,
}

/// Takes the starts out of a turn's messages.
///
/// An instance with history does not start again. Of several starts the first counts, and a successor counts before all
/// of them.
pub(crate) fn split_messages(instance: &str, messages: Vec<WorkItem>, has_history: bool) -> SplitMessages {
    let mut split = SplitMessages::default();
    let has_successor = messages.iter().any(|message| matches!(message, WorkItem::ContinueAsNew { .. }));
    for message in messages {
        match ExecutionStart::from_message(message) {
            Err(message) => split.messages.push(message),
            Ok(start)
                if split.start.is_none() && (start.is_successor() || !(has_history || has_successor)) =>
            {
                split.start = Some(start);
            }
            Ok(start) => split.ignored.push(start),
        }
    }
    let carried = split.start.as_ref().and_then(|start| start.carried.as_ref());
    if let Some(carried) = carried.filter(|carried| !carried.events.is_empty()) {
        let instance = instance.to_owned();
        let queued = carried.events.iter().cloned();
        let queued =
            queued.map(|(name, data)| WorkItem::QueueMessage { instance: instance.clone(), name, data });
        split.messages.splice(0..0, queued);
    }
    split
}

/// The notices to parents whose child start was ignored. A start by a client gets none.
///
/// While the instance runs, `running_for` is the call that started it: the same call coming again is no collision.
pub(crate) fn ignored_start_notices(
    instance: &str,
    ignored: &[ExecutionStart],
    has_ended: bool,
    running_for: Option<&ParentCall>,
) -> Vec<WorkItem> {
    let suffix = if has_ended { " and is terminal" } else { "" };
    let is_repeated = |call: &ParentCall| call.execution_id.is_some() && running_for == Some(call);
    ignored
        .iter()
        .filter_map(|start| start.parent.as_ref())
        .filter(|call| has_ended || !is_repeated(call))
        .map(|call| {
            let text = format!("sub-orchestration instance id '{instance}' already exists{suffix}");
            failure_notice(call, ErrorDetails::orchestration_failed(text))
        })
        .collect()
}

/// The message that notifies a parent of its child's failure. An unknown execution of the parent is left 0, to be looked up
/// when the message is committed.
pub(crate) fn failure_notice(parent: &ParentCall, details: ErrorDetails) -> WorkItem {
    WorkItem::SubOrchFailed {
        parent_instance: parent.instance.clone(),
        parent_execution_id: parent.execution_id.unwrap_or(0),
        parent_id: parent.id,
        details,
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
        let split = split_messages("i", vec![start("A", None), queued("1"), start("B", Some("p"))], false);
        assert_eq!(split.start.unwrap().name, "A");
        assert_eq!(split.messages, vec![queued("1")]);
        assert_eq!(split.ignored.len(), 1);
        assert_eq!(split.ignored[0].parent.as_ref().unwrap().instance, "p");
    }

    #[test]
    fn start_of_an_instance_with_history_is_ignored() {
        let split = split_messages("i", vec![start("A", None), queued("1")], true);
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
                let split = split_messages("i", batch.clone(), has_history);
                assert_eq!(split.start.unwrap().name, "S");
                assert_eq!(split.ignored.len(), 1);
            }
        }
    }

    #[test]
    fn carried_messages_come_before_all_others() {
        let batch = vec![queued("3"), successor(&[("q", "1"), ("q", "2")]), queued("4")];
        let split = split_messages("i", batch, true);
        assert_eq!(split.messages, vec![queued("1"), queued("2"), queued("3"), queued("4")]);
        assert_eq!(split.start.unwrap().carried.unwrap().custom_status.as_deref(), Some("s"));
    }

    fn call(instance: &str, id: u64, execution_id: Option<u64>) -> ParentCall {
        ParentCall { instance: instance.into(), id, execution_id }
    }

    fn ignored(parent: Option<ParentCall>) -> Vec<ExecutionStart> {
        vec![ExecutionStart::recorded("C".into(), "1.0.0".into(), parent)]
    }

    #[test]
    fn the_scheduling_parent_is_notified() {
        let notices = ignored_start_notices("c", &ignored(Some(call("p", 3, Some(2)))), false, None);
        assert_eq!(
            notices,
            vec![WorkItem::SubOrchFailed {
                parent_instance: "p".into(),
                parent_execution_id: 2,
                parent_id: 3,
                details: ErrorDetails::orchestration_failed(
                    "sub-orchestration instance id 'c' already exists"
                ),
            }]
        );
    }

    #[test]
    fn a_client_start_gets_no_notice() {
        assert!(ignored_start_notices("c", &ignored(None), true, None).is_empty());
    }

    #[test]
    fn the_same_call_again_is_no_collision_while_the_child_runs() {
        let parent = call("p", 3, Some(2));
        assert!(ignored_start_notices("c", &ignored(Some(parent.clone())), false, Some(&parent)).is_empty());
        let notices = ignored_start_notices("c", &ignored(Some(parent.clone())), true, Some(&parent));
        assert!(matches!(&notices[0], WorkItem::SubOrchFailed { details, .. }
                if details.display_message().ends_with("already exists and is terminal")));
    }

    #[test]
    fn a_call_of_unknown_execution_is_never_the_same() {
        let parent = call("p", 3, None);
        assert_eq!(ignored_start_notices("c", &ignored(Some(parent.clone())), false, Some(&parent)).len(), 1);
    }
}
