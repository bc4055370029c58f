//! A store that forwards every call after asking the test, which can make the call fail.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use everturn::providers::store::{
    FetchedTurn, FetchedWork, Renewal, Renewed, Settlement, SettlementKind, Store, StoreLayer, TurnCommit,
    TurnFetch, WorkFetch,
};
use everturn::providers::{Provider, ProviderError, WorkItem, store_of};
use tokio::sync::Semaphore;

type Tamper = Box<dyn FnMut(&'static str) -> Option<ProviderError> + Send>;

pub(crate) struct TamperingStore {
    inner: Arc<dyn Store>,
    tamper: Mutex<Tamper>,
    /// Every operation that was called, in order.
    calls: Mutex<Vec<&'static str>>,
    /// Every operation that failed, in the test or in the store, in order.
    failures: Mutex<Vec<&'static str>>,
    /// Whether fetches ignore the capability filter.
    ignores_filter: bool,
    /// An item that the worker queue returns first.
    stray: Mutex<Option<WorkItem>>,
    /// Every turn that was committed, in order.
    commits: Mutex<Vec<TurnCommit>>,
    /// Permits that commits need before they are answered.
    answers: Mutex<Option<Arc<Semaphore>>>,
    /// The owners whose leases were renewed, call by call.
    renewed_owners: Mutex<Vec<Vec<String>>>,
}

/// The lock token of an item that does not belong in the worker queue.
const STRAY_TOKEN: &str = "stray";

impl TamperingStore {
    pub(crate) fn new(
        inner: Arc<dyn Provider>,
        tamper: impl FnMut(&'static str) -> Option<ProviderError> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self::with(inner, tamper))
    }

    fn with(
        inner: Arc<dyn Provider>,
        tamper: impl FnMut(&'static str) -> Option<ProviderError> + Send + 'static,
    ) -> Self {
        Self {
            inner: store_of(inner),
            tamper: Mutex::new(Box::new(tamper)),
            calls: Mutex::default(),
            failures: Mutex::default(),
            ignores_filter: false,
            stray: Mutex::default(),
            commits: Mutex::default(),
            answers: Mutex::default(),
            renewed_owners: Mutex::default(),
        }
    }

    /// A store that ignores capability filters.
    pub(crate) fn ignoring_filters(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { ignores_filter: true, ..Self::with(inner, |_| None) })
    }

    /// A store whose worker queue holds an item that the engine never puts there.
    pub(crate) fn with_stray(inner: Arc<dyn Provider>, item: WorkItem) -> Arc<Self> {
        Arc::new(Self { stray: Mutex::new(Some(item)), ..Self::with(inner, |_| None) })
    }

    /// From now on a commit takes effect at once, but is answered only when a permit is added.
    pub(crate) fn withhold_answers(&self) -> Arc<Semaphore> {
        let answers = Arc::new(Semaphore::new(0));
        *self.answers.lock().unwrap() = Some(Arc::clone(&answers));
        answers
    }

    /// Every turn that was committed, in order.
    pub(crate) fn commits(&self) -> Vec<TurnCommit> {
        self.commits.lock().unwrap().clone()
    }

    /// The owners whose leases were renewed, call by call.
    pub(crate) fn renewed_owners(&self) -> Vec<Vec<String>> {
        self.renewed_owners.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, operation: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == operation).count()
    }

    /// Every operation that failed, in order.
    pub(crate) fn failures(&self) -> Vec<&'static str> {
        self.failures.lock().unwrap().clone()
    }

    fn ask(&self, operation: &'static str) -> Result<(), ProviderError> {
        self.calls.lock().unwrap().push(operation);
        let error = (*self.tamper.lock().unwrap_or_else(PoisonError::into_inner))(operation);
        self.noted(operation, error.map_or(Ok(()), Err))
    }

    fn noted<T>(
        &self,
        operation: &'static str,
        answer: Result<T, ProviderError>,
    ) -> Result<T, ProviderError> {
        if answer.is_err() {
            self.failures.lock().unwrap().push(operation);
        }
        answer
    }
}

impl StoreLayer for TamperingStore {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T: Send>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        self.ask(verb)?;
        self.noted(verb, call.await)
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let mut fetch = fetch.clone();
        fetch.filter = fetch.filter.filter(|_| !self.ignores_filter);
        StoreLayer::around(self, "fetch_turns", self.inner.fetch_turns(&fetch)).await
    }

    /// Beside `commit_turn` itself, the test is asked for `tell_of_commit`, without which the runtime is not told that
    /// the commit is durable, and for `answer_commit`, which fails a commit that took effect.
    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.ask("commit_turn")?;
        let mut untold = commit.clone();
        untold.check_in = None;
        let told = self.ask("tell_of_commit").is_ok();
        let answer = self.inner.commit_turn(if told { commit } else { &untold }).await;
        self.noted("commit_turn", answer)?;
        self.commits.lock().unwrap().push(untold);
        let answers = self.answers.lock().unwrap().clone();
        if let Some(answers) = answers {
            answers.acquire().await.unwrap().forget();
        }
        self.ask("answer_commit")
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        if let Some(item) = self.stray.lock().unwrap().take() {
            return Ok(vec![FetchedWork::new(item, STRAY_TOKEN.to_owned(), fetch.lock_timeout, 1)]);
        }
        StoreLayer::around(self, "fetch_work", self.inner.fetch_work(fetch)).await
    }

    /// The two kinds of settlement are operations of their own: `end_work` and `abandon_work`.
    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        if settlement.lock_token == STRAY_TOKEN {
            assert_eq!(*settlement, Settlement::end(STRAY_TOKEN, None), "no orchestration waits for it");
            return self.ask("end_stray");
        }
        let operation = match settlement.kind {
            SettlementKind::End { .. } => "end_work",
            _ => "abandon_work",
        };
        StoreLayer::around(self, operation, self.inner.settle_work(settlement)).await
    }

    /// Renewals of locks and of session leases are operations of their own: `renew_locks` and `renew_sessions`.
    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        let Some(sessions) = &renewal.sessions else {
            return StoreLayer::around(self, "renew_locks", self.inner.renew(renewal)).await;
        };
        self.renewed_owners.lock().unwrap().push(sessions.owner_ids.clone());
        StoreLayer::around(self, "renew_sessions", self.inner.renew(renewal)).await
    }
}
