//! Hundreds of tasks fetch and commit at once: everything is assigned once per lock, and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::FetchedTurn;
use tokio::task::JoinSet;

use crate::events;
use crate::harness::{ActivityId, CaseHarness, StoreHandle, expect_lock_lost};
use crate::items::{activity, activity_completed, signal};
use crate::sample_turn::SampleTurn;

cases! { $ concurrency as concurrency_cases:
    two_hundred_dispatchers_deliver_each_message_once_and_in_order,
    two_hundred_workers_run_each_activity_once,
    every_abandoned_activity_comes_once_more,
    of_two_hundred_commits_with_one_token_one_succeeds,
}

/// Tasks that fetch at once.
const CROWD: usize = 200;
/// Instances that have messages.
const INSTANCES: usize = 25;
/// Messages per instance.
const MESSAGES: usize = 12;
/// A fetch that finds nothing looks again after this long at the latest.
const POLL: Duration = Duration::from_millis(200);

/// What was delivered so far, and what is locked at this moment.
#[derive(Default)]
struct DeliveryLog {
    held: Mutex<BTreeSet<String>>,
    delivered: Mutex<BTreeMap<String, Vec<String>>>,
    count: AtomicUsize,
}

impl DeliveryLog {
    fn hold(&self, what: &str) {
        assert!(
            self.held.lock().unwrap().insert(what.to_owned()),
            "{what} was assigned although it is locked"
        );
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

async fn two_hundred_dispatchers_deliver_each_message_once_and_in_order(h: CaseHarness) {
    for n in 0..INSTANCES {
        h.create(&format!("i{n}")).await;
    }
    let log: Arc<DeliveryLog> = Arc::default();
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
        tasks.spawn(dispatch(h.store(), Arc::clone(&log)));
    }
    join_all(tasks).await;
    let expected: Vec<String> = (0..MESSAGES).map(|message| format!("{message:02}")).collect();
    for (instance, delivered) in log.delivered.lock().unwrap().iter() {
        assert_eq!(*delivered, expected, "the messages of {instance}");
    }
    assert_eq!(log.delivered.lock().unwrap().len(), INSTANCES);
    assert_eq!(h.messages_waiting().await, 0);
}

/// Takes turns until all messages are delivered.
async fn dispatch(store: StoreHandle, log: Arc<DeliveryLog>) {
    while !log.is_complete(INSTANCES * MESSAGES) {
        let fetched = store.next_turn_within(POLL).await.unwrap();
        let Some(FetchedTurn { item, lock_token, attempt_count, .. }) = fetched else {
            tokio::task::yield_now().await;
            continue;
        };
        assert_eq!(attempt_count, 1, "no lock expired");
        log.hold(&item.instance);
        let next_id = item.history.last().map_or(1, |event| event.event_id + 1);
        let mut turn = SampleTurn::of(&item.instance, 1);
        for (id, message) in (next_id..).zip(&item.messages) {
            let WorkItem::ExternalRaised { name, .. } = message else { panic!("only signals were sent") };
            turn = turn.event(id, events::signalled(name));
            log.delivered.lock().unwrap().entry(item.instance.clone()).or_default().push(name.clone());
        }
        // Time for another task to be assigned the same instance.
        tokio::task::yield_now().await;
        // Not locked any more before the commit: after it, another task may hold the instance.
        log.let_go(&item.instance);
        turn.commit(&store, &lock_token).await.unwrap();
        log.count.fetch_add(item.messages.len(), Ordering::SeqCst);
    }
}

async fn two_hundred_workers_run_each_activity_once(h: CaseHarness) {
    let activities = 300;
    h.create("i").await;
    for id in 0..activities {
        h.queue(activity("i", id)).await;
    }
    let expected = usize::try_from(activities).unwrap();
    let log: Arc<DeliveryLog> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let (store, log) = (h.store(), Arc::clone(&log));
        tasks.spawn(async move {
            while let Some(work) = store.next_work_within(Duration::ZERO).await.unwrap() {
                let id = work.activity_id();
                assert_eq!(work.attempt_count, 1);
                log.hold(&format!("activity {id}"));
                store.end_work(&work.lock_token, Some(activity_completed("i", id))).await.unwrap();
                log.count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    join_all(tasks).await;
    assert!(log.is_complete(expected));
    let messages = h.fetched_turn().await.item.messages;
    let completed: BTreeSet<String> = messages.iter().map(|message| format!("{message:?}")).collect();
    assert_eq!((messages.len(), completed.len()), (expected, expected), "one completion each");
}

async fn every_abandoned_activity_comes_once_more(h: CaseHarness) {
    let activities = 150;
    for id in 0..activities {
        h.queue(activity("i", id)).await;
    }
    let log: Arc<DeliveryLog> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let (store, log) = (h.store(), Arc::clone(&log));
        tasks.spawn(async move {
            while !log.is_complete(usize::try_from(activities).unwrap()) {
                let fetched = store.next_work_within(POLL).await.unwrap();
                let Some(work) = fetched else { continue };
                let attempt = work.attempt_count;
                log.hold(&format!("attempt {attempt} of {}", work.activity_id()));
                if attempt == 1 {
                    store.release_work(&work.lock_token, None, false).await.unwrap();
                } else {
                    assert_eq!(attempt, 2);
                    store.end_work(&work.lock_token, None).await.unwrap();
                    log.count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    join_all(tasks).await;
    assert_eq!(log.held.lock().unwrap().len(), 2 * usize::try_from(activities).unwrap());
    assert_eq!(h.activities_waiting().await, 0);
}

async fn of_two_hundred_commits_with_one_token_one_succeeds(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "go")).await;
    let fetched = h.fetched_turn().await;
    let successes = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..u64::try_from(CROWD).unwrap() {
        let (store, token, successes) = (h.store(), fetched.lock_token.clone(), Arc::clone(&successes));
        tasks.spawn(async move {
            let turn = SampleTurn::of("i", 1).event(2 + n, events::scheduled());
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
