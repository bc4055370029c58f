//! Every call that makes an instance ready wakes a parked fetch of turns, at once or when the instance becomes ready.
//!
//! Time is paused: it moves only while every task waits. So a store that looks at everything from time to time cannot hide
//! that a call woke no fetch.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::SemverRange;
use everturn_provider::DispatcherCapabilityFilter;
use everturn_provider::store::{Feature, FetchedTurn, HandlerKey, HandlerView, TurnAbandon, TurnFetch};
use semver::Version;

use crate::harness::{CaseHarness, LOCK, secs};
use crate::items::{
    NAME, VERSION, activity, activity_completed, cancel, queue_message, signal, start, start_child, timer,
};
use crate::sample_turn::SampleTurn;
use crate::waiting::{SHORT, keeps_waiting, woken_after, woken_at_once};

cases! { $ turn_wake_ups as turn_wake_ups_cases, by run_in_paused_time:
    a_start,
    a_signal,
    a_queue_message,
    a_cancellation,
    a_message_that_becomes_visible,
    a_child_that_a_commit_starts,
    the_successor_that_a_commit_starts,
    a_commit_that_releases_an_instance_with_new_messages,
    a_timer_of_a_commit,
    a_timer_of_a_commit_that_is_due,
    an_abandoned_turn,
    an_abandoned_turn_with_a_delay,
    a_turn_left_to_runtimes_with_its_handler,
    a_turn_left_to_others_when_its_delay_ends,
    the_completion_of_an_activity,
    a_lock_that_expires,
    a_lock_taken_while_others_wait,
    a_renewal_that_shortens_a_lock,
    a_turn_that_its_fetch_did_not_take,
    a_start_of_a_deleted_instance,
    a_start_behind_instances_that_no_fetch_can_replay,
    every_message_wakes_a_fetch_of_its_own,
}

type ParkedTurn = Pin<Box<dyn Future<Output = FetchedTurn> + Send>>;

/// Longer than any case waits.
const LONG: Duration = secs(120);

/// A fetch that waits in the store.
async fn parked(h: &CaseHarness, fetch: TurnFetch) -> ParkedTurn {
    let store = h.store();
    let mut parked: ParkedTurn =
        Box::pin(async move { store.fetch_turn(&fetch).await.unwrap().expect("woken for work") });
    keeps_waiting(&mut parked).await;
    parked
}

/// The same, for any instance.
async fn parked_for_any(h: &CaseHarness) -> ParkedTurn {
    parked(h, TurnFetch::new(LOCK, LONG)).await
}

/// A message that is sent wakes the fetch.
async fn sent_wakes(h: &CaseHarness, message: everturn_core::WorkItem) {
    let fetch = parked_for_any(h).await;
    let turn = woken_at_once(fetch, h.send(message.clone())).await;
    assert_eq!(turn.item.messages, [message]);
}

async fn a_start(h: CaseHarness) {
    sent_wakes(&h, start("i")).await;
}

async fn a_signal(h: CaseHarness) {
    h.create("i").await;
    sent_wakes(&h, signal("i", "go")).await;
}

async fn a_queue_message(h: CaseHarness) {
    h.create("i").await;
    sent_wakes(&h, queue_message("i", "1")).await;
}

async fn a_cancellation(h: CaseHarness) {
    h.create("i").await;
    sent_wakes(&h, cancel("i")).await;
}

async fn a_message_that_becomes_visible(h: CaseHarness) {
    let fetch = parked_for_any(&h).await;
    let turn = woken_after(SHORT, fetch, h.send_later(start("i"), SHORT)).await;
    assert_eq!(turn.item.instance, "i");
}

/// A new instance, locked, and a fetch that waits for another.
async fn locked_beside_parked(h: &CaseHarness) -> (FetchedTurn, ParkedTurn) {
    h.send(start("i")).await;
    let locked = h.fetched_turn().await;
    let fetch = parked_for_any(h).await;
    (locked, fetch)
}

async fn a_child_that_a_commit_starts(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let commit = SampleTurn::beginning("i", 1).message(start_child("child", "i"));
    let turn = woken_at_once(fetch, async { commit.commit(&h, &locked.lock_token).await.unwrap() }).await;
    assert_eq!(turn.item.instance, "child");
}

async fn the_successor_that_a_commit_starts(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let commit = SampleTurn::beginning("i", 1).continuing_as_new(2);
    let turn = woken_at_once(fetch, async { commit.commit(&h, &locked.lock_token).await.unwrap() }).await;
    assert_eq!(turn.item.instance, "i");
}

async fn a_commit_that_releases_an_instance_with_new_messages(h: CaseHarness) {
    let (locked, mut fetch) = locked_beside_parked(&h).await;
    h.send(signal("i", "under lock")).await;
    keeps_waiting(&mut fetch).await;
    let commit = SampleTurn::beginning("i", 1);
    let turn = woken_at_once(fetch, async { commit.commit(&h, &locked.lock_token).await.unwrap() }).await;
    assert_eq!(turn.item.messages, [signal("i", "under lock")]);
}

async fn a_timer_of_a_commit(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let fire_at_ms = h.now_ms() + u64::try_from(SHORT.as_millis()).expect("a short time");
    let commit = SampleTurn::beginning("i", 1).message(timer("i", 2, fire_at_ms));
    let turn =
        woken_after(SHORT, fetch, async { commit.commit(&h, &locked.lock_token).await.unwrap() }).await;
    assert_eq!(turn.item.messages, [timer("i", 2, fire_at_ms)]);
}

async fn a_timer_of_a_commit_that_is_due(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let fire_at_ms = h.now_ms();
    let commit = SampleTurn::beginning("i", 1).message(timer("i", 2, fire_at_ms));
    let turn = woken_at_once(fetch, async { commit.commit(&h, &locked.lock_token).await.unwrap() }).await;
    assert_eq!(turn.item.messages, [timer("i", 2, fire_at_ms)]);
}

async fn an_abandoned_turn(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let turn =
        woken_at_once(fetch, async { h.release_turn(&locked.lock_token, None, false).await.unwrap() }).await;
    assert_eq!((turn.item.instance.as_str(), turn.attempt_count), ("i", 2));
}

async fn an_abandoned_turn_with_a_delay(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let release = async { h.release_turn(&locked.lock_token, Some(SHORT), false).await.unwrap() };
    assert_eq!(woken_after(SHORT, fetch, release).await.attempt_count, 2);
}

/// A runtime that has every handler, or none.
#[derive(Debug)]
struct Handlers {
    all: bool,
}

impl HandlerView for Handlers {
    fn has(&self, _handler: &HandlerKey) -> bool {
        self.all
    }
}

fn with_handlers(all: bool) -> TurnFetch {
    TurnFetch::new(LOCK, LONG).with_handlers(Arc::new(Handlers { all }))
}

/// Leaves the instance to runtimes that have its handler; the others wait for `delay`.
async fn leave_to_others(h: &CaseHarness, locked: &FetchedTurn, delay: Duration) {
    let missing = HandlerKey::orchestration(NAME, Some(VERSION.to_owned()));
    let abandon = TurnAbandon::new(&locked.lock_token).with_delay(Some(delay));
    h.abandon_turn(&abandon.with_missing_handler(Some(missing))).await.unwrap();
}

async fn a_turn_left_to_runtimes_with_its_handler(h: CaseHarness) {
    if !h.supports(Feature::HandlerLookup) {
        return;
    }
    h.send(start("i")).await;
    let locked = h.fetched_turn().await;
    let fetch = parked(&h, with_handlers(true)).await;
    assert_eq!(woken_at_once(fetch, leave_to_others(&h, &locked, secs(60))).await.attempt_count, 2);
}

async fn a_turn_left_to_others_when_its_delay_ends(h: CaseHarness) {
    if !h.supports(Feature::HandlerLookup) {
        return;
    }
    h.send(start("i")).await;
    let locked = h.fetched_turn().await;
    let fetch = parked(&h, with_handlers(false)).await;
    assert_eq!(woken_after(SHORT, fetch, leave_to_others(&h, &locked, SHORT)).await.attempt_count, 2);
}

async fn the_completion_of_an_activity(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    let work = h.fetched_work().await;
    let fetch = parked_for_any(&h).await;
    let end = async { h.end_work(&work.lock_token, Some(activity_completed("i", 2))).await.unwrap() };
    assert_eq!(woken_at_once(fetch, end).await.item.messages, [activity_completed("i", 2)]);
}

async fn a_lock_that_expires(h: CaseHarness) {
    h.send(start("i")).await;
    let lock = secs(5) + SHORT;
    h.fetch_turn(&TurnFetch::new(lock, Duration::ZERO)).await.unwrap().expect("it is free");
    let store = h.store();
    let waiting = async move { store.next_turn_within(LONG).await.unwrap().expect("woken for work") };
    assert_eq!(woken_after(lock, waiting, async {}).await.attempt_count, 2);
}

async fn a_lock_taken_while_others_wait(h: CaseHarness) {
    let first = parked(&h, TurnFetch::new(SHORT, LONG)).await;
    let second = parked(&h, TurnFetch::new(SHORT, LONG)).await;
    woken_after(SHORT, second, async {
        woken_at_once(first, h.send(start("i"))).await;
    })
    .await;
}

async fn a_renewal_that_shortens_a_lock(h: CaseHarness) {
    let (locked, fetch) = locked_beside_parked(&h).await;
    let renew = async { h.renew_turn(&locked.lock_token, SHORT).await.unwrap() };
    assert_eq!(woken_after(SHORT, fetch, renew).await.attempt_count, 2);
}

async fn a_turn_that_its_fetch_did_not_take(h: CaseHarness) {
    let dropped = parked_for_any(&h).await;
    let fetch = parked_for_any(&h).await;
    let turn = woken_at_once(fetch, async {
        h.send(start("i")).await;
        drop(dropped);
    })
    .await;
    assert_eq!((turn.item.instance.as_str(), turn.attempt_count), ("i", 1));
}

async fn a_start_of_a_deleted_instance(h: CaseHarness) {
    h.create_completed("i").await;
    let fetch = parked_for_any(&h).await;
    let turn = woken_at_once(fetch, async {
        h.admin().delete_instance("i", true).await.unwrap();
        h.send(start("i")).await;
    })
    .await;
    assert_eq!(turn.item.instance, "i");
}

async fn a_start_behind_instances_that_no_fetch_can_replay(h: CaseHarness) {
    for instance in ["p", "q", "r"] {
        h.begin(instance, SampleTurn::beginning(instance, 1).pinned(Version::new(9, 0, 0))).await;
    }
    for instance in ["p", "q", "r"] {
        h.send(signal(instance, "go")).await;
    }
    let filter = DispatcherCapabilityFilter {
        supported_engine_versions: vec![SemverRange::new(Version::new(0, 0, 0), Version::new(1, 0, 0))],
    };
    let fetch = parked(&h, TurnFetch::new(LOCK, LONG).with_filter(filter)).await;
    assert_eq!(woken_at_once(fetch, h.send(start("i"))).await.item.instance, "i");
}

async fn every_message_wakes_a_fetch_of_its_own(h: CaseHarness) {
    let first = parked_for_any(&h).await;
    let second = parked_for_any(&h).await;
    let both = async { (first.await.item.instance, second.await.item.instance) };
    let both = woken_at_once(both, async {
        h.send(start("i")).await;
        h.send(start("j")).await;
    });
    assert_eq!(both.await, ("i".to_owned(), "j".to_owned()));
}
