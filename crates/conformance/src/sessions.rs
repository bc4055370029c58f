//! Activities of one session go to one owner.

use std::time::Duration;

use crate::harness::{ActivityId, CaseHarness, PAST_LOCK, secs};
use crate::items::{activity, activity_completed, activity_in_session};
use crate::sample_turn::SampleTurn;

cases! { $ sessions as sessions_cases:
    plain_activities_ignore_ownership,
    without_a_config_only_plain_activities_come,
    with_a_config_both_kinds_come_in_order,
    the_first_fetch_claims_and_others_get_none,
    the_owner_gets_the_following_activities_in_order,
    two_sessions_may_have_two_owners,
    a_foreign_session_does_not_hide_later_activities,
    several_callers_with_one_owner_id_share_the_session,
    of_two_concurrent_claims_one_wins,
    an_abandoned_activity_grows_its_attempt_and_stays_with_its_owner,
    a_refund_applies,
    a_session_is_kept_by_a_commit,
    a_claimed_session_outlives_its_last_activity,
}

const LEASE: Duration = secs(60);

async fn plain_activities_ignore_ownership(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), 1);
    h.queue(activity("i", 2)).await;
    h.queue(activity("i", 3)).await;
    assert_eq!(h.next_work_as("b", LEASE).await.unwrap().activity_id(), 2);
    assert_eq!(h.fetched_work().await.activity_id(), 3);
}

async fn without_a_config_only_plain_activities_come(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity("i", 2)).await;
    assert_eq!(h.drain_work().await, [2]);
}

async fn with_a_config_both_kinds_come_in_order(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity("i", 2)).await;
    h.queue(activity_in_session("i", 3, "t")).await;
    for id in 1..=3 {
        assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), id);
    }
    assert!(h.next_work_as("a", LEASE).await.is_none());
}

async fn the_first_fetch_claims_and_others_get_none(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    let work = h.next_work_as("a", LEASE).await.unwrap();
    assert_eq!(work.item, activity_in_session("i", 1, "s"));
    assert!(h.next_work_as("b", LEASE).await.is_none());
    h.end_work(&work.lock_token, Some(activity_completed("i", 1))).await.unwrap();
    assert!(h.next_work_as("b", LEASE).await.is_none());
}

async fn the_owner_gets_the_following_activities_in_order(h: CaseHarness) {
    for id in 1..=4 {
        h.queue(activity_in_session("i", id, "s")).await;
    }
    for id in 1..=4 {
        assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), id);
    }
}

async fn two_sessions_may_have_two_owners(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity_in_session("i", 2, "t")).await;
    h.queue(activity_in_session("i", 3, "s")).await;
    h.queue(activity_in_session("i", 4, "t")).await;
    assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), 1);
    assert_eq!(h.next_work_as("b", LEASE).await.unwrap().activity_id(), 2);
    assert_eq!(h.next_work_as("b", LEASE).await.unwrap().activity_id(), 4);
    assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), 3);
}

async fn a_foreign_session_does_not_hide_later_activities(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.next_work_as("a", LEASE).await.unwrap();
    for id in 2..=20 {
        h.queue(activity_in_session("i", id, "s")).await;
    }
    h.queue(activity_in_session("i", 21, "t")).await;
    h.queue(activity("i", 22)).await;
    assert_eq!(h.next_work_as("b", LEASE).await.unwrap().activity_id(), 21);
    assert_eq!(h.next_work_as("b", LEASE).await.unwrap().activity_id(), 22);
    assert!(h.next_work_as("b", LEASE).await.is_none());
}

async fn several_callers_with_one_owner_id_share_the_session(h: CaseHarness) {
    for id in 1..=10 {
        h.queue(activity_in_session("i", id, "s")).await;
    }
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let store = h.store();
        tasks.push(tokio::spawn(async move {
            store.next_work_as("shared", LEASE).await.map(|work| work.activity_id())
        }));
    }
    let mut ids = Vec::new();
    for task in tasks {
        ids.extend(task.await.unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>());
}

async fn of_two_concurrent_claims_one_wins(h: CaseHarness) {
    for round in 0..10_u64 {
        let session_id = format!("s{round}");
        h.queue(activity_in_session("i", 2 * round, &session_id)).await;
        h.queue(activity_in_session("i", 2 * round + 1, &session_id)).await;
        let mut tasks = Vec::new();
        for owner in ["a", "b"] {
            let store = h.store();
            tasks.push(tokio::spawn(async move { store.next_work_as(owner, LEASE).await.map(|_| owner) }));
        }
        let mut winners = Vec::new();
        for task in tasks {
            winners.extend(task.await.unwrap());
        }
        assert_eq!(winners.len(), 1, "the other may not take the same session's next activity");
        assert!(h.next_work_as(winners[0], LEASE).await.is_some());
    }
}

async fn an_abandoned_activity_grows_its_attempt_and_stays_with_its_owner(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    for attempt in 1..=3 {
        let work = h.next_work_as("a", LEASE).await.unwrap();
        assert_eq!(work.attempt_count, attempt);
        h.release_work(&work.lock_token, None, false).await.unwrap();
        assert!(h.next_work_as("b", LEASE).await.is_none(), "the session still has its owner");
    }
}

async fn a_refund_applies(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    for _ in 0..3 {
        let work = h.next_work_as("a", LEASE).await.unwrap();
        assert_eq!(work.attempt_count, 1);
        h.release_work(&work.lock_token, None, true).await.unwrap();
    }
}

async fn a_session_is_kept_by_a_commit(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity_in_session("i", 2, "s"))).await;
    assert!(h.next_work().await.is_none());
    assert_eq!(h.next_work_as("a", LEASE).await.unwrap().item, activity_in_session("i", 2, "s"));
}

async fn a_claimed_session_outlives_its_last_activity(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    let work = h.next_work_as("a", LEASE).await.unwrap();
    h.end_work(&work.lock_token, None).await.unwrap();
    h.queue(activity_in_session("i", 2, "s")).await;
    assert!(h.next_work_as("b", LEASE).await.is_none());
    h.pass(PAST_LOCK);
    assert!(h.next_work_as("b", LEASE).await.is_none());
    assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), 2);
}
