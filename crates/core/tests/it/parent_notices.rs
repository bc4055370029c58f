//! How a child reports its end to its parent.

use everturn_core::WorkItem;

use crate::harness::Harness;

fn notice_to(execution: Option<u64>) -> WorkItem {
    let mut harness = Harness::new(|_, _| async move { Ok("out".into()) }).child_of("p", 6, execution);
    harness.turn([]).orchestrator_items.remove(0)
}

#[test]
fn result_goes_to_the_stamped_execution_of_the_parent() {
    let WorkItem::SubOrchCompleted { parent_execution_id, parent_id, .. } = notice_to(Some(3)) else {
        panic!()
    };
    assert_eq!((parent_execution_id, parent_id), (3, 6));
}

#[test]
fn execution_that_was_not_stamped_is_left_to_the_runtime() {
    let WorkItem::SubOrchCompleted { parent_execution_id, .. } = notice_to(None) else { panic!() };
    assert_eq!(parent_execution_id, 0);
}

#[test]
fn root_instance_sends_no_notice() {
    let mut harness = Harness::new(|_, _| async move { Ok("out".into()) });
    assert!(harness.turn([]).orchestrator_items.is_empty());
}

#[test]
fn link_to_the_parent_survives_continue_as_new_in_the_first_turn() {
    let mut harness =
        Harness::new(|ctx, _| async move { ctx.continue_as_new("").await }).child_of("p", 6, Some(3));
    let WorkItem::ContinueAsNew { parent_instance, parent_id, parent_execution_id, .. } =
        harness.turn([]).orchestrator_items.remove(0)
    else {
        panic!()
    };
    assert_eq!((parent_instance.as_deref(), parent_id, parent_execution_id), (Some("p"), Some(6), Some(3)));
}
