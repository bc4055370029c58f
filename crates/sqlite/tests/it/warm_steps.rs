//! Instances that a runtime keeps in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_provider::store::{
    FetchedTurn, LentInstance, Stamp, Store as _, TurnCommit, TurnFetch, WarmView,
};
use everturn_provider::{Provider, TagFilter};
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, activity, completion, named, scheduled, start, started};

const PATIENCE: Duration = Duration::from_secs(20);

/// A runtime's memory: instance, execution and stamp.
#[derive(Default)]
struct Memory {
    held: Mutex<HashMap<String, (u64, Stamp)>>,
}

impl WarmView for Memory {
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance> {
        let held = self.held.lock().unwrap().remove(instance)?;
        (held == (execution_id, stamp)).then(|| LentInstance::new(held))
    }
}

fn commit(memory: &Arc<Memory>, turn: &FetchedTurn, event_id: u64, stamp: Stamp) -> TurnCommit {
    let instance = turn.item.instance.clone();
    let first = event_id == 2;
    let mut history_delta = vec![scheduled(&instance, event_id)];
    if first {
        history_delta.insert(0, started(&instance));
    }
    let mut commit = TurnCommit::new(turn.lock_token.clone(), 1);
    commit.history_delta = history_delta;
    commit.worker_items = vec![activity(&instance, event_id).into()];
    commit.update = if first { named().try_into().unwrap() } else { Default::default() };
    commit.base = turn.stamp;
    commit.stamp = Some(stamp);
    let memory = Arc::clone(memory);
    commit.check_in = Some(Arc::new(move || {
        memory.held.lock().unwrap().insert(instance.clone(), (1, stamp));
    }));
    commit
}

async fn fetch_warm(provider: &SqliteProvider, memory: &Arc<Memory>) -> FetchedTurn {
    let fetch = TurnFetch::new(LOCK, PATIENCE).with_warm(Arc::clone(memory) as Arc<dyn WarmView>);
    provider.fetch_turns(&fetch).await.unwrap().pop().expect("a turn")
}

async fn dispatch(provider: Arc<SqliteProvider>, memory: Arc<Memory>, steps: u64) -> u64 {
    let mut warm_turns = 0;
    for step in 0..steps {
        let turn = fetch_warm(&provider, &memory).await;
        warm_turns += u64::from(turn.warm.is_some());
        assert_eq!(turn.attempt_count, 1);
        if turn.warm.is_some() {
            assert!(turn.item.history.is_empty());
        }
        let commit = commit(&memory, &turn, step + 2, Stamp(step + 1));
        everturn_provider::store::Store::commit_turn(&*provider, &commit).await.unwrap();
    }
    warm_turns
}

async fn work(provider: Arc<SqliteProvider>, steps: u64) {
    for _ in 0..steps {
        let fetched = provider.fetch_work_item(LOCK, PATIENCE, None, &TagFilter::DefaultOnly).await.unwrap();
        let (item, token, _) = fetched.expect("an activity");
        let everturn_core::WorkItem::ActivityExecute { id, .. } = item else { panic!("{item:?}") };
        provider.ack_work_item(&token, Some(completion("a", id))).await.unwrap();
    }
}

/// Takes so many steps on a new store. Returns how many commits that cost.
async fn commits_of(steps: u64) -> u64 {
    let store = Store::new();
    let provider = Arc::new(store.open_with_batches().await);
    let memory = Arc::new(Memory::default());
    let before = provider.commit_count();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let dispatching = tokio::spawn(dispatch(Arc::clone(&provider), Arc::clone(&memory), steps));
    let working = tokio::spawn(work(Arc::clone(&provider), steps));
    assert_eq!(dispatching.await.unwrap(), steps - 1);
    working.await.unwrap();
    let commits = provider.commit_count() - before;
    let history = provider.read("a").await.unwrap();
    assert_eq!(history.len() as u64, steps + 1);
    commits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_turn_after_the_first_is_warm_and_history_is_complete() {
    const STEPS: u64 = 200;
    let commits = commits_of(STEPS).await;
    // Two on an idle machine. On a busy one the worker may fetch after the turn was committed: then its fetch is a third.
    assert!(commits <= 3 * STEPS + 10, "{commits} commits for {STEPS} steps");
}

#[tokio::test]
async fn an_instance_whose_history_moved_is_not_lent() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    let memory = Arc::new(Memory::default());
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    dispatch(Arc::clone(&provider), Arc::clone(&memory), 1).await;
    assert_eq!(memory.held.lock().unwrap().len(), 1);
    provider.append_with_execution("a", 1, vec![scheduled("a", 3)]).await.unwrap();
    provider.enqueue_for_orchestrator(crate::store::signal("a"), None).await.unwrap();
    let turn = fetch_warm(&provider, &memory).await;
    assert!(turn.warm.is_none(), "its history has moved");
    assert_eq!(turn.item.history.len(), 3);
}
