//! `sweep` removes sessions that have expired and have no queued activity, and messages that no instance will ever get.

use std::time::Duration;

use everturn_provider::store::{DeadLetter, Feature, Sweep};

use crate::harness::{ActivityId, CaseHarness, secs};
use crate::items::{activity_completed, activity_in_session, child_completed, signal, start};

cases! { $ sweep as sweep_cases:
    the_sweep_removes_only_expired_sessions_without_activities,
    a_claim_works_after_the_sweep,
    a_message_without_a_start_is_dead_lettered_when_it_has_waited_long_enough,
    each_message_waits_its_own_time,
    messages_of_an_instance_that_exists_or_is_about_to_start_are_kept,
    a_message_that_is_not_visible_yet_is_kept,
    a_start_after_the_sweep_finds_no_old_messages,
}

/// No session of these cases is idle.
const NEVER_IDLE: Duration = secs(100_000);

async fn claim(h: &CaseHarness, owner: &str, lease: Duration) -> String {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.next_work_as(owner, lease).await.expect("the session is free").lock_token
}

async fn the_sweep_removes_only_expired_sessions_without_activities(h: CaseHarness) {
    let token = claim(&h, "a", secs(10)).await;
    h.pass(secs(11));
    assert_eq!(h.sweep_sessions(NEVER_IDLE).await.unwrap(), 0, "an activity is queued");
    h.end_work(&token, None).await.unwrap();
    h.queue(activity_in_session("i", 2, "leased")).await;
    let leased = h.next_work_as("a", secs(1_000)).await.unwrap();
    h.end_work(&leased.lock_token, None).await.unwrap();
    let removed = h.sweep_sessions(NEVER_IDLE).await.unwrap();
    assert!(removed <= 1, "the leased session stays: {removed}");
    assert_eq!(h.sweep_sessions(NEVER_IDLE).await.unwrap(), 0);
    h.queue(activity_in_session("i", 3, "leased")).await;
    assert!(h.next_work_as("b", secs(10)).await.is_none(), "the leased session kept its owner");
}

async fn a_claim_works_after_the_sweep(h: CaseHarness) {
    let token = claim(&h, "a", secs(10)).await;
    h.end_work(&token, None).await.unwrap();
    h.pass(secs(11));
    h.sweep_sessions(NEVER_IDLE).await.unwrap();
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    assert_eq!(h.next_work_as("b", secs(10)).await.unwrap().activity_id(), 2);
    assert!(h.next_work_as("a", secs(10)).await.is_none());
}

/// How long messages wait for a start in these cases.
const DAY: Duration = secs(24 * 60 * 60);

/// Sweeps, and returns the dead letters by instance.
async fn dead_letters(h: &CaseHarness) -> Vec<DeadLetter> {
    let sweep = Sweep::new(NEVER_IDLE).with_dead_letter_after(DAY);
    let mut letters = h.sweep(&sweep).await.unwrap().dead_letters;
    letters.sort();
    letters
}

fn has_dead_letters(h: &CaseHarness) -> bool {
    h.supports(Feature::DeadLetters)
}

async fn a_message_without_a_start_is_dead_lettered_when_it_has_waited_long_enough(h: CaseHarness) {
    if !has_dead_letters(&h) {
        return;
    }
    h.send(signal("ghost 1", "a")).await;
    h.send(activity_completed("ghost 2", 2)).await;
    h.send(child_completed("ghost 2")).await;
    h.pass(DAY - secs(1));
    assert_eq!(dead_letters(&h).await, [], "they have not waited long enough");
    h.pass(secs(1));
    assert_eq!(h.sweep(&Sweep::new(NEVER_IDLE)).await.unwrap().dead_letters, [], "it was not asked for");
    let expected = [
        DeadLetter::new("ghost 1", "ExternalRaised"),
        DeadLetter::new("ghost 2", "ActivityCompleted"),
        DeadLetter::new("ghost 2", "SubOrchCompleted"),
    ];
    assert_eq!(dead_letters(&h).await, expected);
    assert_eq!(h.messages_waiting().await, 0);
    assert_eq!(dead_letters(&h).await, [], "each is told once");
}

async fn each_message_waits_its_own_time(h: CaseHarness) {
    if !has_dead_letters(&h) {
        return;
    }
    h.send(signal("ghost", "old")).await;
    h.pass(secs(60));
    h.send(signal("ghost", "young")).await;
    h.pass(DAY - secs(60));
    assert_eq!(dead_letters(&h).await.len(), 1, "only the first has waited long enough");
    assert_eq!(h.messages_waiting().await, 1);
    h.pass(secs(60));
    assert_eq!(dead_letters(&h).await.len(), 1);
    h.send(signal("ghost", "new")).await;
    h.pass(DAY);
    assert_eq!(dead_letters(&h).await.len(), 1, "the id is as it was before");
    assert_eq!(h.messages_waiting().await, 0);
}

async fn messages_of_an_instance_that_exists_or_is_about_to_start_are_kept(h: CaseHarness) {
    if !has_dead_letters(&h) {
        return;
    }
    h.create("runs").await;
    h.send(signal("runs", "a")).await;
    h.send(signal("starts", "a")).await;
    h.send(start("starts")).await;
    h.send(signal("hidden", "a")).await;
    h.send_later(start("hidden"), DAY * 3).await;
    h.pass(DAY * 2);
    assert_eq!(dead_letters(&h).await, []);
    assert_eq!(h.messages_waiting().await, 5);
    assert_eq!(h.fetched_turn().await.item.messages, [signal("runs", "a")]);
    assert_eq!(h.fetched_turn().await.item.messages, [signal("starts", "a"), start("starts")]);
    h.pass(DAY * 2);
    assert_eq!(dead_letters(&h).await, [], "the start of one is visible, the others are locked or exist");
}

async fn a_message_that_is_not_visible_yet_is_kept(h: CaseHarness) {
    if !has_dead_letters(&h) {
        return;
    }
    h.send_later(signal("ghost", "a"), DAY * 2).await;
    h.pass(DAY + secs(1));
    assert_eq!(dead_letters(&h).await, []);
    assert_eq!(h.messages_waiting().await, 1);
}

async fn a_start_after_the_sweep_finds_no_old_messages(h: CaseHarness) {
    if !has_dead_letters(&h) {
        return;
    }
    h.send(signal("i", "old")).await;
    h.pass(DAY);
    assert_eq!(dead_letters(&h).await.len(), 1);
    h.send(signal("i", "new")).await;
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "new"), start("i")]);
}
