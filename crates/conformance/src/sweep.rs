//! `sweep` removes sessions that have expired and have no queued activity.

use std::time::Duration;

use crate::harness::{ActivityId, CaseHarness, secs};
use crate::items::activity_in_session;

cases! { $ sweep as sweep_cases:
    the_sweep_removes_only_expired_sessions_without_activities,
    a_claim_works_after_the_sweep,
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
