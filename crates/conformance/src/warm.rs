//! Turns for a runtime that keeps instances in memory.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::{FetchedTurn, LentInstance, Stamp, TurnFetch, WarmView};

use crate::events;
use crate::harness::{CaseHarness, LOCK, custom_status, expect_lock_lost, expect_permanent_error, secs};
use crate::image::image;
use crate::items::{NAME, VERSION, activity, signal, start};
use crate::sample_turn::{SampleTurn, checking_in};
use crate::waiting::keeps_waiting;

cases! { $ warm as warm_cases:
    a_first_turn_is_cold_and_has_no_stamp,
    a_cold_turn_comes_with_its_history_and_stamp,
    a_warm_turn_comes_without_history,
    a_copy_at_another_stamp_is_not_lent,
    only_the_assigned_instance_is_asked_for,
    a_commit_without_a_stamp_changes_the_stamp,
    a_recreated_instance_has_another_stamp,
    a_commit_with_a_stamp_writes_everything,
    a_commit_on_the_right_base_succeeds,
    a_commit_on_another_base_is_refused_and_changes_nothing,
    a_commit_without_base_is_not_compared,
    check_in_is_called_once_before_the_answer,
    check_in_is_not_called_for_a_refused_commit,
    check_in_comes_before_the_next_turn_is_assigned,
    a_dropped_fetch_returns_the_lent_instance,
    a_successor_begins_without_a_stamp_of_its_own,
    a_fetch_with_a_view_waits_filters_and_counts_like_one_without,
    every_instance_of_a_batch_is_warm_or_has_its_history,
}

/// What a runtime keeps in memory, and what the store asked it for.
#[derive(Default)]
struct KeptInstances {
    kept: Mutex<HashMap<String, (u64, Stamp)>>,
    asked: Mutex<Vec<(String, u64, Stamp)>>,
}

impl KeptInstances {
    fn keep(&self, instance: &str, execution_id: u64, stamp: Stamp) {
        self.kept.lock().unwrap().insert(instance.to_owned(), (execution_id, stamp));
    }

    fn keeps(&self, instance: &str) -> bool {
        self.kept.lock().unwrap().contains_key(instance)
    }

    fn asked(&self) -> Vec<(String, u64, Stamp)> {
        self.asked.lock().unwrap().clone()
    }
}

/// The view that a fetch passes to the store.
struct KeptInstancesView(Arc<KeptInstances>);

/// An instance on loan; back in memory when it is dropped.
struct LentCopy {
    memory: Arc<KeptInstances>,
    instance: String,
    execution_id: u64,
    stamp: Stamp,
}

impl Drop for LentCopy {
    fn drop(&mut self) {
        self.memory.keep(&self.instance, self.execution_id, self.stamp);
    }
}

impl WarmView for KeptInstancesView {
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance> {
        self.0.asked.lock().unwrap().push((instance.to_owned(), execution_id, stamp));
        let kept = self.0.kept.lock().unwrap().remove(instance)?;
        (kept == (execution_id, stamp)).then(|| {
            let memory = Arc::clone(&self.0);
            LentInstance::new(LentCopy { memory, instance: instance.to_owned(), execution_id, stamp })
        })
    }
}

/// Asks for a turn and lends what is in memory, if the store can use it.
fn fetch_with(h: &CaseHarness, memory: &Arc<KeptInstances>, poll_timeout: Duration) -> TurnFetch {
    let fetch = TurnFetch::new(LOCK, poll_timeout);
    if h.keeps_instances_warm() {
        fetch.with_warm(Arc::new(KeptInstancesView(Arc::clone(memory))))
    } else {
        fetch
    }
}

async fn fetch_warm(h: &CaseHarness, memory: &Arc<KeptInstances>) -> FetchedTurn {
    let fetch = fetch_with(h, memory, Duration::ZERO);
    h.fetch_turn(&fetch).await.unwrap().expect("there is an instance to fetch")
}

/// A running instance with this stamp and a waiting message.
async fn stamped(h: &CaseHarness, instance: &str, stamp: Stamp) {
    h.send(start(instance)).await;
    let fetched = h.fetched_turn().await;
    h.commit_turn(&SampleTurn::beginning(instance, 1).into_commit(&fetched.lock_token, None, stamp))
        .await
        .unwrap();
    h.send(signal(instance, "go")).await;
}

async fn a_first_turn_is_cold_and_has_no_stamp(h: CaseHarness) {
    h.send(start("i")).await;
    let memory = Arc::default();
    let turn = fetch_warm(&h, &memory).await;
    assert!(turn.warm.is_none());
    assert_eq!(turn.stamp, None);
    assert_eq!((turn.item.instance.as_str(), turn.item.messages.as_slice()), ("i", &[start("i")][..]));
    assert_eq!(turn.attempt_count, 1);
    assert!(memory.asked().is_empty());
    SampleTurn::beginning("i", 1).commit(&h, &turn.lock_token).await.unwrap();
}

async fn a_cold_turn_comes_with_its_history_and_stamp(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    assert!(turn.warm.is_none());
    assert_eq!(turn.item.history, h.history("i").await.unwrap());
    if h.keeps_instances_warm() {
        assert_eq!(turn.stamp, Some(Stamp(11)));
    }
}

async fn a_warm_turn_comes_without_history(h: CaseHarness) {
    if !h.keeps_instances_warm() {
        return;
    }
    let turn = SampleTurn::beginning("i", 1).event(2, events::kv_set("k", "v")).continuing_as_new(3);
    h.begin("i", turn).await;
    let fetched = h.fetched_turn().await;
    h.commit_turn(&SampleTurn::beginning("i", 2).into_commit(&fetched.lock_token, None, Stamp(11)))
        .await
        .unwrap();
    h.send(signal("i", "go")).await;
    let memory: Arc<KeptInstances> = Arc::default();
    memory.keep("i", 2, Stamp(11));
    let turn = fetch_warm(&h, &memory).await;
    assert_eq!(turn.item.history, []);
    assert!(turn.item.kv_snapshot.is_empty());
    assert_eq!(turn.item.messages, [signal("i", "go")]);
    assert_eq!((turn.item.orchestration_name.as_str(), turn.item.version.as_str()), (NAME, VERSION));
    assert_eq!((turn.item.execution_id, turn.item.history_error), (2, None));
    assert_eq!(turn.stamp, Some(Stamp(11)));
    assert_eq!(memory.asked(), [("i".to_owned(), 2, Stamp(11))]);
    let lent = turn.warm.expect("the instance is warm").take::<LentCopy>().expect("what was lent");
    assert_eq!((lent.instance.as_str(), lent.execution_id, lent.stamp), ("i", 2, Stamp(11)));
}

async fn a_copy_at_another_stamp_is_not_lent(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    let memory: Arc<KeptInstances> = Arc::default();
    memory.keep("i", 1, Stamp(10));
    let turn = fetch_warm(&h, &memory).await;
    assert!(turn.warm.is_none());
    assert_eq!(turn.item.history.len(), 1);
}

async fn only_the_assigned_instance_is_asked_for(h: CaseHarness) {
    if !h.keeps_instances_warm() {
        return;
    }
    for (instance, stamp) in [("a", Stamp(1)), ("b", Stamp(2))] {
        h.begin(instance, SampleTurn::beginning(instance, 1)).await;
        h.send(signal(instance, "stamp")).await;
        let fetched = h.fetched_turn().await;
        h.commit_turn(&SampleTurn::of(instance, 1).into_commit(&fetched.lock_token, None, stamp))
            .await
            .unwrap();
    }
    h.send(signal("b", "go")).await;
    let memory: Arc<KeptInstances> = Arc::default();
    memory.keep("a", 1, Stamp(1));
    memory.keep("b", 1, Stamp(2));
    let turn = fetch_warm(&h, &memory).await;
    assert!(turn.warm.is_some());
    assert_eq!(memory.asked(), [("b".to_owned(), 1, Stamp(2))]);
    assert!(memory.keeps("a"));
}

async fn a_commit_without_a_stamp_changes_the_stamp(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    h.take_turn("i", SampleTurn::of("i", 1).event(2, events::scheduled())).await;
    h.send(signal("i", "go")).await;
    let memory: Arc<KeptInstances> = Arc::default();
    memory.keep("i", 1, Stamp(11));
    let turn = fetch_warm(&h, &memory).await;
    assert!(turn.warm.is_none(), "the copy is stale");
    assert_ne!(turn.stamp, Some(Stamp(11)));
    assert_eq!(turn.item.history.len(), 2);
}

async fn a_recreated_instance_has_another_stamp(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    h.admin().delete_instance("i", true).await.unwrap();
    h.create("i").await;
    h.send(signal("i", "go")).await;
    let memory: Arc<KeptInstances> = Arc::default();
    memory.keep("i", 1, Stamp(11));
    let turn = fetch_warm(&h, &memory).await;
    assert!(turn.warm.is_none(), "the copy is of an instance that was deleted");
    assert_ne!(turn.stamp, Some(Stamp(11)));
}

async fn a_commit_with_a_stamp_writes_everything(h: CaseHarness) {
    h.send(start("i")).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    let decided = SampleTurn::beginning("i", 1)
        .event(2, events::kv_set("k", "v"))
        .event(3, events::custom_status(Some("status")))
        .activity(activity("i", 4))
        .activity(activity("i", 5))
        .cancelling(5)
        .message(signal("i", "next"))
        .completing(6, "done");
    h.commit_turn(&decided.into_commit(&turn.lock_token, None, Stamp(1))).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1, 2, 3, 6]);
    assert_eq!(h.read_kv_value("i", "k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("status", 1));
    assert_eq!(h.drain_work().await, [4]);
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().output.as_deref(), Some("done"));
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "next")]);
}

async fn a_commit_on_the_right_base_succeeds(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    let decided = SampleTurn::of("i", 1).event(2, events::scheduled());
    h.commit_turn(&decided.into_commit(&turn.lock_token, turn.stamp, Stamp(12))).await.unwrap();
    h.send(signal("i", "go")).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    assert_eq!(turn.item.history.len(), 2);
    if h.keeps_instances_warm() {
        assert_eq!(turn.stamp, Some(Stamp(12)));
    }
}

async fn a_commit_on_another_base_is_refused_and_changes_nothing(h: CaseHarness) {
    if !h.keeps_instances_warm() {
        return;
    }
    stamped(&h, "i", Stamp(11)).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    let before = image(&h, &["i"]).await;
    let decided = SampleTurn::of("i", 1).event(2, events::kv_set("k", "v")).activity(activity("i", 2));
    let stale = decided.clone().into_commit(&turn.lock_token, Some(Stamp(10)), Stamp(12));
    let error = expect_permanent_error(h.commit_turn(&stale).await);
    assert!(error.is_history_moved(), "{error:?}");
    assert_eq!(image(&h, &["i"]).await, before);
    assert!(h.next_turn().await.is_none(), "the lock is still held");
    h.commit_turn(&decided.into_commit(&turn.lock_token, Some(Stamp(11)), Stamp(12))).await.unwrap();
}

async fn a_commit_without_base_is_not_compared(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    h.commit_turn(&SampleTurn::of("i", 1).into_commit(&turn.lock_token, None, Stamp(12))).await.unwrap();
}

async fn check_in_is_called_once_before_the_answer(h: CaseHarness) {
    h.send(start("i")).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let commit = SampleTurn::beginning("i", 1).into_commit(&turn.lock_token, None, Stamp(1));
    let commit = checking_in(commit, move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    h.commit_turn(&commit).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), usize::from(h.keeps_instances_warm()));
}

async fn check_in_is_not_called_for_a_refused_commit(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let refused = |decided: SampleTurn, token: &str, base| {
        let counted = Arc::clone(&calls);
        checking_in(decided.into_commit(token, base, Stamp(12)), move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
    };
    expect_lock_lost(h.commit_turn(&refused(SampleTurn::of("i", 1), "no such token", None)).await);
    let duplicate = SampleTurn::of("i", 1).event(1, events::scheduled());
    assert!(h.commit_turn(&refused(duplicate, &turn.lock_token, None)).await.is_err());
    if h.keeps_instances_warm() {
        let moved = refused(SampleTurn::of("i", 1), &turn.lock_token, Some(Stamp(10)));
        assert!(h.commit_turn(&moved).await.is_err());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

async fn check_in_comes_before_the_next_turn_is_assigned(h: CaseHarness) {
    if !(h.keeps_instances_warm() && h.factory().fetch_waits()) {
        return;
    }
    let memory: Arc<KeptInstances> = Arc::default();
    h.send(start("i")).await;
    let turn = fetch_warm(&h, &memory).await;
    h.send(signal("i", "under lock")).await;
    let fetch = fetch_with(&h, &memory, secs(20));
    let mut next: PendingFetch<'_> = Box::pin(h.fetch_turn(&fetch));
    keeps_waiting(&mut next).await;
    let commit = SampleTurn::beginning("i", 1).into_commit(&turn.lock_token, None, Stamp(11));
    let keeper = Arc::clone(&memory);
    let commit = checking_in(commit, move || keeper.keep("i", 1, Stamp(11)));
    h.commit_turn(&commit).await.unwrap();
    let next = next.await.unwrap().expect("the message that waited");
    assert!(next.warm.is_some(), "the instance was back in memory when its next turn was assigned");
}

type PendingFetch<'a> = Pin<Box<dyn Future<Output = Result<Option<FetchedTurn>, ProviderError>> + Send + 'a>>;

async fn a_dropped_fetch_returns_the_lent_instance(h: CaseHarness) {
    if !(h.keeps_instances_warm() && h.factory().fetch_waits()) {
        return;
    }
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.commit_turn(&SampleTurn::beginning("i", 1).into_commit(&fetched.lock_token, None, Stamp(11)))
        .await
        .unwrap();
    let memory: Arc<KeptInstances> = Arc::default();
    memory.keep("i", 1, Stamp(11));
    let fetch = fetch_with(&h, &memory, secs(40));
    let mut dropped: PendingFetch<'_> = Box::pin(h.fetch_turn(&fetch));
    keeps_waiting(&mut dropped).await;
    h.send(signal("i", "go")).await;
    drop(dropped);
    let turn = h.fetch_turn(&fetch).await.unwrap().expect("the message returned to the queue");
    assert_eq!(turn.attempt_count, 1);
    assert!(turn.warm.is_some(), "the lent instance is back, too");
}

async fn a_successor_begins_without_a_stamp_of_its_own(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    h.take_turn("i", SampleTurn::of("i", 1).continuing_as_new(2)).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    assert_ne!(turn.stamp, Some(Stamp(11)));
    h.commit_turn(&SampleTurn::beginning("i", 2).into_commit(&turn.lock_token, None, Stamp(12)))
        .await
        .unwrap();
    h.send(signal("i", "go")).await;
    let turn = fetch_warm(&h, &Arc::default()).await;
    assert_eq!(turn.item.execution_id, 2);
    if h.keeps_instances_warm() {
        assert_eq!(turn.stamp, Some(Stamp(12)));
    }
}

async fn a_fetch_with_a_view_waits_filters_and_counts_like_one_without(h: CaseHarness) {
    stamped(&h, "i", Stamp(11)).await;
    let nothing = everturn_provider::DispatcherCapabilityFilter { supported_engine_versions: Vec::new() };
    h.turn("i", SampleTurn::of("i", 1).pinned(semver::Version::new(1, 0, 0))).await;
    h.send(signal("i", "go")).await;
    let memory: Arc<KeptInstances> = Arc::default();
    let fetch = fetch_with(&h, &memory, Duration::ZERO);
    assert!(h.fetch_turn(&fetch.clone().with_filter(nothing)).await.unwrap().is_none());
    assert!(memory.asked().is_empty());
    for attempt in 1..=3 {
        let turn = fetch_warm(&h, &memory).await;
        assert_eq!(turn.attempt_count, attempt);
        assert!(h.fetch_turn(&fetch).await.unwrap().is_none());
        h.release_turn(&turn.lock_token, None, false).await.unwrap();
    }
}

async fn every_instance_of_a_batch_is_warm_or_has_its_history(h: CaseHarness) {
    let memory: Arc<KeptInstances> = Arc::default();
    for (instance, stamp) in [("kept", Stamp(1)), ("stale", Stamp(2)), ("absent", Stamp(3))] {
        stamped(&h, instance, stamp).await;
        let fetched = h.fetched_turn().await;
        let draft = SampleTurn::of(instance, 1).event(2, events::scheduled());
        h.commit_turn(&draft.into_commit(&fetched.lock_token, None, stamp)).await.unwrap();
    }
    for instance in ["kept", "stale", "absent"] {
        h.send(signal(instance, "go")).await;
    }
    memory.keep("kept", 1, Stamp(1));
    memory.keep("stale", 1, Stamp(77));
    let fetch = fetch_with(&h, &memory, Duration::ZERO).with_turns_max(3);
    let mut turns = Vec::new();
    while turns.len() < 3 {
        let batch = h.fetch_turns(&fetch).await.unwrap();
        assert!(!batch.is_empty(), "three instances have messages");
        turns.extend(batch);
    }
    for turn in turns {
        let instance = turn.item.instance.as_str();
        let is_warm = h.keeps_instances_warm() && instance == "kept";
        assert_eq!((turn.warm.is_some(), turn.item.history.len()), (is_warm, if is_warm { 0 } else { 2 }));
        h.commit_turn(&SampleTurn::of(instance, 1).into_commit(&turn.lock_token, turn.stamp, Stamp(9)))
            .await
            .unwrap();
    }
}
