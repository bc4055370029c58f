//! The cases about wake-ups notice a store that wakes no parked fetch and looks every second instead.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_conformance::{CaseFuture, CaseHarness, ProviderFactory, run_in_paused_time};
use everturn_conformance::{turn_wake_ups, work_wake_ups};
use everturn_provider::store::{FetchedTurn, FetchedWork, Store, StoreLayer, TurnFetch, WorkFetch};
use everturn_provider::{Clock, ManualClock, MemoryProvider, Provider, ProviderError};
use tokio::time::{Instant, sleep};

/// How often the store looks.
const LOOK: Duration = Duration::from_secs(1);

/// A store whose parked fetches are woken by nothing.
struct UnwokenStore(Arc<MemoryProvider>);

impl StoreLayer for UnwokenStore {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let (mut look, until) = (fetch.clone(), Instant::now() + fetch.poll_timeout);
        look.poll_timeout = Duration::ZERO;
        loop {
            let turns = self.0.fetch_turns(&look).await?;
            if !turns.is_empty() || Instant::now() >= until {
                return Ok(turns);
            }
            sleep(LOOK).await;
        }
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let (mut look, until) = (fetch.clone(), Instant::now() + fetch.poll_timeout);
        look.poll_timeout = Duration::ZERO;
        loop {
            let work = self.0.fetch_work(&look).await?;
            if !work.is_empty() || Instant::now() >= until {
                return Ok(work);
            }
            sleep(LOOK).await;
        }
    }
}

/// Opens the store as it is, or unwoken.
struct UnwokenFactory {
    wakes: bool,
}

#[async_trait]
impl ProviderFactory for UnwokenFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::new(ManualClock::new(1_000))
    }

    async fn open(&self) -> Arc<dyn Provider> {
        Arc::new(MemoryProvider::new())
    }

    async fn open_on_tokio_time(&self, clock: Arc<dyn Clock>) -> Option<Arc<dyn Provider>> {
        let store = Arc::new(MemoryProvider::with_clock(clock));
        Some(if self.wakes { store } else { Arc::new(UnwokenStore(store)) })
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, _: &str, _: u64, _: u64) {}

    async fn message_attempts(&self, _: &Arc<dyn Provider>, _: &str) -> Option<Vec<u32>> {
        None
    }
}

fn notices(case: fn(CaseHarness) -> CaseFuture) {
    run_in_paused_time(UnwokenFactory { wakes: true }, case);
    let failed = catch_unwind(|| run_in_paused_time(UnwokenFactory { wakes: false }, case)).is_err();
    assert!(failed, "a store that wakes no fetch went unnoticed");
}

#[test]
fn a_turn_fetch_that_is_not_woken_is_noticed() {
    notices(turn_wake_ups::listed::a_signal);
    notices(turn_wake_ups::listed::an_abandoned_turn);
    notices(turn_wake_ups::listed::an_abandoned_turn_with_a_delay);
    notices(turn_wake_ups::listed::a_lock_that_expires);
}

#[test]
fn a_work_fetch_that_is_not_woken_is_noticed() {
    notices(work_wake_ups::listed::an_activity_that_is_queued);
    notices(work_wake_ups::listed::an_abandoned_activity);
    notices(work_wake_ups::listed::an_abandoned_activity_with_a_delay);
    notices(work_wake_ups::listed::a_lease_that_expires);
}
