//! Any future may be dropped at any await: the store is then as before the call or as after it.

use std::pin::Pin;

use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};

use crate::events;
use crate::harness::{Harness, LOCK, secs};
use crate::items::{activity, activity_completed, activity_in_session, signal, start};
use crate::turn::Turn;
use crate::waiting::{keeps_waiting, poll_once, polled};

cases! { $ dropped_futures as dropped_futures_cases:
    a_dropped_parked_orchestration_fetch_takes_nothing,
    a_dropped_parked_work_fetch_takes_nothing,
    work_assigned_to_a_dropped_orchestration_fetch_is_given_back,
    work_assigned_to_a_dropped_work_fetch_is_given_back,
    a_session_claimed_for_a_dropped_fetch_is_free_again,
    an_orchestration_fetch_dropped_at_any_await_takes_nothing,
    a_work_fetch_dropped_at_any_await_takes_nothing,
    a_dropped_orchestration_ack_happened_whole_or_not_at_all,
    a_dropped_work_ack_happened_whole_or_not_at_all,
    many_dropped_fetches_lose_nothing,
}

/// More polls than any call needs.
const POLLS_MAX: usize = 100;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

async fn a_dropped_parked_orchestration_fetch_takes_nothing(h: Harness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: Answer<'_, _> = Box::pin(h.fetch_orchestration_item(LOCK, secs(40), None));
    keeps_waiting(&mut fetch).await;
    drop(fetch);
    h.send(start("i")).await;
    let fetched = h.fetched_in_time().await;
    assert_eq!((fetched.item.instance.as_str(), fetched.attempts), ("i", 1));
}

async fn a_dropped_parked_work_fetch_takes_nothing(h: Harness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: Answer<'_, _> = Box::pin(h.fetch_work_item(LOCK, secs(40), None, &TagFilter::Any));
    keeps_waiting(&mut fetch).await;
    drop(fetch);
    h.queue(activity("i", 1)).await;
    let work = h.fetched_work_in_time().await;
    assert_eq!((work.id(), work.attempts), (1, 1));
}

async fn work_assigned_to_a_dropped_orchestration_fetch_is_given_back(h: Harness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: Answer<'_, _> = Box::pin(h.fetch_orchestration_item(LOCK, secs(40), None));
    keeps_waiting(&mut fetch).await;
    h.send(start("i")).await;
    drop(fetch);
    let fetched = h.fetched_in_time().await;
    assert_eq!(fetched.item.messages, [start("i")]);
    assert_eq!(fetched.attempts, 1, "the attempt was refunded");
    Turn::beginning("i", 1).ack(&*h, &fetched.token).await.unwrap();
}

async fn work_assigned_to_a_dropped_work_fetch_is_given_back(h: Harness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let mut fetch: Answer<'_, _> = Box::pin(h.fetch_work_item(LOCK, secs(40), None, &TagFilter::Any));
    keeps_waiting(&mut fetch).await;
    h.queue(activity("i", 1)).await;
    drop(fetch);
    let work = h.fetched_work_in_time().await;
    assert_eq!((work.id(), work.attempts), (1, 1), "the attempt was refunded");
    h.ack_work_item(&work.token, None).await.unwrap();
}

async fn a_session_claimed_for_a_dropped_fetch_is_free_again(h: Harness) {
    if !h.factory().fetch_waits() {
        return;
    }
    let session = |owner: &str| SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: secs(600) };
    let (a, b) = (session("a"), session("b"));
    let mut fetch: Answer<'_, _> = Box::pin(h.fetch_work_item(LOCK, secs(40), Some(&a), &TagFilter::Any));
    keeps_waiting(&mut fetch).await;
    h.queue(activity_in_session("i", 1, "s")).await;
    drop(fetch);
    let fetched = h.fetch_work_item(LOCK, secs(20), Some(&b), &TagFilter::Any).await.unwrap();
    let (item, _, attempts) = fetched.expect("the claim was undone");
    assert_eq!((item, attempts), (activity_in_session("i", 1, "s"), 1));
}

async fn an_orchestration_fetch_dropped_at_any_await_takes_nothing(h: Harness) {
    h.send(start("i")).await;
    for polls in 0..POLLS_MAX {
        let mut fetch: Answer<'_, _> = Box::pin(h.fetch_orchestration_item(LOCK, secs(20), None));
        if let Some(fetched) = polled(&mut fetch, polls).await {
            let (_, _, attempts) = fetched.unwrap().expect("the message waits");
            assert_eq!(attempts, 1, "nobody was handed the message before");
            return;
        }
        drop(fetch);
        let fetched = h.fetched_in_time().await;
        assert_eq!(fetched.attempts, 1);
        h.abandon_orchestration_item(&fetched.token, None, true).await.unwrap();
    }
    panic!("the fetch does not end after {POLLS_MAX} polls");
}

async fn a_work_fetch_dropped_at_any_await_takes_nothing(h: Harness) {
    h.queue(activity("i", 1)).await;
    for polls in 0..POLLS_MAX {
        let mut fetch: Answer<'_, _> = Box::pin(h.fetch_work_item(LOCK, secs(20), None, &TagFilter::Any));
        if let Some(fetched) = polled(&mut fetch, polls).await {
            let (_, _, attempts) = fetched.unwrap().expect("the activity waits");
            assert_eq!(attempts, 1, "nobody was handed the activity before");
            return;
        }
        drop(fetch);
        let work = h.fetched_work_in_time().await;
        assert_eq!(work.attempts, 1);
        h.abandon_work_item(&work.token, None, true).await.unwrap();
    }
    panic!("the fetch does not end after {POLLS_MAX} polls");
}

async fn a_dropped_orchestration_ack_happened_whole_or_not_at_all(h: Harness) {
    for polls in 0..POLLS_MAX {
        let instance = format!("i{polls}");
        h.create(&instance).await;
        h.send(signal(&instance, "go")).await;
        let fetched = h.fetched().await;
        let turn = Turn::of(&instance, 1)
            .event(2, events::custom_status(Some("set")))
            .event(3, events::kv_set("k", "v"))
            .activity(activity(&instance, 3))
            .message(signal(&instance, "next"));
        let provider = h.provider();
        let mut ack: Answer<'_, ()> = Box::pin(turn.ack(&*provider, &fetched.token));
        let ended = polled(&mut ack, polls).await.is_some();
        drop(ack);
        h.settle().await;
        let again = Turn::of(&instance, 1).event(4, events::scheduled()).ack(&*h, &fetched.token).await;
        let work = h.drain_work().await;
        let status = h.get_custom_status(&instance, 0).await.unwrap();
        let value = h.get_kv_value(&instance, "k").await.unwrap();
        if again.is_ok() {
            assert!(!ended, "what was acknowledged has happened");
            assert_eq!(h.event_ids(&instance).await, [1, 4]);
            assert_eq!((work, status, value), (vec![], None, None));
            assert!(h.fetch().await.is_none());
        } else {
            assert_eq!(h.event_ids(&instance).await, [1, 2, 3]);
            assert_eq!(work, [3]);
            assert_eq!(status, Some((Some("set".to_owned()), 1)));
            assert_eq!(value.as_deref(), Some("v"));
            assert_eq!(h.fetched().await.item.messages, [signal(&instance, "next")]);
        }
        if ended {
            return;
        }
    }
    panic!("the ack does not end after {POLLS_MAX} polls");
}

async fn a_dropped_work_ack_happened_whole_or_not_at_all(h: Harness) {
    h.create("i").await;
    for polls in 0..POLLS_MAX {
        h.queue(activity("i", 7)).await;
        let work = h.fetched_work().await;
        let mut ack: Answer<'_, ()> =
            Box::pin(h.ack_work_item(&work.token, Some(activity_completed("i", 7))));
        let ended = polled(&mut ack, polls).await.is_some();
        drop(ack);
        h.settle().await;
        let again = h.ack_work_item(&work.token, Some(activity_completed("i", 7))).await;
        assert!(again.is_err() || !ended, "what was acknowledged has happened");
        let fetched = h.fetched().await;
        assert_eq!(fetched.item.messages, [activity_completed("i", 7)], "once, whether {again:?} or not");
        Turn::of("i", 1).ack(&*h, &fetched.token).await.unwrap();
        if ended {
            return;
        }
    }
    panic!("the ack does not end after {POLLS_MAX} polls");
}

async fn many_dropped_fetches_lose_nothing(h: Harness) {
    for n in 0..20 {
        h.send(start(&format!("i{n}"))).await;
        h.queue(activity("i", n)).await;
    }
    for _ in 0..10 {
        let mut fetch: Answer<'_, _> = Box::pin(h.fetch_orchestration_item(LOCK, secs(1), None));
        if let Some(fetched) = poll_once(&mut fetch).await {
            let (_, token, _) = fetched.unwrap().expect("messages wait");
            h.abandon_orchestration_item(&token, None, true).await.unwrap();
        }
        drop(fetch);
        let mut fetch: Answer<'_, _> = Box::pin(h.fetch_work_item(LOCK, secs(1), None, &TagFilter::Any));
        if let Some(fetched) = poll_once(&mut fetch).await {
            let (_, token, _) = fetched.unwrap().expect("activities wait");
            h.abandon_work_item(&token, None, true).await.unwrap();
        }
    }
    let (mut instances, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let fetched = h.fetched_in_time().await;
        assert_eq!(fetched.attempts, 1);
        instances.push(fetched.item.instance);
        let work = h.fetched_work_in_time().await;
        assert_eq!(work.attempts, 1);
        ids.push(work.id());
    }
    instances.sort();
    instances.dedup();
    ids.sort_unstable();
    assert_eq!((instances.len(), ids), (20, (0..20).collect()));
}
