//! Calls that are committed together, in paused time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_core::OrchestrationStatus;
use everturn_provider::store::{
    FetchedTurn, LentInstance, LockKind, LockRenewal, Renewal, Stamp, Store, TurnFetch, WarmView,
};
use everturn_provider::{Provider, ProviderError, TagFilter};
use everturn_simulation::{BatchFate, BatchFates, FaultyStore, LostBatch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::tokio_clock::TokioClock;
use super::turns::{LOCK, activity, commit, create, empty_turn, fetch, first_turn, signal, start};

pub(crate) const WINDOW: Duration = Duration::from_millis(5);
pub(crate) const POLL: Duration = Duration::from_secs(30);

/// Outcomes that the test chose in advance. Every other batch is committed.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) to_come: Mutex<VecDeque<BatchFate>>,
    pub(crate) opened: AtomicUsize,
    pub(crate) lost: Mutex<Vec<LostBatch>>,
}

impl BatchFates for Fates {
    fn next(&self) -> BatchFate {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.to_come.lock().unwrap().pop_front().unwrap_or(BatchFate::Committed)
    }

    fn lost(&self, batch: &LostBatch) {
        self.lost.lock().unwrap().push(batch.clone());
    }
}

impl Fates {
    /// The batch that opens next is lost.
    pub(crate) fn lose_next(&self, fate: BatchFate) {
        self.to_come.lock().unwrap().push_back(fate);
    }
}

pub(crate) fn provider() -> (Arc<FaultyStore>, Arc<Fates>) {
    let fates = Arc::new(Fates::default());
    let clock = Arc::new(TokioClock::new());
    let store = FaultyStore::in_batches(clock, WINDOW, Arc::clone(&fates) as Arc<dyn BatchFates>);
    (Arc::new(store), fates)
}

/// Lends every instance at this stamp.
pub(crate) struct Everything(pub(crate) Stamp);

impl WarmView for Everything {
    fn lend(&self, _instance: &str, _execution_id: u64, stamp: Stamp) -> Option<LentInstance> {
        (stamp == self.0).then(|| LentInstance::new(()))
    }
}

/// Fetches with a cache that holds every instance at this stamp.
pub(crate) async fn fetch_warm(provider: &FaultyStore, stamp: Stamp) -> FetchedTurn {
    let fetch = TurnFetch::new(LOCK, POLL).with_warm(Arc::new(Everything(stamp)));
    Store::fetch_turns(provider, &fetch).await.unwrap().remove(0)
}

pub(crate) async fn status(store: &dyn Store, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
    store.read_status(instance).await
}

/// Spawns a call and lets it run until it waits.
pub(crate) async fn begin<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let task = tokio::spawn(call);
    yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_after_its_commit() {
    let (provider, _) = provider();
    let begun = Instant::now();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    assert_eq!(begun.elapsed(), WINDOW);
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_in_time_share_a_commit() {
    let (provider, fates) = provider();
    let begun = Instant::now();
    let mut calls = Vec::new();
    for n in 0..10 {
        let provider = Arc::clone(&provider);
        let call = async move { provider.enqueue_for_orchestrator(start(&n.to_string()), None).await };
        calls.push(begin(call).await);
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((begun.elapsed(), fates.opened.load(Ordering::SeqCst)), (WINDOW, 1));
}

#[tokio::test(start_paused = true)]
async fn errors_and_reads_without_an_open_batch_return_at_once() {
    let (provider, _) = provider();
    let begun = Instant::now();
    assert!(provider.ack_work_item("no such token", None).await.unwrap_err().is_lock_lost());
    assert!(provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().is_none());
    assert_eq!(status(&*provider, "a").await.unwrap(), OrchestrationStatus::NotFound);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_warm_turn_begins_before_the_commit_and_a_cold_one_after() {
    let (provider, fates) = provider();
    create(&*provider, "a", Stamp(5)).await;
    let opened = fates.opened.load(Ordering::SeqCst);
    let sender = Arc::clone(&provider);
    let send = begin(async move { sender.enqueue_for_orchestrator(signal("a"), None).await }).await;
    let begun = Instant::now();
    let turn = fetch_warm(&provider, Stamp(5)).await;
    assert!(turn.warm.is_some());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    commit(&*provider, &empty_turn(&turn.lock_token, Stamp(6))).await.unwrap();
    send.await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), WINDOW);
    assert_eq!(fates.opened.load(Ordering::SeqCst) - opened, 1, "the whole step is one commit");

    let sender = Arc::clone(&provider);
    begin(async move { sender.enqueue_for_orchestrator(signal("a"), None).await }).await;
    let begun = Instant::now();
    assert!(fetch_warm(&provider, Stamp(5)).await.warm.is_none());
    assert_eq!(begun.elapsed(), WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_one_turn_of_an_instance() {
    let (provider, _) = provider();
    create(&*provider, "a", Stamp(5)).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let turn = fetch_warm(&provider, Stamp(5)).await;
    let mut next_turn = empty_turn(&turn.lock_token, Stamp(6));
    next_turn.orchestrator_items = vec![signal("a").into()];
    let committing = Arc::clone(&provider);
    let begun = Instant::now();
    let committed = begin(async move { commit(&*committing, &next_turn).await }).await;
    assert!(provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().is_none());
    let next = fetch_warm(&provider, Stamp(6)).await;
    assert!(next.warm.is_some(), "its stamp is committed now");
    assert_eq!((begun.elapsed(), committed.is_finished()), (WINDOW, true));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_activity_is_offered_again_after_the_commit() {
    let (provider, _) = provider();
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    let work = provider.fetch_work_item(LOCK, POLL, None, &TagFilter::Any).await.unwrap().unwrap();
    let begun = Instant::now();
    let abandoning = Arc::clone(&provider);
    let abandon = begin(async move { abandoning.abandon_work_item(&work.1, None, false).await }).await;
    let again = provider.fetch_work_item(LOCK, POLL, None, &TagFilter::Any).await.unwrap().unwrap();
    assert_eq!((begun.elapsed(), abandon.is_finished(), again.2), (2 * WINDOW, true, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_read_is_committed() {
    let (provider, _) = provider();
    create(&*provider, "a", Stamp(5)).await;
    provider.enqueue_for_orchestrator(start("b"), None).await.unwrap();
    let token = fetch(&*provider).await;
    let mut watch = provider.watch("b");
    let committing = Arc::clone(&provider);
    let begun = Instant::now();
    begin(async move { commit(&*committing, &first_turn("b", &token, Stamp(6))).await }).await;
    let woken = begin(async move {
        watch.changed(POLL).await;
        Instant::now()
    })
    .await;
    assert!(!matches!(status(&*provider, "b").await.unwrap(), OrchestrationStatus::NotFound));
    assert_eq!(begun.elapsed(), WINDOW);
    assert_eq!(woken.await.unwrap() - begun, WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_committed_by_the_next_call() {
    let (provider, fates) = provider();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let token = fetch(&*provider).await;
    let checked_in = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&checked_in);
    let mut turn = first_turn("a", &token, Stamp(5));
    turn.check_in = Some(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let opened = fates.opened.load(Ordering::SeqCst);
    assert!(timeout(Duration::from_millis(1), commit(&*provider, &turn)).await.is_err());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(checked_in.load(Ordering::SeqCst), 0, "not committed while no call waits for it");
    assert_eq!(provider.read("a").await.unwrap().len(), 1);
    assert_eq!((checked_in.load(Ordering::SeqCst), fates.opened.load(Ordering::SeqCst)), (1, opened + 1));
}

#[tokio::test(start_paused = true)]
async fn a_parked_fetch_commits_the_batch_of_a_dropped_call() {
    let (provider, _) = provider();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let token = fetch(&*provider).await;
    let waiting = Arc::clone(&provider);
    let fetch = begin(async move { waiting.fetch_orchestration_item(LOCK, POLL, None).await }).await;
    let begun = Instant::now();
    let abandon = provider.abandon_orchestration_item(&token, None, true);
    assert!(timeout(Duration::from_millis(1), abandon).await.is_err());
    let (_, _, attempts) = fetch.await.unwrap().unwrap().unwrap();
    assert_eq!((attempts, begun.elapsed()), (1, 2 * WINDOW));
}

#[tokio::test(start_paused = true)]
async fn lock_timeouts_start_at_the_answer() {
    let (provider, _) = provider();
    let lock = Duration::from_millis(300);
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = provider.fetch_orchestration_item(lock, POLL, None).await.unwrap().unwrap();
    let answered = Instant::now();
    let waiting = Arc::clone(&provider);
    let next = begin(async move {
        waiting.fetch_orchestration_item(lock, POLL, None).await.unwrap().unwrap();
        Instant::now()
    })
    .await;
    sleep(Duration::from_millis(200)).await;
    let renewal = LockRenewal { kind: LockKind::Orchestration, token: token.clone(), extend_for: lock };
    let renewed_locks = provider.renew(&Renewal::of_locks(vec![renewal])).await.unwrap().locks;
    assert_eq!(renewed_locks, [Ok(())]);
    let renewed = Instant::now();
    assert_eq!(renewed - answered, Duration::from_millis(200) + WINDOW);
    assert_eq!(next.await.unwrap() - renewed, lock + WINDOW);
}

#[tokio::test(start_paused = true)]
async fn an_activity_deleted_in_the_batch_that_assigned_it_is_not_returned() {
    let (provider, _) = provider();
    create(&*provider, "a", Stamp(5)).await;
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    let waiting = Arc::clone(&provider);
    let fetch = begin(async move { waiting.fetch_work_item(LOCK, POLL, None, &TagFilter::Any).await }).await;
    let admin = provider.as_management_capability().unwrap();
    admin.delete_instances_atomic(&["a".to_owned()], true).await.unwrap();
    assert!(fetch.await.unwrap().unwrap().is_none());
}
