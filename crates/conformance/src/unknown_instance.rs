//! Messages for instances that do not exist, or do not exist yet.

use everturn_core::WorkItem;
use everturn_provider::store::{Feature, Receipt, Submission};

use crate::events;
use crate::harness::{CaseHarness, secs};
use crate::items::{
    NAME, VERSION, activity_completed, cancel, child_completed, continue_as_new, queue_message, signal,
    start, start_child, timer,
};
use crate::sample_turn::SampleTurn;

cases! { $ unknown_instance as unknown_instance_cases:
    queue_messages_for_it_vanish,
    queue_messages_for_an_existing_instance_are_delivered,
    queue_messages_stay_while_the_start_is_hidden,
    queue_messages_stay_while_a_successors_start_is_hidden,
    queue_messages_come_with_the_start_that_follows_them,
    vanishing_queue_messages_do_not_hide_the_next_instance,
    a_cancellation_without_a_start_is_dropped,
    a_cancellation_stays_for_a_start_that_is_queued,
    a_turns_cancellation_without_a_start_is_dropped,
    a_turn_can_cancel_the_instance_that_it_makes,
    messages_without_a_start_stay_queued_and_starve_no_instance,
    a_thousand_messages_without_a_start_starve_no_instance,
    messages_without_a_start_come_with_it_in_the_end,
    name_and_version_come_from_a_continue_as_new_message,
    name_and_version_come_from_the_history,
    a_commit_without_name_stores_history_but_no_instance,
    a_later_commit_with_a_name_makes_the_instance,
}

async fn queue_messages_for_it_vanish(h: CaseHarness) {
    h.send(queue_message("ghost", "a")).await;
    h.send(queue_message("ghost", "b")).await;
    assert!(h.next_turn().await.is_none());
    assert_eq!(h.messages_waiting().await, 0);
    h.send(start("ghost")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [start("ghost")]);
}

async fn queue_messages_for_an_existing_instance_are_delivered(h: CaseHarness) {
    h.create("i").await;
    h.send(queue_message("i", "a")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [queue_message("i", "a")]);
}

async fn queue_messages_stay_while_the_start_is_hidden(h: CaseHarness) {
    h.send_later(start("i"), secs(5)).await;
    h.send(queue_message("i", "a")).await;
    assert!(h.next_turn().await.is_none());
    assert_eq!(h.messages_waiting().await, 2);
    h.pass(secs(6));
    assert_eq!(h.fetched_turn().await.item.messages, [start("i"), queue_message("i", "a")]);
}

async fn queue_messages_stay_while_a_successors_start_is_hidden(h: CaseHarness) {
    h.send_later(continue_as_new("i"), secs(5)).await;
    h.send(queue_message("i", "a")).await;
    assert!(h.next_turn().await.is_none());
    h.pass(secs(6));
    assert_eq!(h.fetched_turn().await.item.messages, [continue_as_new("i"), queue_message("i", "a")]);
}

async fn queue_messages_come_with_the_start_that_follows_them(h: CaseHarness) {
    h.send(queue_message("i", "a")).await;
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [queue_message("i", "a"), start("i")]);
}

async fn vanishing_queue_messages_do_not_hide_the_next_instance(h: CaseHarness) {
    h.send(queue_message("ghost 1", "a")).await;
    h.send(queue_message("ghost 2", "a")).await;
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.instance, "i");
    assert_eq!(h.messages_waiting().await, 0);
}

/// What this store answers to a cancellation that it does not keep.
fn dropped(h: &CaseHarness) -> Receipt {
    if h.supports(Feature::StartReceipts) { Receipt::Dropped } else { Receipt::Queued }
}

async fn receipt(h: &CaseHarness, item: WorkItem) -> Receipt {
    h.submit(&Submission::of(item)).await.unwrap()[0]
}

async fn a_cancellation_without_a_start_is_dropped(h: CaseHarness) {
    assert_eq!(receipt(&h, cancel("i")).await, dropped(&h), "no instance has this id");
    h.send(signal("i", "a")).await;
    assert_eq!(receipt(&h, cancel("i")).await, dropped(&h), "a signal is queued, but no start");
    assert_eq!(h.messages_waiting().await, 1);
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "a"), start("i")], "the start is unharmed");
}

async fn a_cancellation_stays_for_a_start_that_is_queued(h: CaseHarness) {
    h.send_later(start("hidden"), secs(5)).await;
    assert_eq!(receipt(&h, cancel("hidden")).await, Receipt::Queued);
    h.send_later(continue_as_new("successor"), secs(5)).await;
    assert_eq!(receipt(&h, cancel("successor")).await, Receipt::Queued);
    h.send(start("i")).await;
    assert_eq!(receipt(&h, cancel("i")).await, Receipt::Queued);
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [start("i"), cancel("i")]);
    assert_eq!(receipt(&h, cancel("i")).await, Receipt::Queued, "the start is fetched and not committed");
    SampleTurn::beginning("i", 1).completing(2, "done").commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(receipt(&h, cancel("i")).await, Receipt::Queued, "the instance exists");
    h.pass(secs(6));
    for _ in 0..3 {
        assert!(
            h.fetched_turn()
                .await
                .item
                .messages
                .iter()
                .any(|message| matches!(message, WorkItem::CancelInstance { .. }))
        );
    }
    h.create("deleted").await;
    h.admin().delete_instance("deleted", true).await.unwrap();
    assert_eq!(receipt(&h, cancel("deleted")).await, dropped(&h));
}

async fn a_turns_cancellation_without_a_start_is_dropped(h: CaseHarness) {
    h.create("i").await;
    let turn = SampleTurn::of("i", 1).message(cancel("ghost")).message(start_child("child", "i"));
    h.turn("i", turn.message(cancel("child"))).await;
    assert_eq!(h.messages_waiting().await, 2, "the start of the child and its cancellation");
    h.send(start("ghost")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [start_child("child", "i"), cancel("child")]);
    assert_eq!(h.fetched_turn().await.item.messages, [start("ghost")]);
}

async fn a_turn_can_cancel_the_instance_that_it_makes(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).message(cancel("i"))).await;
    assert_eq!(h.fetched_turn().await.item.messages, [cancel("i")]);
}

async fn messages_without_a_start_stay_queued_and_starve_no_instance(h: CaseHarness) {
    h.send(activity_completed("ghost 1", 2)).await;
    h.send(signal("ghost 2", "a")).await;
    h.send(timer("ghost 4", 2, 0)).await;
    h.send(child_completed("ghost 5")).await;
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.instance, "i");
    assert!(h.next_turn().await.is_none());
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    h.send(signal("i", "later")).await;
    assert_eq!(h.fetched_turn().await.item.instance, "i");
    assert_eq!(h.messages_waiting().await, 4);
}

async fn a_thousand_messages_without_a_start_starve_no_instance(h: CaseHarness) {
    let senders: Vec<_> = (0..100)
        .map(|sender| {
            let store = h.store();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let message = signal(&format!("ghost {sender}"), "a");
                    store.enqueue(message, None).await.unwrap();
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.instance, "i");
}

async fn messages_without_a_start_come_with_it_in_the_end(h: CaseHarness) {
    h.send(activity_completed("i", 2)).await;
    h.send(signal("i", "a")).await;
    assert!(h.next_turn().await.is_none());
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [activity_completed("i", 2), signal("i", "a"), start("i")]);
    assert_eq!(fetched.item.orchestration_name, NAME);
    assert_eq!(fetched.attempt_count, 1, "passing a message over is not an attempt");
}

async fn name_and_version_come_from_a_continue_as_new_message(h: CaseHarness) {
    h.send(continue_as_new("i")).await;
    let item = h.fetched_turn().await.item;
    assert_eq!(item.orchestration_name, NAME);
    assert_eq!(item.version, VERSION);
    assert_eq!(item.execution_id, 1);
    assert_eq!(item.history, []);
}

async fn name_and_version_come_from_the_history(h: CaseHarness) {
    h.begin("i", SampleTurn::of("i", 1).event(1, events::started_as("Recorded", "4.5.6"))).await;
    h.send(queue_message("i", "a")).await;
    let item = h.fetched_turn().await.item;
    assert_eq!(item.orchestration_name, "Recorded");
    assert_eq!(item.version, "4.5.6");
    assert_eq!(item.execution_id, 1);
    assert_eq!(item.history.len(), 1);
    assert_eq!(item.messages, [queue_message("i", "a")]);
}

async fn a_commit_without_name_stores_history_but_no_instance(h: CaseHarness) {
    h.begin("i", SampleTurn::of("i", 1).event(1, events::started())).await;
    assert!(h.admin().list_instances().await.unwrap().is_empty());
    assert_eq!(h.event_ids("i").await, [1]);
    assert_eq!(h.history_of("i", 1).await.unwrap().len(), 1);
    assert_eq!(h.admin().list_executions("i").await.unwrap(), [1]);
}

async fn a_later_commit_with_a_name_makes_the_instance(h: CaseHarness) {
    h.begin("i", SampleTurn::of("i", 1).event(1, events::started())).await;
    h.turn("i", SampleTurn::of("i", 1).event(2, events::signalled("go")).named(NAME, VERSION)).await;
    assert_eq!(h.admin().list_instances().await.unwrap(), ["i"]);
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().current_execution_id, 1);
    assert_eq!(h.event_ids("i").await, [1, 2]);
}
