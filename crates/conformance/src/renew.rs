//! `renew` extends locks and session leases, one answer per lock.

use std::time::Duration;

use everturn_provider::store::{LockKind, LockRenewal, Renewal, Renewed, SessionRenewal};

use crate::events;
use crate::harness::{ActivityId, CaseHarness, LOCK, PAST_LOCK, expect_lock_lost, secs};
use crate::items::{activity, activity_completed, activity_in_session, start};
use crate::sample_turn::SampleTurn;

cases! { $ renew as renew_cases:
    a_renewed_turn_stays_locked_past_its_first_deadline,
    renewing_a_turn_counts_from_now,
    a_turn_renewed_after_expiry_is_refused,
    a_turn_renewed_after_commit_or_abandon_is_refused,
    a_renewed_activity_stays_locked_past_its_first_deadline,
    a_renewed_activity_can_be_ended_past_its_first_deadline,
    unknown_expired_and_ended_activities_cannot_be_renewed,
    a_cancelled_activity_cannot_be_renewed,
    an_activity_is_renewable_whatever_its_instance_does,
    many_locks_are_renewed_in_one_call,
    renewal_extends_an_active_lease_past_its_first_deadline,
    renewal_does_not_extend_an_idle_lease,
    renewal_never_revives_an_expired_lease,
    renewal_of_nothing_counts_zero,
    renewal_counts_the_sessions_of_all_listed_owners,
    an_end_refreshes_the_activity_time,
    a_work_item_renewal_refreshes_the_activity_time,
    locks_and_sessions_are_renewed_together,
    a_lost_lock_does_not_stop_the_renewal_of_sessions,
}

async fn a_renewed_turn_stays_locked_past_its_first_deadline(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.pass(secs(20));
    h.renew_turn(&fetched.lock_token, LOCK).await.unwrap();
    h.pass(secs(20));
    assert!(h.next_turn().await.is_none());
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1]);
}

async fn renewing_a_turn_counts_from_now(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.renew_turn(&fetched.lock_token, secs(40)).await.unwrap();
    h.pass(secs(39));
    assert!(h.next_turn().await.is_none());
    h.pass(secs(2));
    assert!(h.next_turn().await.is_some(), "40 s from the renewal, not from the old deadline");
}

async fn a_turn_renewed_after_expiry_is_refused(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.pass(PAST_LOCK);
    expect_lock_lost(h.renew_turn(&fetched.lock_token, LOCK).await);
    assert!(h.next_turn().await.is_some(), "the lock was not revived");
}

async fn a_turn_renewed_after_commit_or_abandon_is_refused(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    expect_lock_lost(h.renew_turn(&fetched.lock_token, LOCK).await);
    let fetched = h.fetched_turn().await;
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    expect_lock_lost(h.renew_turn(&fetched.lock_token, LOCK).await);
    expect_lock_lost(h.renew_turn("no such token", LOCK).await);
}

async fn a_renewed_activity_stays_locked_past_its_first_deadline(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.pass(secs(20));
    h.renew_work(&work.lock_token, LOCK).await.unwrap();
    h.pass(secs(20));
    assert!(h.next_work().await.is_none());
    h.pass(secs(11));
    assert_eq!(h.fetched_work().await.attempt_count, 2);
}

async fn a_renewed_activity_can_be_ended_past_its_first_deadline(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    for _ in 0..5 {
        h.pass(secs(20));
        h.renew_work(&work.lock_token, LOCK).await.unwrap();
    }
    h.end_work(&work.lock_token, Some(activity_completed("i", 1))).await.unwrap();
}

async fn unknown_expired_and_ended_activities_cannot_be_renewed(h: CaseHarness) {
    expect_lock_lost(h.renew_work("no such token", LOCK).await);
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work().await;
    h.pass(PAST_LOCK);
    expect_lock_lost(h.renew_work(&work.lock_token, LOCK).await);
    let work = h.fetched_work().await;
    h.end_work(&work.lock_token, None).await.unwrap();
    expect_lock_lost(h.renew_work(&work.lock_token, LOCK).await);
}

async fn a_cancelled_activity_cannot_be_renewed(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2)).activity(activity("i", 3))).await;
    let cancelled = h.fetched_work().await;
    let other = h.fetched_work().await;
    h.turn("i", SampleTurn::of("i", 1).cancelling(2)).await;
    expect_lock_lost(h.renew_work(&cancelled.lock_token, LOCK).await);
    h.renew_work(&other.lock_token, LOCK).await.unwrap();
}

async fn an_activity_is_renewable_whatever_its_instance_does(h: CaseHarness) {
    h.queue(activity("missing", 1)).await;
    let missing = h.fetched_work().await;
    h.renew_work(&missing.lock_token, LOCK).await.unwrap();
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    h.renew_work(&work.lock_token, LOCK).await.unwrap();
    h.turn("i", SampleTurn::of("i", 1).completing(3, "ok")).await;
    h.renew_work(&work.lock_token, LOCK).await.unwrap();
}

async fn many_locks_are_renewed_in_one_call(h: CaseHarness) {
    assert_eq!(h.renew(&Renewal::default()).await.unwrap(), Renewed::default());
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    let (turn, work) = (h.fetched_turn().await, h.fetched_work().await);
    h.pass(secs(20));
    let renewals = Renewal::of_locks(vec![
        lock_renewal(LockKind::WorkItem, "no such token"),
        lock_renewal(LockKind::Orchestration, &turn.lock_token),
        lock_renewal(LockKind::Orchestration, &work.lock_token),
        lock_renewal(LockKind::WorkItem, &work.lock_token),
    ]);
    let renewed = h.renew(&renewals).await.unwrap();
    let answers: Vec<_> = renewed.locks.iter().map(Result::is_ok).collect();
    assert_eq!((answers, renewed.sessions), (vec![false, true, false, true], 0));
    for answer in renewed.locks.into_iter().filter(Result::is_err) {
        expect_lock_lost(answer);
    }
    h.pass(secs(20));
    assert!(h.next_turn().await.is_none());
    assert!(h.next_work().await.is_none());
    SampleTurn::beginning("i", 1).event(2, events::scheduled()).commit(&h, &turn.lock_token).await.unwrap();
    h.end_work(&work.lock_token, None).await.unwrap();
}

/// No session of these cases is idle.
const NEVER_IDLE: Duration = secs(100_000);

async fn claim(h: &CaseHarness, owner: &str, lease: Duration) -> String {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.next_work_as(owner, lease).await.expect("the session is free").lock_token
}

async fn renewal_extends_an_active_lease_past_its_first_deadline(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(8));
    assert_eq!(h.renew_sessions(&["a"], secs(10), NEVER_IDLE).await.unwrap(), 1);
    h.pass(secs(8));
    assert!(h.next_work_as("b", secs(10)).await.is_none());
    assert_eq!(h.next_work_as("a", secs(10)).await.unwrap().activity_id(), 2);
}

async fn renewal_does_not_extend_an_idle_lease(h: CaseHarness) {
    claim(&h, "a", secs(100)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(50));
    assert_eq!(h.renew_sessions(&["a"], secs(100), secs(20)).await.unwrap(), 0);
    h.pass(secs(51));
    assert!(h.next_work_as("b", secs(10)).await.is_some());
}

async fn renewal_never_revives_an_expired_lease(h: CaseHarness) {
    claim(&h, "a", secs(10)).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(11));
    assert_eq!(h.renew_sessions(&["a"], secs(100), NEVER_IDLE).await.unwrap(), 0);
    assert_eq!(h.next_work_as("b", secs(10)).await.unwrap().activity_id(), 2);
}

async fn renewal_of_nothing_counts_zero(h: CaseHarness) {
    assert_eq!(h.renew_sessions(&["a"], LOCK, NEVER_IDLE).await.unwrap(), 0);
    claim(&h, "a", secs(60)).await;
    assert_eq!(h.renew_sessions(&[], LOCK, NEVER_IDLE).await.unwrap(), 0);
    assert_eq!(h.renew_sessions(&["unknown"], LOCK, NEVER_IDLE).await.unwrap(), 0);
}

async fn renewal_counts_the_sessions_of_all_listed_owners(h: CaseHarness) {
    for (id, session, owner) in [(1, "s", "a"), (2, "t", "a"), (3, "u", "b"), (4, "v", "c")] {
        h.queue(activity_in_session("i", id, session)).await;
        assert_eq!(h.next_work_as(owner, secs(60)).await.unwrap().activity_id(), id);
    }
    assert_eq!(h.renew_sessions(&["a", "b", "unknown"], LOCK, NEVER_IDLE).await.unwrap(), 3);
}

async fn an_end_refreshes_the_activity_time(h: CaseHarness) {
    let token = claim(&h, "a", secs(100)).await;
    h.pass(secs(15));
    h.end_work(&token, Some(activity_completed("i", 1))).await.unwrap();
    h.pass(secs(15));
    assert_eq!(h.renew_sessions(&["a"], LOCK, secs(20)).await.unwrap(), 1);
}

async fn a_work_item_renewal_refreshes_the_activity_time(h: CaseHarness) {
    let token = claim(&h, "a", secs(100)).await;
    h.pass(secs(15));
    h.renew_work(&token, LOCK).await.unwrap();
    h.pass(secs(15));
    assert_eq!(h.renew_sessions(&["a"], LOCK, secs(20)).await.unwrap(), 1);
}

fn lock_renewal(kind: LockKind, lock_token: &str) -> LockRenewal {
    LockRenewal { kind, token: lock_token.to_owned(), extend_for: LOCK }
}

fn session_renewal(owner: &str) -> SessionRenewal {
    SessionRenewal { owner_ids: vec![owner.to_owned()], extend_for: LOCK, idle_timeout: NEVER_IDLE }
}

async fn locks_and_sessions_are_renewed_together(h: CaseHarness) {
    h.send(start("i")).await;
    let work_token = claim(&h, "a", LOCK).await;
    let turn_token = h.fetched_turn().await.lock_token;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(20));
    let mut renewal = Renewal::of_locks(vec![
        lock_renewal(LockKind::Orchestration, &turn_token),
        lock_renewal(LockKind::WorkItem, &work_token),
    ]);
    renewal.sessions = Some(session_renewal("a"));
    let renewed = h.renew(&renewal).await.unwrap();
    assert_eq!((renewed.locks, renewed.sessions), (vec![Ok(()), Ok(())], 1));
    h.pass(secs(20));
    assert!(h.next_turn().await.is_none(), "the instance is still locked");
    assert!(h.next_work_as("b", LOCK).await.is_none(), "the session is still leased");
    assert_eq!(h.next_work_as("a", LOCK).await.unwrap().activity_id(), 2, "the first is still locked");
    h.end_work(&work_token, None).await.unwrap();
    SampleTurn::beginning("i", 1).commit(&h, &turn_token).await.unwrap();
}

async fn a_lost_lock_does_not_stop_the_renewal_of_sessions(h: CaseHarness) {
    claim(&h, "a", LOCK).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.pass(secs(20));
    let mut renewal = Renewal::of_locks(vec![
        lock_renewal(LockKind::WorkItem, "no such token"),
        lock_renewal(LockKind::Orchestration, "no such token"),
    ]);
    renewal.sessions = Some(session_renewal("a"));
    let renewed = h.renew(&renewal).await.unwrap();
    assert_eq!((renewed.locks.len(), renewed.sessions), (2, 1));
    for answer in renewed.locks {
        expect_lock_lost(answer);
    }
    h.pass(secs(20));
    assert!(h.next_work_as("b", LOCK).await.is_none(), "the session is still leased");
}
