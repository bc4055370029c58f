//! A provider under test, with its store, its clock and its factory.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::Feature;
use everturn_provider::{Clock, ManualClock, Provider, ProviderError, store_of};

use crate::factory::{ProviderFactory, WorkerRowDamage};
use crate::items;
use crate::sample_turn::SampleTurn;
pub(crate) use crate::store_handle::{ActivityId, LOCK, PAST_LOCK, StoreHandle, custom_status, session};

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A provider under test. Dereferences to its store: the provider's own, or the adapter around its plain verbs.
pub struct CaseHarness {
    factory: Box<dyn ProviderFactory>,
    provider: Arc<dyn Provider>,
    store: StoreHandle,
    clock: Arc<ManualClock>,
}

impl Deref for CaseHarness {
    type Target = StoreHandle;

    fn deref(&self) -> &Self::Target {
        &self.store
    }
}

impl CaseHarness {
    pub(crate) async fn open(factory: Box<dyn ProviderFactory>) -> Self {
        let provider = factory.open().await;
        Self::of(factory, provider)
    }

    /// A provider whose only clock is this one, which is tokio's; `None` if the factory opens none.
    pub(crate) async fn open_on_tokio_time(
        factory: Box<dyn ProviderFactory>,
        clock: Arc<dyn Clock>,
    ) -> Option<Self> {
        let provider = factory.open_on_tokio_time(clock).await?;
        Some(Self::of(factory, provider))
    }

    fn of(factory: Box<dyn ProviderFactory>, provider: Arc<dyn Provider>) -> Self {
        let store = StoreHandle::new(store_of(Arc::clone(&provider)));
        let clock = factory.clock();
        Self { factory, provider, store, clock }
    }

    /// The same store, opened again; `None` if it did not outlive its provider.
    pub(crate) async fn reopened(self) -> Option<Self> {
        let Self { factory, provider, store, clock: _ } = self;
        drop(store);
        let provider = factory.reopen(provider).await?;
        Some(Self::of(factory, provider))
    }

    /// The provider, for its plain verbs.
    pub(crate) fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    /// The provider, for a caller that owns it.
    pub(crate) fn provider_to_own(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    /// The store of the provider, for a task to own.
    pub(crate) fn store(&self) -> StoreHandle {
        self.store.clone()
    }

    pub(crate) fn factory(&self) -> &dyn ProviderFactory {
        &*self.factory
    }

    /// Whether a runtime can keep instances in memory.
    pub(crate) fn keeps_instances_warm(&self) -> bool {
        self.store.supports(Feature::WarmInstances)
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Sets the wall clock back, as an administrator would.
    pub(crate) fn set_clock_back(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).expect("a short time");
        self.clock.set_wall_ms(self.clock.wall_ms() - by_ms);
    }

    pub(crate) async fn damage_event(&self, instance: &str, execution_id: u64, event_id: u64) {
        self.factory.damage_event(&self.provider, instance, execution_id, event_id).await;
    }

    /// Waits until the outcome of every dropped call is decided.
    pub(crate) async fn settle(&self) {
        self.factory.settle(&self.provider).await;
    }

    /// How often each message that waits for this instance was fetched; `None` if that cannot be seen.
    pub(crate) async fn message_attempts(&self, instance: &str) -> Option<Vec<u32>> {
        self.factory.message_attempts(&self.provider, instance).await
    }

    pub(crate) async fn damage_orchestrator_rows(&self, instance: &str) -> bool {
        self.factory.damage_orchestrator_rows(&self.provider, instance).await
    }

    pub(crate) async fn damage_worker_rows(&self, instance: &str, damage: WorkerRowDamage) -> bool {
        self.factory.damage_worker_rows(&self.provider, instance, damage).await
    }

    /// Makes a running instance: its first turn is committed.
    pub(crate) async fn create(&self, instance: &str) {
        self.begin(instance, SampleTurn::beginning(instance, 1)).await;
    }

    /// Makes an instance with this first turn.
    pub(crate) async fn begin(&self, instance: &str, turn: SampleTurn) {
        self.send(items::start(instance)).await;
        self.take_turn(instance, turn).await;
    }

    /// Makes a running child.
    pub(crate) async fn create_child(&self, instance: &str, parent: &str) {
        self.send(items::start_child(instance, parent)).await;
        self.take_turn(instance, SampleTurn::beginning(instance, 1).parent(parent)).await;
    }

    /// Makes an instance that completed in its first turn, with two events.
    pub(crate) async fn create_completed(&self, instance: &str) {
        self.begin(instance, SampleTurn::beginning(instance, 1).completing(2, "done")).await;
    }

    /// Makes a completed child, with two events.
    pub(crate) async fn create_completed_child(&self, instance: &str, parent: &str) {
        self.send(items::start_child(instance, parent)).await;
        let turn = SampleTurn::beginning(instance, 1).parent(parent).completing(2, "done");
        self.take_turn(instance, turn).await;
    }

    /// Makes an instance with so many executions of two events each; the last one is running and has one event.
    pub(crate) async fn create_with_executions(&self, instance: &str, executions: u64) {
        self.send(items::start(instance)).await;
        for execution_id in 1..executions {
            let turn = SampleTurn::beginning(instance, execution_id).continuing_as_new(2);
            self.take_turn(instance, turn).await;
        }
        self.take_turn(instance, SampleTurn::beginning(instance, executions)).await;
    }

    /// Sends a signal to the instance and commits the turn it causes.
    pub(crate) async fn turn(&self, instance: &str, turn: SampleTurn) {
        self.send(items::signal(instance, "go")).await;
        self.take_turn(instance, turn).await;
    }

    /// Commits a turn on the messages that wait; the instance must be the next one.
    pub(crate) async fn take_turn(&self, instance: &str, turn: SampleTurn) {
        let fetched = self.fetched_turn().await;
        assert_eq!(fetched.item.instance, instance, "the instance whose turn it is");
        turn.commit(self, &fetched.lock_token).await.unwrap();
    }
}

/// The error of a refused call.
pub(crate) fn expect_error<T: std::fmt::Debug>(answer: Result<T, ProviderError>) -> ProviderError {
    answer.expect_err("the call is refused")
}

/// The error of a call that does not succeed if it is repeated.
pub(crate) fn expect_permanent_error<T: std::fmt::Debug>(answer: Result<T, ProviderError>) -> ProviderError {
    let error = expect_error(answer);
    assert!(!error.is_retryable(), "the error is permanent: {error}");
    error
}

/// The error of a call whose lock is gone; its kind says so.
pub(crate) fn expect_lock_lost<T: std::fmt::Debug>(answer: Result<T, ProviderError>) -> ProviderError {
    let error = expect_permanent_error(answer);
    assert!(error.is_lock_lost(), "the error says that the lock is gone: {error:?}");
    error
}
