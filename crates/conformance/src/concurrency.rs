//! Hundreds who fetch and ack at once: everything is handed out once per lock, and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::FetchedTurn;
use tokio::task::JoinSet;

use crate::events;
use crate::harness::{ActivityId, Harness, StoreHandle, expect_lock_lost};
use crate::items::{activity, activity_completed, signal};
use crate::turn_draft::TurnDraft;

cases! { $ concurrency as concurrency_cases:
    two_hundred_dispatchers_deliver_each_message_once_and_in_order,
    two_hundred_workers_run_each_activity_once,
    every_abandoned_activity_comes_once_more,
    of_two_hundred_acks_with_one_token_one_succeeds,
}

/// So many take part.
const CROWD: usize = 200;
/// So many instances have messages.
const INSTANCES: usize = 25;
/// So many messages each.
const MESSAGES: usize = 12;
/// A fetch that finds nothing looks again after this long at the latest.
const POLL: Duration = Duration::from_millis(200);

/// What everybody has seen so far.
#[derive(Default)]
struct Seen {
    held: Mutex<BTreeSet<String>>,
    delivered: Mutex<BTreeMap<String, Vec<String>>>,
    count: AtomicUsize,
}

impl Seen {
    fn hold(&self, what: &str) {
        assert!(self.held.lock().unwrap().insert(what.to_owned()), "{what} was handed out under a lock");
    }

    fn let_go(&self, what: &str) {
        assert!(self.held.lock().unwrap().remove(what));
    }

    fn is_complete(&self, expected: usize) -> bool {
        self.count.load(Ordering::SeqCst) >= expected
    }
}

async fn join_all(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

async fn two_hundred_dispatchers_deliver_each_message_once_and_in_order(h: Harness) {
    for n in 0..INSTANCES {
        h.create(&format!("i{n}")).await;
    }
    let seen: Arc<Seen> = Arc::default();
    let mut tasks = JoinSet::new();
    for n in 0..INSTANCES {
        let store = h.store();
        tasks.spawn(async move {
            for message in 0..MESSAGES {
                let item = signal(&format!("i{n}"), &format!("{message:02}"));
                store.enqueue(item, None).await.unwrap();
            }
        });
    }
    for _ in 0..CROWD {
        tasks.spawn(dispatch(h.store(), Arc::clone(&seen)));
    }
    join_all(tasks).await;
    let expected: Vec<String> = (0..MESSAGES).map(|message| format!("{message:02}")).collect();
    for (instance, delivered) in seen.delivered.lock().unwrap().iter() {
        assert_eq!(*delivered, expected, "the messages of {instance}");
    }
    assert_eq!(seen.delivered.lock().unwrap().len(), INSTANCES);
    assert_eq!(h.messages_waiting().await, 0);
}

/// Takes turns until all messages are delivered.
async fn dispatch(store: StoreHandle, seen: Arc<Seen>) {
    while !seen.is_complete(INSTANCES * MESSAGES) {
        let fetched = store.next_turn_within(POLL).await.unwrap();
        let Some(FetchedTurn { item, lock_token, attempt_count, .. }) = fetched else {
            tokio::task::yield_now().await;
            continue;
        };
        assert_eq!(attempt_count, 1, "no lock expired");
        seen.hold(&item.instance);
        let next_id = item.history.last().map_or(1, |event| event.event_id + 1);
        let mut turn = TurnDraft::of(&item.instance, 1);
        for (id, message) in (next_id..).zip(&item.messages) {
            let WorkItem::ExternalRaised { name, .. } = message else { panic!("only signals were sent") };
            turn = turn.event(id, events::signalled(name));
            seen.delivered.lock().unwrap().entry(item.instance.clone()).or_default().push(name.clone());
        }
        // Time for somebody else to be handed the same instance.
        tokio::task::yield_now().await;
        // Let go before the ack: as soon as that is committed, the instance may be somebody else's.
        seen.let_go(&item.instance);
        turn.commit(&store, &lock_token).await.unwrap();
        seen.count.fetch_add(item.messages.len(), Ordering::SeqCst);
    }
}

async fn two_hundred_workers_run_each_activity_once(h: Harness) {
    let activities = 300;
    h.create("i").await;
    for id in 0..activities {
        h.queue(activity("i", id)).await;
    }
    let expected = usize::try_from(activities).unwrap();
    let seen: Arc<Seen> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let (store, seen) = (h.store(), Arc::clone(&seen));
        tasks.spawn(async move {
            while let Some(work) = store.next_work_within(Duration::ZERO).await.unwrap() {
                let id = work.activity_id();
                assert_eq!(work.attempt_count, 1);
                seen.hold(&format!("activity {id}"));
                store.end_work(&work.lock_token, Some(activity_completed("i", id))).await.unwrap();
                seen.count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    join_all(tasks).await;
    assert!(seen.is_complete(expected));
    let messages = h.fetched_turn().await.item.messages;
    let completed: BTreeSet<String> = messages.iter().map(|message| format!("{message:?}")).collect();
    assert_eq!((messages.len(), completed.len()), (expected, expected), "one completion each");
}

async fn every_abandoned_activity_comes_once_more(h: Harness) {
    let activities = 150;
    for id in 0..activities {
        h.queue(activity("i", id)).await;
    }
    let seen: Arc<Seen> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let (store, seen) = (h.store(), Arc::clone(&seen));
        tasks.spawn(async move {
            while !seen.is_complete(usize::try_from(activities).unwrap()) {
                let fetched = store.next_work_within(POLL).await.unwrap();
                let Some(work) = fetched else { continue };
                let attempt = work.attempt_count;
                seen.hold(&format!("attempt {attempt} of {}", work.activity_id()));
                if attempt == 1 {
                    store.release_work(&work.lock_token, None, false).await.unwrap();
                } else {
                    assert_eq!(attempt, 2);
                    store.end_work(&work.lock_token, None).await.unwrap();
                    seen.count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    join_all(tasks).await;
    assert_eq!(seen.held.lock().unwrap().len(), 2 * usize::try_from(activities).unwrap());
    assert_eq!(h.activities_waiting().await, 0);
}

async fn of_two_hundred_acks_with_one_token_one_succeeds(h: Harness) {
    h.create("i").await;
    h.send(signal("i", "go")).await;
    let fetched = h.fetched_turn().await;
    let successes = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..u64::try_from(CROWD).unwrap() {
        let (store, token, successes) = (h.store(), fetched.lock_token.clone(), Arc::clone(&successes));
        tasks.spawn(async move {
            let turn = TurnDraft::of("i", 1).event(2 + n, events::scheduled());
            match turn.commit(&store, &token).await {
                Ok(()) => {
                    successes.fetch_add(1, Ordering::SeqCst);
                }
                refused => {
                    expect_lock_lost(refused);
                }
            }
        });
    }
    join_all(tasks).await;
    assert_eq!(successes.load(Ordering::SeqCst), 1);
    assert_eq!(h.event_ids("i").await.len(), 2);
}
