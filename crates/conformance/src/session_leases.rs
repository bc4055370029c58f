//! How long a session belongs to its owner.

use std::time::Duration;

use crate::harness::{ActivityId, CaseHarness, expect_lock_lost, secs};
use crate::items::{activity_completed, activity_in_session};

cases! { $ session_leases as session_leases_cases:
    after_the_lease_another_worker_may_claim,
    after_the_lease_the_old_owner_may_claim_again,
    the_owner_changes_with_the_claim,
    item_lock_expired_and_lease_alive_redelivers_to_the_owner_only,
    item_lock_and_lease_expired_redelivers_to_a_new_owner,
    item_lock_and_lease_expired_redelivers_to_the_same_worker,
    lease_expired_but_item_lock_valid_lets_the_end_succeed,
    lease_expired_but_item_lock_valid_redelivers_nothing,
}

async fn claim(h: &CaseHarness, owner: &str, lease: Duration) -> String {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.next_work_as(owner, lease).await.expect("the session is free").lock_token
}

async fn after_the_lease_another_worker_may_claim(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(9));
    assert!(h.next_work_as("b", secs(10)).await.is_none());
    h.pass(secs(2));
    assert_eq!(h.next_work_as("b", secs(10)).await.unwrap().activity_id(), 2);
}

async fn after_the_lease_the_old_owner_may_claim_again(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    h.pass(secs(11));
    assert_eq!(h.next_work_as("a", secs(10)).await.unwrap().activity_id(), 2);
    assert!(h.next_work_as("b", secs(10)).await.is_none());
}

async fn the_owner_changes_with_the_claim(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    h.pass(secs(11));
    assert_eq!(h.next_work_as("b", secs(10)).await.unwrap().activity_id(), 2);
    assert!(h.next_work_as("a", secs(10)).await.is_none());
    assert_eq!(h.next_work_as("b", secs(10)).await.unwrap().activity_id(), 3);
}

async fn item_lock_expired_and_lease_alive_redelivers_to_the_owner_only(h: CaseHarness) {
    claim(&h, "a", secs(100)).await;
    h.pass(secs(31));
    assert!(h.next_work_as("b", secs(10)).await.is_none());
    let again = h.next_work_as("a", secs(100)).await.unwrap();
    assert_eq!((again.activity_id(), again.attempt_count), (1, 2));
}

async fn item_lock_and_lease_expired_redelivers_to_a_new_owner(h: CaseHarness) {
    let old = claim(&h, "a", secs(10)).await;
    h.pass(secs(31));
    let again = h.next_work_as("b", secs(10)).await.unwrap();
    assert_eq!((again.activity_id(), again.attempt_count), (1, 2));
    expect_lock_lost(h.end_work(&old, None).await);
    h.end_work(&again.lock_token, None).await.unwrap();
}

async fn item_lock_and_lease_expired_redelivers_to_the_same_worker(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.pass(secs(31));
    let again = h.next_work_as("a", secs(10)).await.unwrap();
    assert_eq!((again.activity_id(), again.attempt_count), (1, 2));
}

async fn lease_expired_but_item_lock_valid_lets_the_end_succeed(h: CaseHarness) {
    h.create("i").await;
    let token = claim(&h, "a", secs(10)).await;
    h.pass(secs(20));
    h.end_work(&token, Some(activity_completed("i", 1))).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [activity_completed("i", 1)]);
}

async fn lease_expired_but_item_lock_valid_redelivers_nothing(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.pass(secs(20));
    assert!(h.next_work_as("b", secs(10)).await.is_none());
    assert!(h.next_work_as("a", secs(10)).await.is_none());
}
