//! A fetch that finds nothing waits, and wakes for work.
//!
//! The store's clock moves only when a case moves it; waiting takes real time.

use std::time::{Duration, Instant};

use everturn_provider::store::WorkFetch;

use crate::events;
use crate::harness::{ActivityId, CaseHarness, LOCK, PAST_LOCK, secs, session};
use crate::items::{activity, activity_completed, activity_in_session, activity_tagged, signal, start};
use crate::sample_turn::SampleTurn;
use crate::waiting::keeps_waiting;

cases! { $ long_poll as long_poll_cases:
    with_zero_an_empty_fetch_returns_at_once,
    an_empty_orchestration_fetch_waits_its_poll_timeout,
    an_empty_work_fetch_waits_its_poll_timeout,
    a_waiting_turn_fetch_wakes_on_a_new_message,
    a_waiting_turn_fetch_wakes_on_a_delay_that_ends,
    a_waiting_turn_fetch_wakes_on_a_lock_that_expires,
    a_waiting_turn_fetch_wakes_on_a_commit_that_releases,
    a_waiting_turn_fetch_wakes_on_a_completion,
    a_waiting_turn_fetch_wakes_on_an_abandon,
    a_waiting_work_fetch_wakes_on_a_new_activity,
    a_waiting_work_fetch_wakes_on_a_commit,
    a_waiting_work_fetch_wakes_on_a_delay_that_ends,
    a_waiting_work_fetch_wakes_on_a_lock_that_expires,
    a_waiting_work_fetch_wakes_on_a_lease_that_expires,
    a_waiting_fetch_does_not_wake_for_what_it_may_not_take,
    ten_waiting_fetches_share_ten_activities,
    many_waiting_fetches_take_one_message_once,
}

/// Longer than any case waits.
const LONG: Duration = secs(40);

type WaitingTurnFetch = std::pin::Pin<Box<dyn Future<Output = String> + Send>>;
type WaitingWorkFetch = std::pin::Pin<Box<dyn Future<Output = u64> + Send>>;

/// A fetch that waits for an instance and returns its id.
fn waiting_fetch(h: &CaseHarness) -> WaitingTurnFetch {
    let store = h.store();
    Box::pin(async move {
        let fetched = store.next_turn_within(LONG).await.unwrap();
        fetched.expect("woken for work").item.instance
    })
}

/// A fetch that waits for an activity and returns its id.
fn waiting_work_fetch(h: &CaseHarness, owner: Option<&str>) -> WaitingWorkFetch {
    let store = h.store();
    let fetch = WorkFetch::new(LOCK, LONG).with_session(owner.and_then(|owner| session(owner, secs(60))));
    Box::pin(
        async move { store.fetch_one_work(&fetch).await.unwrap().expect("woken for work").activity_id() },
    )
}

/// The result of a fetch that must end long before its own timeout.
async fn woken<T>(fetch: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(10), fetch).await.expect("the fetch wakes")
}

async fn with_zero_an_empty_fetch_returns_at_once(h: CaseHarness) {
    let mut quickest = LONG;
    for _ in 0..3 {
        let began = Instant::now();
        assert!(h.next_turn().await.is_none());
        assert!(h.next_work().await.is_none());
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < Duration::from_millis(100), "took {quickest:?}");
}

/// Checks how long a fetch waits. The machine may be busy, so the best of three counts.
async fn assert_waits<Fetch: Future<Output = bool>>(fetch: impl Fn(Duration) -> Fetch) {
    let waited = Duration::from_millis(500);
    let began = Instant::now();
    assert!(!fetch(waited).await, "there is nothing to fetch");
    assert!(began.elapsed() >= Duration::from_millis(490), "returned after {:?}", began.elapsed());
    let mut overtime = LONG;
    for _ in 0..3 {
        let began = Instant::now();
        assert!(!fetch(Duration::from_millis(300)).await);
        overtime = overtime.min(began.elapsed().saturating_sub(Duration::from_millis(300)));
        if overtime <= Duration::from_millis(200) {
            return;
        }
    }
    panic!("waited {overtime:?} too long");
}

async fn an_empty_orchestration_fetch_waits_its_poll_timeout(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let store = &h.store();
    assert_waits(async |wait| store.next_turn_within(wait).await.unwrap().is_some()).await;
}

async fn an_empty_work_fetch_waits_its_poll_timeout(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let store = &h.store();
    assert_waits(async |wait| store.next_work_within(wait).await.unwrap().is_some()).await;
}

async fn a_waiting_turn_fetch_wakes_on_a_new_message(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch = waiting_fetch(&h);
    keeps_waiting(&mut fetch).await;
    h.send(start("i")).await;
    assert_eq!(woken(fetch).await, "i");
}

async fn a_waiting_turn_fetch_wakes_on_a_delay_that_ends(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.send_later(start("i"), secs(60)).await;
    let mut fetch = waiting_fetch(&h);
    keeps_waiting(&mut fetch).await;
    h.pass(secs(30));
    keeps_waiting(&mut fetch).await;
    h.pass(secs(31));
    assert_eq!(woken(fetch).await, "i");
}

async fn a_waiting_turn_fetch_wakes_on_a_lock_that_expires(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.send(start("i")).await;
    h.fetched_turn().await;
    let mut fetch = waiting_fetch(&h);
    keeps_waiting(&mut fetch).await;
    h.pass(PAST_LOCK);
    assert_eq!(woken(fetch).await, "i");
}

async fn a_waiting_turn_fetch_wakes_on_a_commit_that_releases(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "under lock")).await;
    let mut fetch = waiting_fetch(&h);
    keeps_waiting(&mut fetch).await;
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(woken(fetch).await, "i");
}

async fn a_waiting_turn_fetch_wakes_on_a_completion(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let mut fetch = waiting_fetch(&h);
    keeps_waiting(&mut fetch).await;
    h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await.unwrap();
    assert_eq!(woken(fetch).await, "i");
}

async fn a_waiting_turn_fetch_wakes_on_an_abandon(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    let mut fetch = waiting_fetch(&h);
    keeps_waiting(&mut fetch).await;
    h.release_turn(&fetched.lock_token, None, true).await.unwrap();
    assert_eq!(woken(fetch).await, "i");
}

async fn a_waiting_work_fetch_wakes_on_a_new_activity(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch = waiting_work_fetch(&h, None);
    keeps_waiting(&mut fetch).await;
    h.queue(activity("i", 7)).await;
    assert_eq!(woken(fetch).await, 7);
}

async fn a_waiting_work_fetch_wakes_on_a_commit(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch = waiting_work_fetch(&h, None);
    keeps_waiting(&mut fetch).await;
    h.begin("i", SampleTurn::beginning("i", 1).event(7, events::scheduled()).activity(activity("i", 7)))
        .await;
    assert_eq!(woken(fetch).await, 7);
}

async fn a_waiting_work_fetch_wakes_on_a_delay_that_ends(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.queue(activity("i", 7)).await;
    let work = h.fetched_work().await;
    h.release_work(&work.lock_token, Some(secs(60)), false).await.unwrap();
    let mut fetch = waiting_work_fetch(&h, None);
    keeps_waiting(&mut fetch).await;
    h.pass(secs(61));
    assert_eq!(woken(fetch).await, 7);
}

async fn a_waiting_work_fetch_wakes_on_a_lock_that_expires(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.queue(activity("i", 7)).await;
    h.fetched_work().await;
    let mut fetch = waiting_work_fetch(&h, None);
    keeps_waiting(&mut fetch).await;
    h.pass(PAST_LOCK);
    assert_eq!(woken(fetch).await, 7);
}

async fn a_waiting_work_fetch_wakes_on_a_lease_that_expires(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.next_work_as("a", secs(10)).await.unwrap();
    let mut fetch = waiting_work_fetch(&h, Some("b"));
    keeps_waiting(&mut fetch).await;
    h.pass(secs(11));
    assert_eq!(woken(fetch).await, 2);
}

async fn a_waiting_fetch_does_not_wake_for_what_it_may_not_take(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch = waiting_work_fetch(&h, None);
    keeps_waiting(&mut fetch).await;
    h.queue(activity_tagged("i", 1, "gpu")).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    keeps_waiting(&mut fetch).await;
    h.queue(activity("i", 3)).await;
    assert_eq!(woken(fetch).await, 3);
}

async fn ten_waiting_fetches_share_ten_activities(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let fetches: Vec<_> = (0..10).map(|_| tokio::spawn(waiting_work_fetch(&h, None))).collect();
    for id in 0..10 {
        h.queue(activity("i", id)).await;
    }
    let mut ids = Vec::new();
    for fetch in fetches {
        ids.push(woken(fetch).await.unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
}

async fn many_waiting_fetches_take_one_message_once(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetches: Vec<_> = (0..5).map(|_| waiting_fetch(&h)).collect();
    for fetch in &mut fetches {
        keeps_waiting(fetch).await;
    }
    h.send(start("i")).await;
    let mut winners = 0;
    for mut fetch in fetches {
        winners += usize::from(tokio::time::timeout(Duration::from_millis(300), &mut fetch).await.is_ok());
    }
    assert_eq!(winners, 1);
    h.pass(PAST_LOCK);
    assert!(h.awaited_turn().await.attempt_count >= 2);
}
