//! A schema of its own for a test that calls verbs, and the items that it sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_core::{Event, EventKind, WorkItem};
use everturn_postgres::{PostgresOptions, PostgresProvider, testing};
use everturn_provider::store::{
    EndedWork, FetchedWork, NextWork, Stamp, StepAnswer, StepCommit, Store as _, Submission, TurnCommit,
    TurnFetch, WorkFetch,
};
use everturn_provider::{Clock, ManualClock};
use everturn_test_server::shared_url;
use tokio_postgres::{Client, NoTls};

use crate::conformance::new_schema;

pub(crate) const LOCK: Duration = Duration::from_secs(30);
/// Longer than anything takes that a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) struct TestSchema {
    pub(crate) name: String,
}

impl TestSchema {
    pub(crate) fn new() -> Self {
        Self { name: new_schema() }
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions { schema: self.name.clone(), readers_max: 2, ..PostgresOptions::default() }
    }

    /// A provider that goes by the server's time.
    pub(crate) async fn open(&self) -> PostgresProvider {
        PostgresProvider::connect(shared_url(), self.options()).await.unwrap()
    }

    pub(crate) async fn open_with_clock_of_process(&self, clock: Arc<dyn Clock>) -> PostgresProvider {
        testing::open_with_clock_of_process(shared_url(), self.options(), clock).await.unwrap()
    }

    /// A provider whose time is moved by a test.
    pub(crate) async fn open_at(&self, clock: Arc<ManualClock>) -> PostgresProvider {
        testing::open(shared_url(), self.options(), clock).await.unwrap()
    }

    /// A connection beside those of the provider.
    pub(crate) async fn sql(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(shared_url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = {}", self.name)).await.unwrap();
        client
    }

    /// Waits until a statement of the provider waits for a lock that another transaction holds.
    pub(crate) async fn until_blocked(&self) {
        let client = self.sql().await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
        let began = Instant::now();
        while client.query_one(waits, &[&format!("%{}%", self.name)]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(began.elapsed() < WAIT_MAX, "no statement waits for a lock");
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "Order".to_owned(),
        input: String::new(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

pub(crate) fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.to_owned(), name: "go".to_owned(), data: String::new() }
}

pub(crate) fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "Charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    }
}

pub(crate) fn activity_completed(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.to_owned(), execution_id: 1, id, result: String::new() }
}

pub(crate) fn started(instance: &str) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Order".to_owned(),
        version: "1.0.0".to_owned(),
        input: String::new(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::stamped(1, instance, 1, None, 1, kind)
}

/// The first turn of a fetched instance, with these activities; it leaves stamp 1.
pub(crate) fn first_turn(instance: &str, lock_token: &str, activities: &[u64]) -> TurnCommit {
    let mut turn = TurnCommit::new(lock_token, 1);
    turn.history_delta = vec![started(instance)];
    turn.worker_items = activities.iter().map(|id| activity(instance, *id).into()).collect();
    turn.update.orchestration_name = Some("Order".to_owned());
    turn.update.orchestration_version = Some("1.0.0".to_owned());
    turn.stamp = Some(Stamp(1));
    turn
}

/// Starts an instance and commits its first turn.
pub(crate) async fn begin(provider: &PostgresProvider, instance: &str, activities: &[u64]) {
    provider.submit(&Submission::of(start(instance))).await.unwrap();
    let turn = provider.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap().remove(0);
    assert_eq!(turn.item.instance, instance);
    provider.commit_turn(&first_turn(instance, &turn.lock_token, activities)).await.unwrap();
}

/// The next activity, if one is ready.
pub(crate) async fn fetch_work(provider: &PostgresProvider) -> Option<FetchedWork> {
    provider.fetch_work(&WorkFetch::new(LOCK, Duration::ZERO)).await.unwrap().pop()
}

/// A step from stamp 1 to stamp 2 that ends this activity and schedules another one, which its worker takes.
pub(crate) fn step(work: &FetchedWork, next_id: u64, random: u128) -> StepCommit {
    let instance = work.item.instance();
    let next = NextWork::new(Arc::new(WorkFetch::new(LOCK, Duration::ZERO)), random);
    let mut turn = TurnCommit::new("", 1);
    let kind = EventKind::ExternalEvent { name: "done".to_owned(), data: String::new() };
    turn.history_delta = vec![Event::stamped(3, instance, 1, None, 1, kind)];
    turn.worker_items = vec![activity(instance, next_id).into()];
    (turn.base, turn.stamp) = (Some(Stamp(1)), Some(Stamp(2)));
    StepCommit::new(instance, vec![EndedWork::new(&work.lock_token, Some(next))], turn)
}

/// What the worker of a step goes on with.
pub(crate) fn next_of(answer: StepAnswer) -> Option<FetchedWork> {
    match answer {
        StepAnswer::Committed(mut next) => next.pop().flatten(),
        StepAnswer::Declined(reason) => panic!("the step was declined: {reason:?}"),
    }
}
