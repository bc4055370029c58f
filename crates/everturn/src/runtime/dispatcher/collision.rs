//! Telling a parent that its child's id is taken.

use everturn_core::{ErrorDetails, WorkItem};

use super::batch::IgnoredStart;
use super::standing::ParentLink;

/// The notices for child starts that hit an existing instance. `running_for` is the call a running instance was
/// started by: the very same call coming again is no collision.
pub(crate) fn notices(
    instance: &str,
    ignored: &[IgnoredStart],
    terminal: bool,
    running_for: Option<&ParentLink>,
) -> Vec<WorkItem> {
    let suffix = if terminal { " and is terminal" } else { "" };
    ignored
        .iter()
        .filter_map(|start| start.parent.as_ref())
        .filter(|parent| terminal || !running_for.is_some_and(|running| is_same_call(running, parent)))
        .map(|parent| {
            let text = format!("sub-orchestration instance id '{instance}' already exists{suffix}");
            failure_notice(parent, ErrorDetails::orchestration_failed(text))
        })
        .collect()
}

/// Tells a parent that its child failed. An unknown execution of the parent is left 0, to be looked up.
pub(crate) fn failure_notice(parent: &ParentLink, details: ErrorDetails) -> WorkItem {
    WorkItem::SubOrchFailed {
        parent_instance: parent.instance.clone(),
        parent_execution_id: parent.execution_id.unwrap_or(0),
        parent_id: parent.id,
        details,
    }
}

fn is_same_call(one: &ParentLink, other: &ParentLink) -> bool {
    one.instance == other.instance
        && one.id == other.id
        && one.execution_id.is_some()
        && one.execution_id == other.execution_id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(instance: &str, id: u64, execution_id: Option<u64>) -> ParentLink {
        ParentLink { instance: instance.into(), id, execution_id }
    }

    fn ignored(parent: Option<ParentLink>) -> Vec<IgnoredStart> {
        vec![IgnoredStart { orchestration: "C".into(), parent }]
    }

    #[test]
    fn the_scheduling_parent_is_told() {
        let notices = notices("c", &ignored(Some(link("p", 3, Some(2)))), false, None);
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
        assert!(notices("c", &ignored(None), true, None).is_empty());
    }

    #[test]
    fn the_same_call_again_is_no_collision_while_the_child_runs() {
        let call = link("p", 3, Some(2));
        assert!(notices("c", &ignored(Some(call.clone())), false, Some(&call)).is_empty());
        let told = notices("c", &ignored(Some(call.clone())), true, Some(&call));
        assert!(matches!(&told[0], WorkItem::SubOrchFailed { details, .. }
                if details.display_message().ends_with("already exists and is terminal")));
    }

    #[test]
    fn a_call_of_unknown_execution_is_never_the_same() {
        let call = link("p", 3, None);
        assert_eq!(notices("c", &ignored(Some(call.clone())), false, Some(&call)).len(), 1);
    }
}
