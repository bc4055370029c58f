//! Messages that do not concern the instance that has their id: starts of an instance that exists already, whose parents
//! are notified, and cancellations by a parent of another instance.

use everturn_core::{ErrorDetails, WorkItem};
use everturn_provider::store::{MessageNotes, ParentLink};

use super::execution_start::{ExecutionStart, ParentCall};
use super::execution_state::ExecutionState;

/// The messages of a turn, with its starts taken out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitMessages {
    /// The start that counts: a client's, a parent's, or that of a successor.
    pub(crate) start: Option<ExecutionStart>,
    /// Everything that is not a start, in order. What a successor carries comes first.
    pub(crate) messages: Vec<WorkItem>,
    /// Starts that do not count.
    pub(crate) ignored: Vec<ExecutionStart>,
    /// Calls whose parent cancelled its child, but another call or a client started this instance.
    pub(crate) ignored_cancels: Vec<ParentLink>,
}

/// Takes the starts out of a turn's messages.
///
/// An instance with history does not start again. Of several starts the first counts, and a successor counts before all
/// of them. `notes` are those of the messages, or empty.
pub(crate) fn split_messages(
    instance: &str,
    messages: Vec<WorkItem>,
    notes: &[MessageNotes],
    state: &ExecutionState,
) -> SplitMessages {
    let mut split = SplitMessages::default();
    let has_successor = messages.iter().any(|message| matches!(message, WorkItem::ContinueAsNew { .. }));
    let is_new = !(state.has_history || has_successor);
    let mut others = Vec::with_capacity(messages.len());
    for (position, message) in messages.into_iter().enumerate() {
        match ExecutionStart::from_message(message) {
            Err(message) => {
                let sender = notes.get(position).and_then(MessageNotes::cancelled_by);
                others.push((message, sender));
            }
            Ok(start) if split.start.is_none() && (start.is_successor() || is_new) => {
                split.start = Some(start);
            }
            Ok(start) => split.ignored.push(start),
        }
    }
    let parent = caller(split.start.as_ref(), state);
    for (message, sender) in others {
        match sender {
            Some(call) if !parent.is_some_and(|parent| parent.is(call)) => {
                split.ignored_cancels.push(call.clone());
            }
            _ => split.messages.push(message),
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

/// The call that started this instance, or that its start message makes.
pub(crate) fn caller<'a>(
    start: Option<&'a ExecutionStart>,
    state: &'a ExecutionState,
) -> Option<&'a ParentCall> {
    start.map_or_else(|| state.parent(), |start| start.parent.as_ref())
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

    /// A running instance that this call started.
    fn running(parent: Option<ParentCall>) -> ExecutionState {
        let start = ExecutionStart::recorded("A".into(), "1.0.0".into(), parent);
        ExecutionState { has_history: true, start: Some(start.into()), last_event_id: 5, end: None }
    }

    fn unstarted() -> ExecutionState {
        ExecutionState::of(&[])
    }

    #[test]
    fn first_start_counts_and_the_second_is_ignored() {
        let batch = vec![start("A", None), queued("1"), start("B", Some("p"))];
        let split = split_messages("i", batch, &[], &unstarted());
        assert_eq!(split.start.unwrap().name, "A");
        assert_eq!(split.messages, vec![queued("1")]);
        assert_eq!(split.ignored.len(), 1);
        assert_eq!(split.ignored[0].parent.as_ref().unwrap().instance, "p");
    }

    #[test]
    fn start_of_an_instance_with_history_is_ignored() {
        let split = split_messages("i", vec![start("A", None), queued("1")], &[], &running(None));
        assert_eq!(split.start, None);
        assert_eq!(split.messages, vec![queued("1")]);
        assert_eq!(split.ignored.len(), 1);
    }

    #[test]
    fn successor_counts_in_any_order() {
        for batch in
            [vec![start("A", Some("p")), successor(&[])], vec![successor(&[]), start("A", Some("p"))]]
        {
            for state in [running(None), unstarted()] {
                let split = split_messages("i", batch.clone(), &[], &state);
                assert_eq!(split.start.unwrap().name, "S");
                assert_eq!(split.ignored.len(), 1);
            }
        }
    }

    #[test]
    fn carried_messages_come_before_all_others() {
        let batch = vec![queued("3"), successor(&[("q", "1"), ("q", "2")]), queued("4")];
        let split = split_messages("i", batch, &[], &running(None));
        assert_eq!(split.messages, vec![queued("1"), queued("2"), queued("3"), queued("4")]);
        assert_eq!(split.start.unwrap().carried.unwrap().custom_status.as_deref(), Some("s"));
    }

    fn call(instance: &str, id: u64, execution_id: Option<u64>) -> ParentCall {
        ParentCall { instance: instance.into(), id, execution_id }
    }

    fn link(instance: &str, execution_id: u64, schedule_id: u64) -> ParentLink {
        ParentLink { instance: instance.into(), execution_id, schedule_id }
    }

    /// Whether the instance takes the cancellation that `by` sent.
    fn is_cancelled(state: &ExecutionState, by: Option<ParentLink>, starts: Vec<WorkItem>) -> bool {
        let mut notes = vec![MessageNotes::default(); starts.len()];
        notes.push(by.map_or_else(MessageNotes::default, MessageNotes::of_parents_cancel));
        let mut messages = starts;
        messages.push(WorkItem::CancelInstance { instance: "i".into(), reason: "r".into() });
        let split = split_messages("i", messages, &notes, state);
        assert_eq!(split.messages.len() + split.ignored_cancels.len(), 1);
        split.ignored_cancels.is_empty()
    }

    #[test]
    fn a_parent_cancels_the_instance_that_its_call_started_and_no_other() {
        let child = running(Some(call("p", 2, Some(1))));
        assert!(is_cancelled(&child, Some(link("p", 1, 2)), vec![]));
        for stranger in [link("q", 1, 2), link("p", 2, 2), link("p", 1, 3)] {
            assert!(!is_cancelled(&child, Some(stranger.clone()), vec![]), "{stranger:?}");
        }
        assert!(!is_cancelled(&running(None), Some(link("p", 1, 2)), vec![]), "a root has no parent");
        assert!(is_cancelled(&child, None, vec![]), "a client cancels any instance");
        assert!(is_cancelled(&running(None), None, vec![]));
    }

    #[test]
    fn a_cancel_beside_its_start_counts_only_if_that_start_does() {
        let (by_client, by_parent) = (start("A", None), start("A", Some("p")));
        let cancel = || Some(link("p", 1, 2));
        assert!(is_cancelled(&unstarted(), cancel(), vec![by_parent.clone()]));
        assert!(is_cancelled(&unstarted(), cancel(), vec![by_parent.clone(), by_client.clone()]));
        assert!(!is_cancelled(&unstarted(), cancel(), vec![by_client, by_parent]));
    }

    #[test]
    fn a_call_that_named_no_execution_is_known_by_its_event() {
        let child = running(Some(call("p", 2, None)));
        assert!(is_cancelled(&child, Some(link("p", 7, 2)), vec![]));
        assert!(!is_cancelled(&child, Some(link("p", 7, 3)), vec![]));
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
