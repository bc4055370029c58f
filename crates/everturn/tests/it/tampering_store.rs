//! A store that forwards every verb after asking the test, which can make it fail.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use everturn::providers::store::{
    FetchedTurn, FetchedWork, NewMessage, Renewal, Renewed, Settlement, SettlementKind, Store, StoreLayer,
    StoreLimits, TurnCommit, TurnFetch, WorkFetch,
};
use everturn::providers::{Provider, ProviderError, WorkItem, store_of};
use tokio::sync::Semaphore;

type Tamper = Box<dyn FnMut(&'static str) -> Option<ProviderError> + Send>;

/// Operations are named like the verbs of [`Store`], except `settle_work/end`, `settle_work/large`, `settle_work/abandon`,
/// `renew/locks`, `renew/sessions`, and those of [`TamperingStore::commit_turn`].
pub(crate) struct TamperingStore {
    inner: Arc<dyn Store>,
    tamper: Mutex<Tamper>,
    /// Every operation that was called, in order.
    calls: Mutex<Vec<&'static str>>,
    /// Every operation that failed, in the test or in the store, in order.
    failures: Mutex<Vec<&'static str>>,
    /// Whether fetches ignore the capability filter.
    ignores_filter: bool,
    /// The limits, if they are not those of the wrapped store.
    limits: Option<StoreLimits>,
    /// An item that the worker queue returns first.
    stray: Mutex<Option<WorkItem>>,
    /// Every turn that was committed, in order.
    commits: Mutex<Vec<TurnCommit>>,
    /// Permits that commits need before they are answered.
    answers: Mutex<Option<Arc<Semaphore>>>,
    /// The owners whose leases were renewed, call by call.
    renewed_owners: Mutex<Vec<Vec<String>>>,
    /// How many activities were locked.
    work_locked: AtomicUsize,
}

/// A result of more bytes is large: storing it needs more room than a lock does.
const LARGE_RESULT: usize = 100 * 1024;

/// The lock token of an item that does not belong in the worker queue.
const STRAY_TOKEN: &str = "stray";

impl TamperingStore {
    pub(crate) fn new(
        inner: Arc<dyn Provider>,
        tamper: impl FnMut(&'static str) -> Option<ProviderError> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self::over(inner, tamper))
    }

    fn over(
        inner: Arc<dyn Provider>,
        tamper: impl FnMut(&'static str) -> Option<ProviderError> + Send + 'static,
    ) -> Self {
        Self {
            inner: store_of(inner),
            tamper: Mutex::new(Box::new(tamper)),
            calls: Mutex::default(),
            failures: Mutex::default(),
            ignores_filter: false,
            limits: None,
            stray: Mutex::default(),
            commits: Mutex::default(),
            answers: Mutex::default(),
            renewed_owners: Mutex::default(),
            work_locked: AtomicUsize::new(0),
        }
    }

    /// A store that ignores capability filters.
    pub(crate) fn ignoring_filters(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { ignores_filter: true, ..Self::over(inner, |_| None) })
    }

    /// A store with the default limits.
    pub(crate) fn with_default_limits(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { limits: Some(StoreLimits::default()), ..Self::over(inner, |_| None) })
    }

    /// A store whose worker queue holds an item that the engine never puts there.
    pub(crate) fn with_stray(inner: Arc<dyn Provider>, item: WorkItem) -> Arc<Self> {
        Arc::new(Self { stray: Mutex::new(Some(item)), ..Self::over(inner, |_| None) })
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

    /// How many activities were locked.
    pub(crate) fn work_locked(&self) -> usize {
        self.work_locked.load(Ordering::SeqCst)
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
        &*self.inner
    }

    async fn around<T: Send>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        self.ask(operation)?;
        self.noted(operation, call.await)
    }

    fn limits(&self) -> StoreLimits {
        self.limits.unwrap_or_else(|| self.inner.limits())
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let mut fetch = fetch.clone();
        if self.ignores_filter {
            fetch.filter = None;
        }
        self.around("fetch_turns", self.inner.fetch_turns(&fetch)).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        if let Some(item) = self.stray.lock().unwrap().take() {
            return Ok(vec![FetchedWork::new(item, STRAY_TOKEN.to_owned(), fetch.lock_timeout, 1)]);
        }
        let work = self.around("fetch_work", self.inner.fetch_work(fetch)).await?;
        self.work_locked.fetch_add(work.len(), Ordering::SeqCst);
        Ok(work)
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        let operation = match &settlement.kind {
            SettlementKind::End { completion } if settlement.lock_token == STRAY_TOKEN => {
                assert_eq!(*completion, None, "a stray item has no completion");
                return self.ask("settle_stray");
            }
            SettlementKind::Abandon { .. } => "settle_work/abandon",
            SettlementKind::End {
                completion: Some(NewMessage { item: WorkItem::ActivityCompleted { result, .. }, .. }),
            } if result.len() > LARGE_RESULT => "settle_work/large",
            _ => "settle_work/end",
        };
        self.around(operation, self.inner.settle_work(settlement)).await
    }

    /// An error of the test is the answer for every lock.
    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        if let Some(sessions) = &renewal.sessions {
            self.renewed_owners.lock().unwrap().push(sessions.owner_ids.clone());
            return self.around("renew/sessions", self.inner.renew(renewal)).await;
        }
        match self.ask("renew/locks") {
            Ok(()) => self.inner.renew(renewal).await,
            Err(error) => Ok(Renewed::new(vec![Err(error); renewal.locks.len()], 0)),
        }
    }

    /// The test is asked for `commit_turn`, for `check_in` (on an error the check-in does not run), and for
    /// `answer_commit` (on an error the turn is committed but the answer is that error).
    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.ask("commit_turn")?;
        let mut without_check_in = commit.clone();
        without_check_in.check_in = None;
        let checks_in = self.ask("check_in").is_ok();
        let answer = self.inner.commit_turn(if checks_in { commit } else { &without_check_in }).await;
        self.noted("commit_turn", answer)?;
        self.commits.lock().unwrap().push(without_check_in);
        let answers = self.answers.lock().unwrap().clone();
        if let Some(answers) = answers {
            answers.acquire().await.unwrap().forget();
        }
        self.ask("answer_commit")
    }
}
