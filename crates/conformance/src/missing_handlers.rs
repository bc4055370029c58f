//! Work that one runtime lacks the handler for stays ready for runtimes that have it. A store without this feature has no
//! such cases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_provider::TagFilter;
use everturn_provider::store::{
    Feature, FetchedTurn, FetchedWork, HandlerKey, HandlerView, Settlement, TurnAbandon, TurnFetch, WorkFetch,
};

use crate::harness::{ActivityId, CaseHarness, LOCK, PAST_LOCK, secs, session};
use crate::items::{
    NAME, VERSION, activity, activity_in_session, activity_tagged, queue_message, signal, start,
};
use crate::sample_turn::SampleTurn;
use crate::waiting::keeps_waiting;

cases! { $ missing_handlers as missing_handlers_cases:
    an_instance_is_ready_for_a_runtime_with_the_handler,
    a_runtime_without_the_handler_waits_for_the_delay,
    what_is_sent_meanwhile_neither_ends_the_delay_nor_overtakes,
    an_exact_version_is_not_any_version,
    each_offer_to_a_runtime_without_the_handler_counts_one_attempt,
    the_handlers_are_asked_at_every_assignment,
    a_fetch_that_names_no_handlers_is_offered_everything,
    a_commit_ends_the_delay,
    the_oldest_instance_comes_first,
    a_waiting_fetch_with_the_handler_wakes,
    a_waiting_fetch_without_the_handler_wakes_when_the_delay_ends,
    an_activity_is_ready_for_a_worker_with_the_handler,
    a_worker_without_the_handler_waits_for_the_delay,
    the_oldest_activity_comes_first,
    tags_and_sessions_still_count,
    a_waiting_worker_with_the_handler_wakes,
    without_a_delay_all_are_offered_it_at_once,
    the_delay_survives_a_restart,
}

/// The handlers of a runtime, which a case may add to.
#[derive(Debug, Default, Clone)]
struct Known(Arc<Mutex<Vec<HandlerKey>>>);

impl Known {
    fn one(key: HandlerKey) -> Self {
        let known = Self::default();
        known.learn(key);
        known
    }

    fn learn(&self, key: HandlerKey) {
        self.0.lock().unwrap().push(key);
    }
}

impl HandlerView for Known {
    fn has(&self, handler: &HandlerKey) -> bool {
        self.0.lock().unwrap().contains(handler)
    }
}

/// The orchestration of the suite.
fn order() -> HandlerKey {
    HandlerKey::orchestration(NAME, Some(VERSION.to_owned()))
}

/// The activity of the suite.
fn charge() -> HandlerKey {
    HandlerKey::activity("Charge")
}

fn is_supported(h: &CaseHarness) -> bool {
    h.supports(Feature::HandlerLookup)
}

fn turn_fetch(known: &Known, poll_timeout: Duration) -> TurnFetch {
    TurnFetch::new(LOCK, poll_timeout).with_handlers(Arc::new(known.clone()))
}

fn work_fetch(known: &Known, poll_timeout: Duration) -> WorkFetch {
    WorkFetch::new(LOCK, poll_timeout).with_handlers(Arc::new(known.clone()))
}

/// One look of a runtime with these handlers.
async fn turn_for(h: &CaseHarness, known: &Known) -> Option<FetchedTurn> {
    h.fetch_turn(&turn_fetch(known, Duration::ZERO)).await.unwrap()
}

/// One look of a worker with these handlers.
async fn work_for(h: &CaseHarness, known: &Known) -> Option<FetchedWork> {
    h.fetch_one_work(&work_fetch(known, Duration::ZERO)).await.unwrap()
}

/// Gives an instance back for the lack of a handler, for ten seconds.
async fn lacking(h: &CaseHarness, turn: &FetchedTurn, missing: HandlerKey) {
    let abandon = TurnAbandon::new(&turn.lock_token).with_delay(Some(secs(10)));
    h.abandon_turn(&abandon.with_missing_handler(Some(missing))).await.unwrap();
}

/// The same of an activity.
async fn lacking_work(h: &CaseHarness, work: &FetchedWork) {
    let settlement = Settlement::lacking_handler(&work.lock_token, Some(secs(10)), charge());
    h.settle_work(&settlement).await.unwrap();
}

/// A started instance that a runtime without the handler gave back.
async fn given_back(h: &CaseHarness) {
    h.send(start("i")).await;
    let turn = turn_for(h, &Known::default()).await.expect("a new instance is offered to every runtime");
    lacking(h, &turn, order()).await;
}

async fn an_instance_is_ready_for_a_runtime_with_the_handler(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    given_back(&h).await;
    let turn = turn_for(&h, &Known::one(order())).await.expect("it has the handler");
    assert_eq!(turn.item.messages, [start("i")]);
    assert_eq!(turn.attempt_count, 2);
}

async fn a_runtime_without_the_handler_waits_for_the_delay(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    given_back(&h).await;
    let without =
        [Known::default(), Known::one(charge()), Known::one(HandlerKey::orchestration("Other", None))];
    for known in &without {
        assert!(turn_for(&h, known).await.is_none(), "{known:?} lacks the handler, too");
    }
    h.pass(secs(11));
    assert!(turn_for(&h, &without[0]).await.is_some());
}

async fn what_is_sent_meanwhile_neither_ends_the_delay_nor_overtakes(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    given_back(&h).await;
    h.send(queue_message("i", "1")).await;
    h.send(signal("i", "a")).await;
    assert!(turn_for(&h, &Known::default()).await.is_none());
    let turn = turn_for(&h, &Known::one(order())).await.unwrap();
    assert_eq!(turn.item.messages, [start("i"), queue_message("i", "1"), signal("i", "a")]);
}

async fn an_exact_version_is_not_any_version(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    let any = || HandlerKey::orchestration(NAME, None);
    for (missing, other) in [(order(), any()), (any(), order())] {
        h.send(start("i")).await;
        let turn = turn_for(&h, &Known::default()).await.unwrap();
        lacking(&h, &turn, missing.clone()).await;
        assert!(turn_for(&h, &Known::one(other)).await.is_none());
        let turn = turn_for(&h, &Known::one(missing)).await.unwrap();
        SampleTurn::of("i", 1).commit(&h, &turn.lock_token).await.unwrap();
    }
}

async fn each_offer_to_a_runtime_without_the_handler_counts_one_attempt(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    h.send(start("i")).await;
    for attempt in 1..=4 {
        let turn = turn_for(&h, &Known::default()).await.expect("the delay is over");
        assert_eq!(turn.attempt_count, attempt);
        lacking(&h, &turn, order()).await;
        for _ in 0..12 {
            assert!(turn_for(&h, &Known::default()).await.is_none());
        }
        h.pass(secs(11));
    }
}

async fn the_handlers_are_asked_at_every_assignment(h: CaseHarness) {
    if !is_supported(&h) || !h.factory().fetch_waits() {
        return;
    }
    given_back(&h).await;
    let (store, known) = (h.store(), Known::default());
    let fetch = turn_fetch(&known, secs(40));
    let mut waiting = Box::pin(async move { store.fetch_turn(&fetch).await.unwrap() });
    keeps_waiting(&mut waiting).await;
    known.learn(order());
    // A second passes, not the whole delay; something else happens, and the store looks again.
    h.pass(secs(1));
    h.queue(activity("j", 1)).await;
    let turn = tokio::time::timeout(secs(10), waiting).await.expect("the parked fetch is asked again");
    assert_eq!(turn.unwrap().item.instance, "i");
}

async fn a_fetch_that_names_no_handlers_is_offered_everything(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    given_back(&h).await;
    assert!(h.next_turn().await.is_some());
    h.queue(activity("i", 1)).await;
    let work = work_for(&h, &Known::default()).await.unwrap();
    lacking_work(&h, &work).await;
    assert!(h.next_work().await.is_some());
}

async fn a_commit_ends_the_delay(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    given_back(&h).await;
    let turn = turn_for(&h, &Known::one(order())).await.unwrap();
    SampleTurn::beginning("i", 1).commit(&h, &turn.lock_token).await.unwrap();
    h.send(signal("i", "a")).await;
    let turn = turn_for(&h, &Known::default()).await.expect("a new message is offered to every runtime");
    assert_eq!(turn.attempt_count, 1);
}

async fn the_oldest_instance_comes_first(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    for instance in ["a", "b", "c", "d"] {
        h.send(start(instance)).await;
    }
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(turn_for(&h, &Known::default()).await.unwrap());
    }
    lacking(&h, &turns[2], order()).await;
    lacking(&h, &turns[0], order()).await;
    h.release_turn(&turns[1].lock_token, None, false).await.unwrap();
    lacking(&h, &turns[3], HandlerKey::orchestration("Other", None)).await;
    let known = Known::one(order());
    for instance in ["a", "b", "c"] {
        assert_eq!(turn_for(&h, &known).await.unwrap().item.instance, instance);
    }
    assert!(turn_for(&h, &known).await.is_none(), "the fourth needs another handler");
}

async fn a_waiting_fetch_with_the_handler_wakes(h: CaseHarness) {
    if !is_supported(&h) || !h.factory().fetch_waits() {
        return;
    }
    h.send(start("i")).await;
    let turn = turn_for(&h, &Known::default()).await.unwrap();
    let (store, fetch) = (h.store(), turn_fetch(&Known::one(order()), secs(40)));
    let mut waiting = Box::pin(async move { store.fetch_turn(&fetch).await.unwrap() });
    keeps_waiting(&mut waiting).await;
    lacking(&h, &turn, order()).await;
    let turn = tokio::time::timeout(secs(10), waiting).await.expect("the fetch wakes");
    assert_eq!(turn.unwrap().item.instance, "i");
}

async fn a_waiting_fetch_without_the_handler_wakes_when_the_delay_ends(h: CaseHarness) {
    if !is_supported(&h) || !h.factory().fetch_waits() {
        return;
    }
    given_back(&h).await;
    let (store, fetch) = (h.store(), turn_fetch(&Known::default(), secs(40)));
    let mut waiting = Box::pin(async move { store.fetch_turn(&fetch).await.unwrap() });
    keeps_waiting(&mut waiting).await;
    h.pass(secs(11));
    let turn = tokio::time::timeout(secs(10), waiting).await.expect("the fetch wakes");
    assert_eq!(turn.unwrap().attempt_count, 2);
}

async fn an_activity_is_ready_for_a_worker_with_the_handler(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    h.queue(activity("i", 1)).await;
    let work = work_for(&h, &Known::default()).await.expect("a new activity is offered to every worker");
    lacking_work(&h, &work).await;
    let work = work_for(&h, &Known::one(charge())).await.expect("it has the handler");
    assert_eq!((work.activity_id(), work.attempt_count), (1, 2));
    h.pass(PAST_LOCK);
    assert!(work_for(&h, &Known::default()).await.is_some(), "its lock has expired like any other");
}

async fn a_worker_without_the_handler_waits_for_the_delay(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    h.queue(activity("i", 1)).await;
    for attempt in 1..=4 {
        let work = work_for(&h, &Known::one(order())).await.expect("the delay is over");
        assert_eq!(work.attempt_count, attempt);
        lacking_work(&h, &work).await;
        for _ in 0..12 {
            assert!(work_for(&h, &Known::default()).await.is_none());
        }
        h.pass(secs(11));
    }
}

async fn the_oldest_activity_comes_first(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    for id in 1..=4 {
        h.queue(activity("i", id)).await;
    }
    let mut works = Vec::new();
    for _ in 0..4 {
        works.push(work_for(&h, &Known::default()).await.unwrap());
    }
    lacking_work(&h, &works[2]).await;
    lacking_work(&h, &works[0]).await;
    h.release_work(&works[1].lock_token, None, false).await.unwrap();
    let known = Known::one(charge());
    for id in 1..=3 {
        assert_eq!(work_for(&h, &known).await.unwrap().activity_id(), id);
    }
    assert!(work_for(&h, &known).await.is_none());
}

async fn tags_and_sessions_still_count(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    h.queue(activity_tagged("i", 1, "gpu")).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    let known = Known::one(charge());
    let all = |known: &Known, owner: &str| {
        work_fetch(known, Duration::ZERO).with_tags(TagFilter::any()).with_session(session(owner, secs(60)))
    };
    for _ in 0..2 {
        let work = h.fetch_one_work(&all(&Known::default(), "old")).await.unwrap().unwrap();
        lacking_work(&h, &work).await;
    }
    assert!(h.fetch_one_work(&all(&Known::default(), "old")).await.unwrap().is_none());
    assert!(work_for(&h, &known).await.is_none(), "neither the tag nor the session");
    let other = h.fetch_one_work(&all(&known, "new")).await.unwrap().unwrap();
    assert_eq!(other.activity_id(), 1);
    assert!(h.fetch_one_work(&all(&known, "new")).await.unwrap().is_none(), "the session has another owner");
    assert_eq!(h.fetch_one_work(&all(&known, "old")).await.unwrap().unwrap().activity_id(), 2);
}

async fn a_waiting_worker_with_the_handler_wakes(h: CaseHarness) {
    if !is_supported(&h) || !h.factory().fetch_waits() {
        return;
    }
    h.queue(activity("i", 1)).await;
    let work = work_for(&h, &Known::default()).await.unwrap();
    let (store, fetch) = (h.store(), work_fetch(&Known::one(charge()), secs(40)));
    let mut waiting = Box::pin(async move { store.fetch_one_work(&fetch).await.unwrap() });
    keeps_waiting(&mut waiting).await;
    lacking_work(&h, &work).await;
    let work = tokio::time::timeout(secs(10), waiting).await.expect("the fetch wakes");
    assert_eq!(work.unwrap().activity_id(), 1);
}

async fn without_a_delay_all_are_offered_it_at_once(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    let turn = turn_for(&h, &Known::default()).await.unwrap();
    let abandon = TurnAbandon::new(&turn.lock_token).with_missing_handler(Some(order()));
    h.abandon_turn(&abandon).await.unwrap();
    assert!(turn_for(&h, &Known::default()).await.is_some());
    let work = work_for(&h, &Known::default()).await.unwrap();
    h.settle_work(&Settlement::lacking_handler(&work.lock_token, None, charge())).await.unwrap();
    assert!(work_for(&h, &Known::default()).await.is_some());
}

async fn the_delay_survives_a_restart(h: CaseHarness) {
    if !is_supported(&h) {
        return;
    }
    given_back(&h).await;
    h.queue(activity("i", 1)).await;
    let work = work_for(&h, &Known::default()).await.unwrap();
    lacking_work(&h, &work).await;
    let Some(h) = h.reopened().await else { return };
    assert!(turn_for(&h, &Known::default()).await.is_none());
    assert!(work_for(&h, &Known::default()).await.is_none());
    assert!(turn_for(&h, &Known::one(order())).await.is_some());
    assert!(work_for(&h, &Known::one(charge())).await.is_some());
}
