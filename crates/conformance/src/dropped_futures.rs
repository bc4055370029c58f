//! Any future may be dropped at any await: the store is then as before the call or as after it.

use std::pin::Pin;
use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::{TurnFetch, WorkFetch};

use crate::events;
use crate::harness::{ActivityId, CaseHarness, LOCK, custom_status, secs, session};
use crate::items::{activity, activity_completed, activity_in_session, signal, start};
use crate::sample_turn::SampleTurn;
use crate::waiting::{keeps_waiting, poll_once, polled};

cases! { $ dropped_futures as dropped_futures_cases:
    a_dropped_parked_turn_fetch_takes_nothing,
    a_dropped_parked_work_fetch_takes_nothing,
    a_turn_assigned_to_a_dropped_fetch_returns_to_the_queue,
    work_assigned_to_a_dropped_fetch_returns_to_the_queue,
    a_session_claimed_for_a_dropped_fetch_is_free_again,
    a_session_that_its_owner_held_before_a_dropped_fetch_stays_with_it,
    a_turn_fetch_dropped_at_any_await_takes_nothing,
    a_work_fetch_dropped_at_any_await_takes_nothing,
    a_dropped_commit_happened_whole_or_not_at_all,
    a_dropped_settlement_happened_whole_or_not_at_all,
    many_dropped_fetches_lose_nothing,
    what_was_assigned_to_a_dropped_fetch_of_many_returns_to_the_queue,
}

/// More polls than any call needs.
const POLLS_MAX: usize = 100;

type PendingCall<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

async fn a_dropped_parked_turn_fetch_takes_nothing(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: PendingCall<'_, _> = Box::pin(h.next_turn_within(secs(40)));
    keeps_waiting(&mut fetch).await;
    drop(fetch);
    h.send(start("i")).await;
    let fetched = h.awaited_turn().await;
    assert_eq!((fetched.item.instance.as_str(), fetched.attempt_count), ("i", 1));
}

async fn a_dropped_parked_work_fetch_takes_nothing(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: PendingCall<'_, _> = Box::pin(h.next_work_within(secs(40)));
    keeps_waiting(&mut fetch).await;
    drop(fetch);
    h.queue(activity("i", 1)).await;
    let work = h.awaited_work().await;
    assert_eq!((work.activity_id(), work.attempt_count), (1, 1));
}

async fn a_turn_assigned_to_a_dropped_fetch_returns_to_the_queue(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: PendingCall<'_, _> = Box::pin(h.next_turn_within(secs(40)));
    keeps_waiting(&mut fetch).await;
    h.send(start("i")).await;
    drop(fetch);
    let fetched = h.awaited_turn().await;
    assert_eq!(fetched.item.messages, [start("i")]);
    assert_eq!(fetched.attempt_count, 1, "the attempt was refunded");
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
}

async fn work_assigned_to_a_dropped_fetch_returns_to_the_queue(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: PendingCall<'_, _> = Box::pin(h.next_work_within(secs(40)));
    keeps_waiting(&mut fetch).await;
    h.queue(activity("i", 1)).await;
    drop(fetch);
    let work = h.awaited_work().await;
    assert_eq!((work.activity_id(), work.attempt_count), (1, 1), "the attempt was refunded");
    h.end_work(&work.lock_token, None).await.unwrap();
}

async fn a_session_claimed_for_a_dropped_fetch_is_free_again(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let fetch_as = |owner: &str, wait| WorkFetch::new(LOCK, wait).with_session(session(owner, secs(600)));
    let (a, b) = (fetch_as("a", secs(40)), fetch_as("b", secs(20)));
    let mut fetch: PendingCall<'_, _> = Box::pin(h.fetch_one_work(&a));
    keeps_waiting(&mut fetch).await;
    h.queue(activity_in_session("i", 1, "s")).await;
    drop(fetch);
    let work = h.fetch_one_work(&b).await.unwrap().expect("the claim was undone");
    assert_eq!((work.item, work.attempt_count), (activity_in_session("i", 1, "s"), 1));
}

async fn a_session_that_its_owner_held_before_a_dropped_fetch_stays_with_it(h: CaseHarness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let fetch_as = |owner: &str, wait| WorkFetch::new(LOCK, wait).with_session(session(owner, secs(600)));
    let (a, b) = (fetch_as("a", secs(40)), fetch_as("b", Duration::ZERO));
    h.queue(activity_in_session("i", 1, "s")).await;
    let held = h.fetch_one_work(&a).await.unwrap().expect("the session is free");
    h.end_work(&held.lock_token, None).await.unwrap();
    let mut fetch: PendingCall<'_, _> = Box::pin(h.fetch_one_work(&a));
    keeps_waiting(&mut fetch).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    drop(fetch);
    h.settle().await;
    assert!(h.fetch_one_work(&b).await.unwrap().is_none(), "the lease is from before the dropped fetch");
    let work = h.fetch_one_work(&a).await.unwrap().expect("the activity came back to its owner");
    assert_eq!((work.activity_id(), work.attempt_count), (2, 1));
}

async fn a_turn_fetch_dropped_at_any_await_takes_nothing(h: CaseHarness) {
    h.send(start("i")).await;
    for polls in 0..POLLS_MAX {
        let mut fetch: PendingCall<'_, _> = Box::pin(h.next_turn_within(secs(20)));
        if let Some(fetched) = polled(&mut fetch, polls).await {
            let turn = fetched.unwrap().expect("the message waits");
            assert_eq!(turn.attempt_count, 1, "no earlier fetch kept the message");
            return;
        }
        drop(fetch);
        let fetched = h.awaited_turn().await;
        assert_eq!(fetched.attempt_count, 1);
        h.release_turn(&fetched.lock_token, None, true).await.unwrap();
    }
    panic!("the fetch does not end after {POLLS_MAX} polls");
}

async fn a_work_fetch_dropped_at_any_await_takes_nothing(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    for polls in 0..POLLS_MAX {
        let mut fetch: PendingCall<'_, _> = Box::pin(h.next_work_within(secs(20)));
        if let Some(fetched) = polled(&mut fetch, polls).await {
            let work = fetched.unwrap().expect("the activity waits");
            assert_eq!(work.attempt_count, 1, "no earlier fetch kept the activity");
            return;
        }
        drop(fetch);
        let work = h.awaited_work().await;
        assert_eq!(work.attempt_count, 1);
        h.release_work(&work.lock_token, None, true).await.unwrap();
    }
    panic!("the fetch does not end after {POLLS_MAX} polls");
}

async fn a_dropped_commit_happened_whole_or_not_at_all(h: CaseHarness) {
    for polls in 0..POLLS_MAX {
        let instance = format!("i{polls}");
        h.create(&instance).await;
        h.send(signal(&instance, "go")).await;
        let fetched = h.fetched_turn().await;
        let turn = SampleTurn::of(&instance, 1)
            .event(2, events::custom_status(Some("set")))
            .event(3, events::kv_set("k", "v"))
            .activity(activity(&instance, 3))
            .message(signal(&instance, "next"));
        let store = h.store();
        let mut call: PendingCall<'_, ()> = Box::pin(turn.commit(&store, &fetched.lock_token));
        let ended = polled(&mut call, polls).await.is_some();
        drop(call);
        h.settle().await;
        let again =
            SampleTurn::of(&instance, 1).event(4, events::scheduled()).commit(&h, &fetched.lock_token).await;
        let work = h.drain_work().await;
        let status = h.read_custom_status(&instance, 0).await.unwrap();
        let value = h.read_kv_value(&instance, "k").await.unwrap();
        if again.is_ok() {
            assert!(!ended, "what was answered has happened");
            assert_eq!(h.event_ids(&instance).await, [1, 4]);
            assert_eq!((work, status, value), (vec![], None, None));
            assert!(h.next_turn().await.is_none());
        } else {
            assert_eq!(h.event_ids(&instance).await, [1, 2, 3]);
            assert_eq!(work, [3]);
            assert_eq!(status, custom_status("set", 1));
            assert_eq!(value.as_deref(), Some("v"));
            assert_eq!(h.fetched_turn().await.item.messages, [signal(&instance, "next")]);
        }
        if ended {
            return;
        }
    }
    panic!("the commit does not end after {POLLS_MAX} polls");
}

async fn a_dropped_settlement_happened_whole_or_not_at_all(h: CaseHarness) {
    h.create("i").await;
    for polls in 0..POLLS_MAX {
        h.queue(activity("i", 7)).await;
        let work = h.fetched_work().await;
        let mut call: PendingCall<'_, ()> =
            Box::pin(h.end_work(&work.lock_token, Some(activity_completed("i", 7))));
        let ended = polled(&mut call, polls).await.is_some();
        drop(call);
        h.settle().await;
        let again = h.end_work(&work.lock_token, Some(activity_completed("i", 7))).await;
        assert!(again.is_err() || !ended, "what was answered has happened");
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.item.messages, [activity_completed("i", 7)], "once, whether {again:?} or not");
        SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
        if ended {
            return;
        }
    }
    panic!("the commit does not end after {POLLS_MAX} polls");
}

async fn many_dropped_fetches_lose_nothing(h: CaseHarness) {
    for n in 0..20 {
        h.send(start(&format!("i{n}"))).await;
        h.queue(activity("i", n)).await;
    }
    for _ in 0..10 {
        let mut fetch: PendingCall<'_, _> = Box::pin(h.next_turn_within(secs(1)));
        if let Some(fetched) = poll_once(&mut fetch).await {
            let turn = fetched.unwrap().expect("messages wait");
            h.release_turn(&turn.lock_token, None, true).await.unwrap();
        }
        drop(fetch);
        let mut fetch: PendingCall<'_, _> = Box::pin(h.next_work_within(secs(1)));
        if let Some(fetched) = poll_once(&mut fetch).await {
            let work = fetched.unwrap().expect("activities wait");
            h.release_work(&work.lock_token, None, true).await.unwrap();
        }
    }
    let (mut instances, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let fetched = h.awaited_turn().await;
        assert_eq!(fetched.attempt_count, 1);
        instances.push(fetched.item.instance);
        let work = h.awaited_work().await;
        assert_eq!(work.attempt_count, 1);
        ids.push(work.activity_id());
    }
    instances.sort();
    instances.dedup();
    ids.sort_unstable();
    assert_eq!((instances.len(), ids), (20, (0..20).collect()));
}

async fn what_was_assigned_to_a_dropped_fetch_of_many_returns_to_the_queue(h: CaseHarness) {
    for n in 0..6 {
        h.send(start(&format!("i{n}"))).await;
        h.queue(activity("i", n)).await;
    }
    let turns = TurnFetch::new(LOCK, secs(20)).with_turns_max(4);
    let work = WorkFetch::new(LOCK, secs(20)).with_work_max(4);
    for polls in 0..3 {
        let mut fetch: PendingCall<'_, _> = Box::pin(h.fetch_turns(&turns));
        for turn in polled(&mut fetch, polls).await.map(Result::unwrap).into_iter().flatten() {
            h.release_turn(&turn.lock_token, None, true).await.unwrap();
        }
        drop(fetch);
        let mut fetch: PendingCall<'_, _> = Box::pin(h.fetch_work(&work));
        for work in polled(&mut fetch, polls).await.map(Result::unwrap).into_iter().flatten() {
            h.release_work(&work.lock_token, None, true).await.unwrap();
        }
        drop(fetch);
        h.settle().await;
    }
    let (mut instances, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let (turn, work) = (h.awaited_turn().await, h.awaited_work().await);
        assert_eq!((turn.attempt_count, work.attempt_count), (1, 1), "the attempts were refunded");
        instances.push(turn.item.instance);
        ids.push(work.activity_id());
    }
    instances.sort();
    instances.dedup();
    ids.sort_unstable();
    assert_eq!((instances.len(), ids), (6, (0..6).collect()));
}
