//! How long a session belongs to its owner.

use std::time::Duration;

use crate::harness::{Harness, LOCK, lock_lost, secs};
use crate::items::{activity_completed, activity_in_session};

cases! { $ session_leases as session_leases_cases:
    after_the_lease_another_worker_may_claim,
    after_the_lease_the_old_owner_may_claim_again,
    the_owner_changes_with_the_claim,
    renewal_extends_an_active_lease_past_its_first_deadline,
    renewal_does_not_extend_an_idle_lease,
    renewal_never_revives_an_expired_lease,
    renewal_of_nothing_counts_zero,
    renewal_counts_the_sessions_of_all_listed_owners,
    an_ack_refreshes_the_activity_time,
    a_work_item_renewal_refreshes_the_activity_time,
    the_sweep_removes_only_expired_sessions_without_activities,
    a_claim_works_after_the_sweep,
    item_lock_expired_and_lease_alive_redelivers_to_the_owner_only,
    item_lock_and_lease_expired_redelivers_to_a_new_owner,
    item_lock_and_lease_expired_redelivers_to_the_same_worker,
    lease_expired_but_item_lock_valid_lets_the_ack_succeed,
    lease_expired_but_item_lock_valid_redelivers_nothing,
}

/// No session of these cases is idle.
const NEVER_IDLE: Duration = secs(100_000);

async fn claim(h: &Harness, owner: &str, lease: Duration) -> String {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.fetch_work_as(owner, lease).await.expect("the session is free").token
}

async fn after_the_lease_another_worker_may_claim(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(9));
    assert!(h.fetch_work_as("b", secs(10)).await.is_none());
    h.pass(secs(2));
    assert_eq!(h.fetch_work_as("b", secs(10)).await.unwrap().id(), 2);
}

async fn after_the_lease_the_old_owner_may_claim_again(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    h.pass(secs(11));
    assert_eq!(h.fetch_work_as("a", secs(10)).await.unwrap().id(), 2);
    assert!(h.fetch_work_as("b", secs(10)).await.is_none());
}

async fn the_owner_changes_with_the_claim(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    h.pass(secs(11));
    assert_eq!(h.fetch_work_as("b", secs(10)).await.unwrap().id(), 2);
    assert!(h.fetch_work_as("a", secs(10)).await.is_none());
    assert_eq!(h.fetch_work_as("b", secs(10)).await.unwrap().id(), 3);
}

async fn renewal_extends_an_active_lease_past_its_first_deadline(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(8));
    assert_eq!(h.renew_session_lock(&["a"], secs(10), NEVER_IDLE).await.unwrap(), 1);
    h.pass(secs(8));
    assert!(h.fetch_work_as("b", secs(10)).await.is_none());
    assert_eq!(h.fetch_work_as("a", secs(10)).await.unwrap().id(), 2);
}

async fn renewal_does_not_extend_an_idle_lease(h: Harness) {
    claim(&h, "a", secs(100)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(50));
    assert_eq!(h.renew_session_lock(&["a"], secs(100), secs(20)).await.unwrap(), 0);
    h.pass(secs(51));
    assert!(h.fetch_work_as("b", secs(10)).await.is_some());
}

async fn renewal_never_revives_an_expired_lease(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(11));
    assert_eq!(h.renew_session_lock(&["a"], secs(100), NEVER_IDLE).await.unwrap(), 0);
    assert_eq!(h.fetch_work_as("b", secs(10)).await.unwrap().id(), 2);
}

async fn renewal_of_nothing_counts_zero(h: Harness) {
    assert_eq!(h.renew_session_lock(&["a"], LOCK, NEVER_IDLE).await.unwrap(), 0);
    claim(&h, "a", secs(60)).await;
    assert_eq!(h.renew_session_lock(&[], LOCK, NEVER_IDLE).await.unwrap(), 0);
    assert_eq!(h.renew_session_lock(&["nobody"], LOCK, NEVER_IDLE).await.unwrap(), 0);
}

async fn renewal_counts_the_sessions_of_all_listed_owners(h: Harness) {
    for (id, session, owner) in [(1, "s", "a"), (2, "t", "a"), (3, "u", "b"), (4, "v", "c")] {
        h.queue(activity_in_session("i", id, session)).await;
        assert_eq!(h.fetch_work_as(owner, secs(60)).await.unwrap().id(), id);
    }
    assert_eq!(h.renew_session_lock(&["a", "b", "nobody"], LOCK, NEVER_IDLE).await.unwrap(), 3);
}

async fn an_ack_refreshes_the_activity_time(h: Harness) {
    let token = claim(&h, "a", secs(100)).await;
    h.pass(secs(15));
    h.ack_work_item(&token, Some(activity_completed("i", 1))).await.unwrap();
    h.pass(secs(15));
    assert_eq!(h.renew_session_lock(&["a"], LOCK, secs(20)).await.unwrap(), 1);
}

async fn a_work_item_renewal_refreshes_the_activity_time(h: Harness) {
    let token = claim(&h, "a", secs(100)).await;
    h.pass(secs(15));
    h.renew_work_item_lock(&token, LOCK).await.unwrap();
    h.pass(secs(15));
    assert_eq!(h.renew_session_lock(&["a"], LOCK, secs(20)).await.unwrap(), 1);
}

async fn the_sweep_removes_only_expired_sessions_without_activities(h: Harness) {
    let token = claim(&h, "a", secs(10)).await;
    h.pass(secs(11));
    assert_eq!(h.cleanup_orphaned_sessions(NEVER_IDLE).await.unwrap(), 0, "an activity is queued");
    h.ack_work_item(&token, None).await.unwrap();
    h.queue(activity_in_session("i", 2, "leased")).await;
    let leased = h.fetch_work_as("a", secs(1_000)).await.unwrap();
    h.ack_work_item(&leased.token, None).await.unwrap();
    let removed = h.cleanup_orphaned_sessions(NEVER_IDLE).await.unwrap();
    assert!(removed <= 1, "the leased session stays: {removed}");
    assert_eq!(h.cleanup_orphaned_sessions(NEVER_IDLE).await.unwrap(), 0);
    h.queue(activity_in_session("i", 3, "leased")).await;
    assert!(h.fetch_work_as("b", secs(10)).await.is_none(), "the leased session kept its owner");
}

async fn a_claim_works_after_the_sweep(h: Harness) {
    let token = claim(&h, "a", secs(10)).await;
    h.ack_work_item(&token, None).await.unwrap();
    h.pass(secs(11));
    h.cleanup_orphaned_sessions(NEVER_IDLE).await.unwrap();
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    assert_eq!(h.fetch_work_as("b", secs(10)).await.unwrap().id(), 2);
    assert!(h.fetch_work_as("a", secs(10)).await.is_none());
}

async fn item_lock_expired_and_lease_alive_redelivers_to_the_owner_only(h: Harness) {
    claim(&h, "a", secs(100)).await;
    h.pass(secs(31));
    assert!(h.fetch_work_as("b", secs(10)).await.is_none());
    let again = h.fetch_work_as("a", secs(100)).await.unwrap();
    assert_eq!((again.id(), again.attempts), (1, 2));
}

async fn item_lock_and_lease_expired_redelivers_to_a_new_owner(h: Harness) {
    let old = claim(&h, "a", secs(10)).await;
    h.pass(secs(31));
    let again = h.fetch_work_as("b", secs(10)).await.unwrap();
    assert_eq!((again.id(), again.attempts), (1, 2));
    lock_lost(h.ack_work_item(&old, None).await);
    h.ack_work_item(&again.token, None).await.unwrap();
}

async fn item_lock_and_lease_expired_redelivers_to_the_same_worker(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.pass(secs(31));
    let again = h.fetch_work_as("a", secs(10)).await.unwrap();
    assert_eq!((again.id(), again.attempts), (1, 2));
}

async fn lease_expired_but_item_lock_valid_lets_the_ack_succeed(h: Harness) {
    h.create("i").await;
    let token = claim(&h, "a", secs(10)).await;
    h.pass(secs(20));
    h.ack_work_item(&token, Some(activity_completed("i", 1))).await.unwrap();
    assert_eq!(h.fetched().await.item.messages, [activity_completed("i", 1)]);
}

async fn lease_expired_but_item_lock_valid_redelivers_nothing(h: Harness) {
    claim(&h, "a", secs(10)).await;
    h.pass(secs(20));
    assert!(h.fetch_work_as("b", secs(10)).await.is_none());
    assert!(h.fetch_work_as("a", secs(10)).await.is_none());
}
