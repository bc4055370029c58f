//! Executions of one instance follow each other, each with its own history.

use crate::events;
use crate::harness::CaseHarness;
use crate::items::{continue_as_new, signal};
use crate::sample_turn::SampleTurn;

cases! { $ executions as executions_cases:
    their_histories_are_separate_and_stay_readable,
    read_returns_the_newest,
    ids_given_by_the_caller_are_stored_in_sequence,
    a_continue_as_new_and_its_successor_yield_execution_two,
    between_continue_as_new_and_its_successor_the_old_execution_is_current,
    the_current_execution_never_goes_back,
    an_instance_may_begin_at_a_later_execution,
}

async fn their_histories_are_separate_and_stay_readable(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    h.turn("i", SampleTurn::of("i", 3).event(2, events::scheduled()).event(3, events::scheduled())).await;
    for (execution_id, events) in [(1, 2), (2, 2), (3, 3)] {
        let history = h.history_of("i", execution_id).await.unwrap();
        assert_eq!(history.len(), events);
        assert!(history.iter().all(|event| event.execution_id == execution_id));
    }
}

async fn read_returns_the_newest(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    assert!(h.history("i").await.unwrap().iter().all(|event| event.execution_id == 3));
}

async fn ids_given_by_the_caller_are_stored_in_sequence(h: CaseHarness) {
    h.create_with_executions("i", 4).await;
    assert_eq!(h.admin().list_executions("i").await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(h.admin().latest_execution_id("i").await.unwrap(), 4);
}

async fn a_continue_as_new_and_its_successor_yield_execution_two(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [continue_as_new("i")]);
    SampleTurn::beginning("i", 2).commit(&h, &fetched.lock_token).await.unwrap();
    let info = h.admin().get_instance_info("i").await.unwrap();
    assert_eq!((info.current_execution_id, info.status.as_str()), (2, "Running"));
    assert_eq!(h.admin().get_execution_info("i", 1).await.unwrap().status, "ContinuedAsNew");
    h.send(signal("i", "a")).await;
    let item = h.fetched_turn().await.item;
    assert_eq!(item.execution_id, 2);
    assert_eq!(item.history.len(), 1);
}

async fn between_continue_as_new_and_its_successor_the_old_execution_is_current(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    let info = h.admin().get_instance_info("i").await.unwrap();
    assert_eq!((info.current_execution_id, info.status.as_str()), (1, "ContinuedAsNew"));
    let item = h.fetched_turn().await.item;
    assert_eq!(item.execution_id, 1);
    assert_eq!(item.history.len(), 2);
}

async fn the_current_execution_never_goes_back(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    h.turn("i", SampleTurn::of("i", 1).event(50, events::signalled("late"))).await;
    assert_eq!(h.admin().latest_execution_id("i").await.unwrap(), 3);
    assert_eq!(h.history_of("i", 1).await.unwrap().len(), 3);
    h.send(signal("i", "a")).await;
    assert_eq!(h.fetched_turn().await.item.execution_id, 3);
}

async fn an_instance_may_begin_at_a_later_execution(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 5)).await;
    let info = h.admin().get_instance_info("i").await.unwrap();
    assert_eq!(info.current_execution_id, 5);
    assert_eq!(h.admin().list_executions("i").await.unwrap(), [5]);
    assert_eq!(h.history("i").await.unwrap().len(), 1);
}
