//! Servers, connections and processes that fail, with the server's own clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_core::{Event, EventKind, ExecutionStatus, WorkItem};
use everturn_postgres::{PostgresError, PostgresOptions, PostgresProvider};
use everturn_provider::store::{
    HandlerKey, HandlerView, Store, Submission, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};
use everturn_test_server::{Durability, TestServer, shared_url};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use crate::conformance::new_schema;
use crate::proxy::{Proxy, server_host, url_of};

const LOCK: Duration = Duration::from_secs(30);
/// The time-out of calls in these tests.
const CALL: Duration = Duration::from_secs(1);
/// Longer than a call with that time-out takes, on a busy machine.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Longer than anything takes that a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A database that is reached through proxies.
struct Database {
    schema: String,
}

impl Database {
    fn new() -> Self {
        Self { schema: new_schema() }
    }

    fn options(&self) -> PostgresOptions {
        PostgresOptions {
            schema: self.schema.clone(),
            call_timeout: CALL,
            readers_max: 1,
            ..PostgresOptions::default()
        }
    }

    async fn open(&self) -> PostgresProvider {
        self.open_at(shared_url()).await.unwrap()
    }

    async fn open_at(&self, url: &str) -> Result<PostgresProvider, PostgresError> {
        PostgresProvider::connect(url, self.options()).await
    }

    async fn open_by(&self, proxy: &Proxy) -> PostgresProvider {
        self.open_at(&proxy.url()).await.unwrap()
    }

    /// A connection beside those of the provider, in the schema.
    async fn sql(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(shared_url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = {}", self.schema)).await.unwrap();
        client
    }

    /// Waits until the server has committed the end of an instance.
    async fn until_committed(&self, instance: &str) {
        let (sql, began) = (self.sql().await, Instant::now());
        let ended = "SELECT count(*) FROM everturn_instances WHERE instance_id = $1 AND status = 'Completed'";
        while sql.query_one(ended, &[&instance]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(began.elapsed() < WAIT_MAX, "{instance} has not ended");
        }
    }
}

fn start(instance: &str) -> WorkItem {
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

fn activity(instance: &str) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id: 2,
        name: "Charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    }
}

async fn submit(store: &dyn Store, instance: &str) -> Result<(), ProviderError> {
    store.submit(&Submission::of(start(instance))).await.map(drop)
}

/// Submits until it works.
async fn submit_in_the_end(store: &dyn Store, instance: &str) {
    let began = Instant::now();
    while let Err(error) = submit(store, instance).await {
        assert!(error.is_retryable() && began.elapsed() < WAIT_MAX, "{error}");
    }
}

fn one_look() -> WorkFetch {
    WorkFetch::new(LOCK, Duration::ZERO)
}

/// The lock token of the only instance that is ready, and its id.
async fn fetched(store: &dyn Store) -> (String, String) {
    let turns = store.fetch_turns(&TurnFetch::new(LOCK, WAIT_MAX)).await.unwrap();
    let turn = turns.into_iter().next().expect("an instance");
    (turn.lock_token, turn.item.instance)
}

/// A turn that starts an instance and ends it: clients see that.
fn whole_turn(instance: &str, lock_token: String) -> TurnCommit {
    let started = EventKind::OrchestrationStarted {
        name: "Order".to_owned(),
        version: "1.0.0".to_owned(),
        input: String::new(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let mut turn = TurnCommit::new(lock_token, 1);
    turn.history_delta = vec![Event::stamped(1, instance, 1, None, 1, started)];
    turn.update.orchestration_name = Some("Order".to_owned());
    turn.update.orchestration_version = Some("1.0.0".to_owned());
    turn.update.status = Some(ExecutionStatus::Completed);
    turn
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(CALL_MAX, future).await.unwrap_or_else(|_| panic!("{what} did not end in time"))
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_end_while_the_connections_forward_nothing() {
    let (database, proxy) = (Database::new(), Proxy::open().await);
    let provider = database.open_by(&proxy).await;
    submit(&provider, "i").await.unwrap();
    proxy.hold();
    let error = in_time("submit", submit(&provider, "j")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let error = in_time("fetch_work", provider.fetch_work(&one_look())).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let error = in_time("read_status", provider.read_status("i")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    proxy.cut();
    submit_in_the_end(&provider, "k").await;
    let fetched = provider.fetch_turns(&TurnFetch::new(LOCK, WAIT_MAX).with_turns_max(3)).await.unwrap();
    assert!(!fetched.is_empty(), "the fetch lane works again");
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_while_the_connections_forward_nothing() {
    let (database, proxy) = (Database::new(), Proxy::open().await);
    let provider = Arc::new(database.open_by(&proxy).await);
    proxy.hold();
    let caller = Arc::clone(&provider);
    let call = tokio::spawn(async move { submit(&*caller, "i").await });
    in_time("close", provider.close()).await;
    let called = in_time("submit", call).await.unwrap();
    assert!(called.is_err(), "it has an answer");
    assert!(!submit(&*provider, "j").await.unwrap_err().is_retryable(), "the provider is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_accepts_and_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let connecting = Database::new();
    let opened = timeout(WAIT_MAX, connecting.open_at(&url_of(&address.to_string()))).await;
    let error = opened.expect("an answer in time").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_host_takes_over_from_one_that_says_nothing() {
    let (database, first) = (Database::new(), Proxy::open().await);
    let url = url_of(&format!("{},{}", first.host(), server_host()));
    let provider = database.open_at(&url).await.unwrap();
    submit(&provider, "i").await.unwrap();
    first.hold();
    submit_in_the_end(&provider, "j").await;
    let fetch = TurnFetch::new(LOCK, WAIT_MAX).with_turns_max(2);
    assert!(
        !provider.fetch_turns(&fetch).await.unwrap().is_empty(),
        "the fetch lane has reached the second host"
    );
    // What is said by another process arrives.
    let (other, watched) = (database.open().await, &mut provider.watch("k"));
    submit(&other, "k").await.unwrap();
    let (token, _) = fetched(&other).await;
    other.commit_turn(&whole_turn("k", token)).await.unwrap();
    assert!(watched.changed(CALL_MAX).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_wakes_the_clients() {
    let (database, proxy) = (Database::new(), Proxy::open().await);
    let provider = Arc::new(database.open_by(&proxy).await);
    submit(&*provider, "i").await.unwrap();
    let (token, instance) = fetched(&*provider).await;
    let mut watch = provider.watch("i");
    proxy.hold_after_commit();
    let caller = Arc::clone(&provider);
    let call = tokio::spawn(async move { caller.commit_turn(&whole_turn(&instance, token)).await });
    proxy.until_held().await;
    database.until_committed("i").await;
    // The process learns of the commit when it asks again.
    proxy.cut();
    in_time("commit_turn", call).await.unwrap().unwrap();
    assert!(watch.changed(CALL_MAX).await);
    assert!(provider.read_status("i").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_hears_of_a_commit_whose_process_said_nothing_of_it() {
    let (database, proxy) = (Database::new(), Proxy::open().await);
    let (client, worker) = (database.open().await, Arc::new(database.open_by(&proxy).await));
    submit(&client, "i").await.unwrap();
    let (token, instance) = fetched(&*worker).await;
    let mut watch = client.watch("i");
    proxy.hold_after_commit();
    let caller = Arc::clone(&worker);
    let call = tokio::spawn(async move { caller.commit_turn(&whole_turn(&instance, token)).await });
    proxy.until_held().await;
    proxy.hold();
    database.until_committed("i").await;
    assert!(watch.changed(CALL_MAX).await, "the client looks without a notification");
    assert!(in_time("commit_turn", call).await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_another_transaction_holds_fails_only_its_own_call() {
    let database = Database::new();
    let options = PostgresOptions { call_timeout: WAIT_MAX / 2, ..database.options() };
    let provider = Arc::new(PostgresProvider::connect(shared_url(), options).await.unwrap());
    submit(&*provider, "held").await.unwrap();
    let sql = database.sql().await;
    sql.batch_execute("BEGIN; SELECT * FROM everturn_instances FOR UPDATE").await.unwrap();
    let calls = (0..40).map(|nth| {
        let (provider, instance) =
            (Arc::clone(&provider), if nth == 0 { "held".to_owned() } else { format!("free-{nth}") });
        tokio::spawn(async move { submit(&*provider, &instance).await })
    });
    let mut calls: Vec<_> = calls.collect();
    for free in calls.split_off(1) {
        free.await.unwrap().unwrap();
    }
    submit(&*provider, "later").await.unwrap();
    let held = calls.remove(0);
    assert!(!held.is_finished(), "the others have not waited for it");
    sql.batch_execute("ROLLBACK").await.unwrap();
    held.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_missing_for_a_while_fails_no_call_for_good() {
    let database = Database::new();
    let options = PostgresOptions { call_timeout: WAIT_MAX, ..database.options() };
    let provider = Arc::new(PostgresProvider::connect(shared_url(), options).await.unwrap());
    submit(&*provider, "i").await.unwrap();
    let sql = database.sql().await;
    sql.batch_execute("ALTER TABLE everturn_orchestrator_queue RENAME TO missing").await.unwrap();
    let caller = Arc::clone(&provider);
    let mut call = tokio::spawn(async move { submit(&*caller, "j").await });
    let fetch = TurnFetch::new(LOCK, WAIT_MAX).with_turns_max(2);
    let caller = Arc::clone(&provider);
    let fetched = tokio::spawn(async move { caller.fetch_turns(&fetch).await });
    assert!(timeout(CALL, &mut call).await.is_err(), "it is tried again");
    sql.batch_execute("ALTER TABLE missing RENAME TO everturn_orchestrator_queue").await.unwrap();
    call.await.unwrap().unwrap();
    assert!(!fetched.await.unwrap().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_the_server_cannot_hold_fail_only_their_own_calls() {
    let provider = Database::new().open().await;
    let session = SessionFetchConfig { owner_id: "a\0b".to_owned(), lock_timeout: LOCK };
    let fetches = [one_look().with_tags(TagFilter::tags(["a\0b"])), one_look().with_session(Some(session))];
    for fetch in fetches {
        let error = provider.fetch_work(&fetch).await.map(|_| ()).unwrap_err();
        assert!(!error.is_retryable() && error.message.contains("NUL"), "{error}");
    }
    submit(&provider, "i").await.unwrap();
    let (token, _) = fetched(&provider).await;
    let handler = HandlerKey::orchestration("Or\0der", None);
    let abandon = TurnAbandon::new(token).with_delay(Some(LOCK)).with_missing_handler(Some(handler));
    let error = provider.abandon_turn(&abandon).await.unwrap_err();
    assert!(!error.is_retryable() && error.message.contains("NUL"), "{error}");
    assert!(provider.fetch_work(&one_look()).await.unwrap().is_empty(), "others are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_a_check_in_ends_no_lane() {
    let provider = Database::new().open().await;
    submit(&provider, "i").await.unwrap();
    let (token, instance) = fetched(&provider).await;
    let mut turn = whole_turn(&instance, token);
    turn.check_in = Some(Arc::new(|| panic!("a check-in that panics")));
    provider.commit_turn(&turn).await.unwrap();
    submit(&provider, "j").await.unwrap();
}

#[derive(Debug)]
struct PanickingHandlers;

impl HandlerView for PanickingHandlers {
    fn has(&self, _: &HandlerKey) -> bool {
        panic!("handlers that panic")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_a_handler_lookup_ends_no_lane() {
    let provider = Database::new().open().await;
    submit(&provider, "i").await.unwrap();
    let (token, _) = fetched(&provider).await;
    let handler = HandlerKey::orchestration("Order", None);
    let abandon = TurnAbandon::new(token).with_delay(Some(LOCK)).with_missing_handler(Some(handler));
    provider.abandon_turn(&abandon).await.unwrap();
    let fetch = TurnFetch::new(LOCK, WAIT_MAX).with_handlers(Arc::new(PanickingHandlers));
    let error = in_time("fetch_turns", provider.fetch_turns(&fetch)).await.map(|_| ()).unwrap_err();
    assert!(error.message.contains("panicked"), "{error}");
    assert_eq!(fetched(&provider).await.1, "i", "a fetch that names no handlers is served");
}

#[tokio::test(flavor = "multi_thread")]
async fn activities_that_no_process_here_takes_reach_another_at_once() {
    let database = Database::new();
    let (other, provider) = (Arc::new(database.open().await), database.open().await);
    let fetch = WorkFetch::new(LOCK, WAIT_MAX);
    let waiting = Arc::clone(&other);
    let fetched = tokio::spawn(async move { waiting.fetch_work(&fetch).await });
    provider.raw_writes().unwrap().enqueue_work(activity("i")).await.unwrap();
    assert_eq!(in_time("fetch_work", fetched).await.unwrap().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_waits_for_another_one() {
    let database = Database::new();
    let (client, connection) = tokio_postgres::connect(shared_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('everturn ' || $1, 0))";
    client.batch_execute("BEGIN").await.unwrap();
    client.query(lock, &[&database.schema]).await.unwrap();
    let opening = tokio::spawn(async move { database.open().await });
    // Longer than a batch waits for a lock.
    let waited = Instant::now();
    while waited.elapsed() < Duration::from_secs(3) {
        client.query_one("SELECT pg_sleep(0.1)", &[]).await.unwrap();
        assert!(!opening.is_finished(), "it waits");
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    timeout(WAIT_MAX, opening).await.expect("a provider in time").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_isolation_of_the_url_or_the_role_does_not_count() {
    let database = Database::new();
    let url = format!("{}?options=-c%20default_transaction_isolation%3Dserializable", shared_url());
    let (one, other) = (database.open_at(&url).await.unwrap(), database.open_at(&url).await.unwrap());
    let session = SessionFetchConfig { owner_id: "owner".to_owned(), lock_timeout: LOCK };
    let fetch = one_look().with_session(Some(session)).with_work_max(1);
    for nth in 0..30 {
        one.raw_writes().unwrap().enqueue_work(activity(&format!("i-{nth}"))).await.unwrap();
    }
    let mut taken = 0;
    for _ in 0..15 {
        let (by_one, by_other) = tokio::join!(one.fetch_work(&fetch), other.fetch_work(&fetch));
        taken += by_one.unwrap().len() + by_other.unwrap().len();
    }
    assert_eq!(taken, 30, "no fetch failed because of the other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_and_starts_again_loses_nothing() {
    let server = TestServer::start(&std::env::temp_dir(), Durability::None).unwrap();
    let options = PostgresOptions { call_timeout: WAIT_MAX, ..PostgresOptions::default() };
    let provider = Arc::new(PostgresProvider::connect(&server.url("postgres"), options).await.unwrap());
    submit(&*provider, "before").await.unwrap();
    server.crash().unwrap();
    let caller = Arc::clone(&provider);
    let call = tokio::spawn(async move { submit(&*caller, "meanwhile").await });
    let caller = Arc::clone(&provider);
    let fetch = TurnFetch::new(LOCK, WAIT_MAX).with_turns_max(2);
    let fetched = tokio::spawn(async move { caller.fetch_turns(&fetch).await });
    server.start_again().unwrap();
    call.await.unwrap().unwrap();
    assert!(!fetched.await.unwrap().unwrap().is_empty());
    provider.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_holds_up_no_call() {
    let server = TestServer::start(&std::env::temp_dir(), Durability::None).unwrap();
    let options = PostgresOptions { call_timeout: CALL, ..PostgresOptions::default() };
    let provider = PostgresProvider::connect(&server.url("postgres"), options).await.unwrap();
    server.pause().unwrap();
    assert!(in_time("submit", submit(&provider, "i")).await.unwrap_err().is_retryable());
    assert!(in_time("fetch_work", provider.fetch_work(&one_look())).await.unwrap_err().is_retryable());
    server.resume().unwrap();
    submit_in_the_end(&provider, "j").await;
    in_time("close", provider.close()).await;
}
