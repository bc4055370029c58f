//! Every call that makes an activity ready wakes a parked fetch of work, at once or when the activity becomes ready.
//!
//! Time is paused, as in [`turn_wake_ups`](crate::turn_wake_ups).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::{Feature, FetchedWork, HandlerKey, HandlerView, Settlement, WorkFetch};

use crate::events;
use crate::harness::{ActivityId, CaseHarness, LOCK, secs, session};
use crate::items::{activity, activity_in_session, start};
use crate::sample_turn::SampleTurn;
use crate::waiting::{SHORT, keeps_waiting, woken_after, woken_at_once};

cases! { $ work_wake_ups as work_wake_ups_cases, by run_in_paused_time:
    an_activity_that_a_commit_schedules,
    an_activity_that_is_queued,
    an_abandoned_activity,
    an_abandoned_activity_with_a_delay,
    an_activity_left_to_workers_with_its_handler,
    an_activity_left_to_others_when_its_delay_ends,
    an_activity_lock_that_expires,
    an_activity_lock_taken_while_others_wait,
    a_renewal_that_shortens_the_lock_of_an_activity,
    a_lease_that_expires,
    a_lease_taken_while_others_wait,
    a_renewal_that_shortens_a_lease,
    an_activity_that_its_fetch_did_not_take,
    a_session_that_its_fetch_did_not_take,
    an_activity_of_a_session_that_its_owner_holds,
    every_activity_wakes_a_fetch_of_its_own,
}

type ParkedWork = Pin<Box<dyn Future<Output = FetchedWork> + Send>>;

/// Longer than any case waits.
const LONG: Duration = secs(120);
const LEASE: Duration = secs(60);

/// A fetch that waits in the store.
async fn parked(h: &CaseHarness, fetch: WorkFetch) -> ParkedWork {
    let store = h.store();
    let mut parked: ParkedWork =
        Box::pin(async move { store.fetch_one_work(&fetch).await.unwrap().expect("woken for work") });
    keeps_waiting(&mut parked).await;
    parked
}

/// The same, for activities without a session.
async fn parked_for_any(h: &CaseHarness) -> ParkedWork {
    parked(h, WorkFetch::new(LOCK, LONG)).await
}

/// A fetch of an owner of sessions.
fn fetch_as(owner: &str, lease: Duration) -> WorkFetch {
    WorkFetch::new(LOCK, LONG).with_session(session(owner, lease))
}

async fn an_activity_that_a_commit_schedules(h: CaseHarness) {
    h.send(start("i")).await;
    let locked = h.fetched_turn().await;
    let fetch = parked_for_any(&h).await;
    let commit = SampleTurn::beginning("i", 1).event(2, events::scheduled()).activity(activity("i", 2));
    let work = woken_at_once(fetch, async { commit.commit(&h, &locked.lock_token).await.unwrap() }).await;
    assert_eq!(work.activity_id(), 2);
}

async fn an_activity_that_is_queued(h: CaseHarness) {
    let fetch = parked_for_any(&h).await;
    assert_eq!(woken_at_once(fetch, h.queue(activity("i", 7))).await.activity_id(), 7);
}

/// A locked activity, and a fetch that waits for another.
async fn locked_beside_parked(h: &CaseHarness, fetch: WorkFetch) -> (FetchedWork, ParkedWork) {
    h.queue(activity("i", 7)).await;
    let locked = h.fetched_work().await;
    let fetch = parked(h, fetch).await;
    (locked, fetch)
}

async fn an_abandoned_activity(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h, WorkFetch::new(LOCK, LONG)).await;
    let release = async { h.release_work(&locked.lock_token, None, false).await.unwrap() };
    assert_eq!(woken_at_once(fetch, release).await.attempt_count, 2);
}

async fn an_abandoned_activity_with_a_delay(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h, WorkFetch::new(LOCK, LONG)).await;
    let release = async { h.release_work(&locked.lock_token, Some(SHORT), false).await.unwrap() };
    assert_eq!(woken_after(SHORT, fetch, release).await.attempt_count, 2);
}

/// A worker that has every activity, or none.
#[derive(Debug)]
struct WorkerHandlers {
    all: bool,
}

impl HandlerView for WorkerHandlers {
    fn has(&self, _handler: &HandlerKey) -> bool {
        self.all
    }
}

fn with_handlers(all: bool) -> WorkFetch {
    WorkFetch::new(LOCK, LONG).with_handlers(Arc::new(WorkerHandlers { all }))
}

/// Leaves the activity to workers that have it; the others wait for `delay`.
async fn leave_to_others(h: &CaseHarness, locked: &FetchedWork, delay: Duration) {
    let missing = HandlerKey::activity("Charge");
    let settlement = Settlement::lacking_handler(&locked.lock_token, Some(delay), missing);
    h.settle_work(&settlement).await.unwrap();
}

async fn an_activity_left_to_workers_with_its_handler(h: CaseHarness) {
    if !h.supports(Feature::HandlerLookup) {
        return;
    }
    let (locked, fetch) = locked_beside_parked(&h, with_handlers(true)).await;
    assert_eq!(woken_at_once(fetch, leave_to_others(&h, &locked, secs(60))).await.attempt_count, 2);
}

async fn an_activity_left_to_others_when_its_delay_ends(h: CaseHarness) {
    if !h.supports(Feature::HandlerLookup) {
        return;
    }
    let (locked, fetch) = locked_beside_parked(&h, with_handlers(false)).await;
    assert_eq!(woken_after(SHORT, fetch, leave_to_others(&h, &locked, SHORT)).await.attempt_count, 2);
}

async fn an_activity_lock_that_expires(h: CaseHarness) {
    h.queue(activity("i", 7)).await;
    let lock = secs(5) + SHORT;
    h.fetch_one_work(&WorkFetch::new(lock, Duration::ZERO)).await.unwrap().expect("it is free");
    let store = h.store();
    let waiting = async move { store.next_work_within(LONG).await.unwrap().expect("woken for work") };
    assert_eq!(woken_after(lock, waiting, async {}).await.attempt_count, 2);
}

async fn an_activity_lock_taken_while_others_wait(h: CaseHarness) {
    let first = parked(&h, WorkFetch::new(SHORT, LONG)).await;
    let second = parked(&h, WorkFetch::new(SHORT, LONG)).await;
    woken_after(SHORT, second, async {
        woken_at_once(first, h.queue(activity("i", 7))).await;
    })
    .await;
}

async fn a_renewal_that_shortens_the_lock_of_an_activity(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h, WorkFetch::new(LOCK, LONG)).await;
    let renew = async { h.renew_work(&locked.lock_token, SHORT).await.unwrap() };
    assert_eq!(woken_after(SHORT, fetch, renew).await.attempt_count, 2);
}

/// Two activities of a session; its owner has taken the first.
async fn claimed(h: &CaseHarness, lease: Duration) -> FetchedWork {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.next_work_as("a", lease).await.expect("the session is free")
}

async fn a_lease_that_expires(h: CaseHarness) {
    let lease = secs(5) + SHORT;
    claimed(&h, lease).await;
    let (store, fetch) = (h.store(), fetch_as("b", LEASE));
    let waiting = async move { store.fetch_one_work(&fetch).await.unwrap().expect("woken for work") };
    assert_eq!(woken_after(lease, waiting, async {}).await.activity_id(), 2);
}

async fn a_lease_taken_while_others_wait(h: CaseHarness) {
    let first = parked(&h, fetch_as("a", SHORT)).await;
    let second = parked(&h, fetch_as("b", SHORT)).await;
    let work = woken_after(SHORT, second, async {
        let work = woken_at_once(first, h.queue(activity_in_session("i", 1, "s"))).await;
        assert_eq!(work.activity_id(), 1);
        h.queue(activity_in_session("i", 2, "s")).await;
    });
    assert_eq!(work.await.activity_id(), 2);
}

async fn a_renewal_that_shortens_a_lease(h: CaseHarness) {
    claimed(&h, LEASE).await;
    let fetch = parked(&h, fetch_as("b", LEASE)).await;
    let renew = async {
        assert_eq!(h.renew_sessions(&["a"], SHORT, LEASE).await.unwrap(), 1);
    };
    assert_eq!(woken_after(SHORT, fetch, renew).await.activity_id(), 2);
}

async fn an_activity_that_its_fetch_did_not_take(h: CaseHarness) {
    let dropped = parked_for_any(&h).await;
    let fetch = parked_for_any(&h).await;
    let work = woken_at_once(fetch, async {
        h.queue(activity("i", 7)).await;
        drop(dropped);
    })
    .await;
    assert_eq!((work.activity_id(), work.attempt_count), (7, 1));
}

async fn a_session_that_its_fetch_did_not_take(h: CaseHarness) {
    let dropped = parked(&h, fetch_as("a", LEASE)).await;
    let fetch = parked(&h, fetch_as("b", LEASE)).await;
    let work = woken_at_once(fetch, async {
        h.queue(activity_in_session("i", 7, "s")).await;
        drop(dropped);
    })
    .await;
    assert_eq!((work.activity_id(), work.attempt_count), (7, 1));
}

async fn an_activity_of_a_session_that_its_owner_holds(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.next_work_as("a", LEASE).await.expect("the session is free");
    let mut other = parked(&h, fetch_as("b", LEASE)).await;
    let owner = parked(&h, fetch_as("a", LEASE)).await;
    let queue = h.queue(activity_in_session("i", 2, "s"));
    assert_eq!(woken_at_once(owner, queue).await.activity_id(), 2);
    keeps_waiting(&mut other).await;
}

async fn every_activity_wakes_a_fetch_of_its_own(h: CaseHarness) {
    let first = parked_for_any(&h).await;
    let second = parked_for_any(&h).await;
    let both = async { (first.await.activity_id(), second.await.activity_id()) };
    let both = woken_at_once(both, async {
        h.queue(activity("i", 7)).await;
        h.queue(activity("i", 8)).await;
    });
    assert_eq!(both.await, (7, 8));
}
