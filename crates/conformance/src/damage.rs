//! A record that cannot be read affects its own instance only.

use everturn_core::{ErrorDetails, WorkItem};

use crate::events;
use crate::factory::WorkerRowDamage;
use crate::harness::{CaseHarness, PAST_LOCK};
use crate::items::{activity, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ damage as damage_cases:
    a_broken_history_comes_with_an_error_under_lock,
    every_cycle_over_a_broken_history_counts_an_attempt,
    a_broken_history_spares_other_instances,
    a_broken_old_execution_does_not_break_the_current_one,
    a_damaged_message_comes_as_a_history_error_under_lock,
    a_damaged_start_comes_as_a_history_error,
    a_damaged_message_leaves_with_the_commit_of_its_turn,
    a_damaged_message_spares_other_instances,
    a_damaged_activity_becomes_a_failure_of_its_instance,
    a_damaged_activity_spares_others,
    an_activity_that_cannot_be_identified_is_dead_lettered,
}

async fn a_broken_history_comes_with_an_error_under_lock(h: CaseHarness) {
    h.create("i").await;
    h.turn("i", SampleTurn::of("i", 1).event(2, events::scheduled())).await;
    h.damage_event("i", 1, 2).await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.instance, "i");
    assert_eq!(fetched.item.history, []);
    assert!(fetched.item.history_error.is_some_and(|error| !error.is_empty()));
    assert_eq!(fetched.item.execution_id, 1);
    assert_eq!(fetched.item.messages, [signal("i", "a")]);
    assert_eq!(fetched.attempt_count, 1);
    assert!(h.next_turn().await.is_none(), "the lock is held");
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
}

async fn every_cycle_over_a_broken_history_counts_an_attempt(h: CaseHarness) {
    h.create("i").await;
    h.damage_event("i", 1, 1).await;
    h.send(signal("i", "a")).await;
    for attempt in 1..=4 {
        let fetched = h.fetched_turn().await;
        assert!(fetched.item.history_error.is_some());
        assert_eq!(fetched.attempt_count, attempt);
        h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    }
    h.fetched_turn().await;
    h.pass(PAST_LOCK);
    assert_eq!(h.fetched_turn().await.attempt_count, 6);
}

async fn a_broken_history_spares_other_instances(h: CaseHarness) {
    h.create("broken").await;
    h.create("sound").await;
    h.damage_event("broken", 1, 1).await;
    h.send(signal("broken", "a")).await;
    h.send(signal("sound", "a")).await;
    assert!(h.fetched_turn().await.item.history_error.is_some());
    let sound = h.fetched_turn().await;
    assert_eq!((sound.item.instance.as_str(), sound.item.history_error.as_deref()), ("sound", None));
    assert_eq!(sound.item.history.len(), 1);
}

async fn a_broken_old_execution_does_not_break_the_current_one(h: CaseHarness) {
    h.create_with_executions("i", 2).await;
    h.damage_event("i", 1, 1).await;
    h.send(signal("i", "a")).await;
    let item = h.fetched_turn().await.item;
    assert_eq!((item.history_error, item.history.len()), (None, 1));
}

async fn a_damaged_message_comes_as_a_history_error_under_lock(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    if !h.damage_orchestrator_rows("i").await {
        return;
    }
    for attempt in 1..=2 {
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.item.instance, "i");
        assert!(fetched.item.history_error.is_some());
        assert_eq!(fetched.item.history, []);
        assert_eq!(fetched.attempt_count, attempt);
        assert!(h.next_turn().await.is_none(), "the lock is held");
        h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    }
}

async fn a_damaged_start_comes_as_a_history_error(h: CaseHarness) {
    h.send(start("i")).await;
    if !h.damage_orchestrator_rows("i").await {
        return;
    }
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.instance, "i");
    assert!(fetched.item.history_error.is_some());
    assert!(h.next_turn().await.is_none(), "the lock is held");
}

async fn a_damaged_message_leaves_with_the_commit_of_its_turn(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    if !h.damage_orchestrator_rows("i").await {
        return;
    }
    h.take_turn("i", SampleTurn::of("i", 1).failing(99_999, "poisoned")).await;
    assert_eq!(h.messages_waiting().await, 0);
    assert!(h.next_turn().await.is_none());
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().status, "Failed");
}

async fn a_damaged_message_spares_other_instances(h: CaseHarness) {
    h.create("broken").await;
    h.create("sound").await;
    h.send(signal("broken", "a")).await;
    h.send(signal("sound", "a")).await;
    if !h.damage_orchestrator_rows("broken").await {
        return;
    }
    assert_eq!(h.fetched_turn().await.item.instance, "broken");
    let sound = h.fetched_turn().await;
    assert_eq!((sound.item.instance.as_str(), sound.item.history_error.as_deref()), ("sound", None));
}

async fn a_damaged_activity_becomes_a_failure_of_its_instance(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    if !h.damage_worker_rows("i", WorkerRowDamage::Item).await {
        return;
    }
    assert!(h.next_work().await.is_none());
    let messages = h.fetched_turn().await.item.messages;
    assert_eq!(messages.len(), 1);
    match &messages[0] {
        WorkItem::ActivityFailed { instance, execution_id: 1, id: 2, details } if instance == "i" => {
            assert!(matches!(details, ErrorDetails::Infrastructure { retryable: false, .. }), "{details:?}");
        }
        other => panic!("expected the activity's failure, got {other:?}"),
    }
    h.pass(PAST_LOCK);
    assert!(h.next_work().await.is_none(), "the row was taken out");
    assert_eq!(h.activities_waiting().await, 0);
}

async fn a_damaged_activity_spares_others(h: CaseHarness) {
    h.create("broken").await;
    h.queue(activity("broken", 1)).await;
    h.queue(activity("sound", 2)).await;
    if !h.damage_worker_rows("broken", WorkerRowDamage::Item).await {
        return;
    }
    assert_eq!(h.drain_work().await, [2]);
    assert_eq!(h.fetched_turn().await.item.instance, "broken");
}

async fn an_activity_that_cannot_be_identified_is_dead_lettered(h: CaseHarness) {
    h.create("broken").await;
    h.queue(activity("broken", 1)).await;
    h.queue(activity("sound", 2)).await;
    if !h.damage_worker_rows("broken", WorkerRowDamage::ItemAndIdentity).await {
        return;
    }
    assert_eq!(h.drain_work().await, [2]);
    assert!(h.next_turn().await.is_none());
    h.pass(PAST_LOCK);
    assert_eq!(h.drain_work().await, [2], "what was dead-lettered does not come back");
}
