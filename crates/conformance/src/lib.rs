//! The provider contract as tests, for any provider.
//!
//! Write a [`ProviderFactory`], then call [`provider_tests!`] in an integration test: every case becomes one named test
//! in a module named after the verb that it tests.
//!
//! ```
//! # mod mine {
//! use std::any::Any;
//! use std::sync::Arc;
//!
//! use everturn_conformance::ProviderFactory;
//! use everturn_provider::{ManualClock, MemoryProvider, Provider};
//!
//! struct MyFactory(Arc<ManualClock>);
//!
//! impl MyFactory {
//!     fn new() -> Self {
//!         Self(Arc::new(ManualClock::new(1_700_000_000_000)))
//!     }
//! }
//!
//! # use everturn_provider::testing::TableAccess as _;
//! fn mine(provider: &Arc<dyn Provider>) -> &MemoryProvider {
//!     let provider: &dyn Any = &**provider;
//!     provider.downcast_ref().expect("the factory opened it")
//! }
//!
//! #[async_trait::async_trait]
//! impl ProviderFactory for MyFactory {
//!     fn clock(&self) -> Arc<ManualClock> {
//!         Arc::clone(&self.0)
//!     }
//!
//!     async fn open(&self) -> Arc<dyn Provider> {
//!         Arc::new(MemoryProvider::with_clock(self.clock()))
//!     }
//!
//!     async fn damage_event(&self, provider: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
//!         assert!(mine(provider).damage_event(instance, execution_id, event_id));
//!     }
//!
//!     async fn message_attempts(&self, provider: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
//!         Some(mine(provider).message_attempts(instance))
//!     }
//! }
//!
//! everturn_conformance::provider_tests!(MyFactory::new());
//! everturn_conformance::model_test!(MyFactory::new(), cases: 256);
//! # }
//! ```
//!
//! The first makes the named cases; the second tries random sequences of calls beside the in-memory provider, see
//! [`model`].
//!
//! The cases call the verbs of [`Store`](everturn_provider::store::Store), as the engine does. A provider that
//! implements only the plain verbs is tested through the adapter; [`plain_verbs`] compares each plain verb with the verb
//! of the store.
//!
//! Time is a [`ManualClock`](everturn_provider::ManualClock) that the factory passes to its provider: locks expire and
//! delays end because a case moves the clock. No case sleeps. Only [`turn_wake_ups`] and [`work_wake_ups`]
//! go by tokio's time, which they pause.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a case reports by panicking, like every test"
)]

// Failed comparisons say what was expected of which expression.
#[macro_use]
extern crate everturn_proof;

#[macro_use]
mod cases;
mod admin_layer;
mod events;
mod factory;
mod harness;
mod image;
mod items;
mod paused_time;
mod plain_provider;
mod sample_turn;
mod store_handle;
mod waiting;

pub mod abandon_turn;
pub mod admin;
pub mod arrival_order;
pub mod as_store;
pub mod capability_filter;
pub mod commit_step;
pub mod commit_turn;
pub mod concurrency;
pub mod damage;
pub mod delete;
pub mod delete_instance_bulk;
pub mod dropped_futures;
pub mod dropped_writes;
pub mod executions;
pub mod fetch_turns;
pub mod fetch_work;
pub mod kv_executions;
pub mod locks;
pub mod long_poll;
pub mod missing_handlers;
pub mod model;
pub mod notes;
pub mod plain_verbs;
pub mod poison;
pub mod prune;
pub mod raw_writes;
pub mod read_custom_status;
pub mod read_execution;
pub mod read_kv_values;
pub mod read_orchestration_name;
pub mod read_stats;
pub mod read_status;
pub mod renew;
pub mod restart;
pub mod session_leases;
pub mod session_places;
pub mod sessions;
pub mod settle_work;
pub mod submit;
pub mod sweep;
pub mod tags;
pub mod tokens;
pub mod turn_wake_ups;
pub mod unknown_instance;
pub mod warm;
pub mod watch;
pub mod work_wake_ups;

pub use admin_layer::{AdminLayer, LayeredAdmin};
pub use factory::{ProviderFactory, WorkerRowDamage};
pub use harness::CaseHarness;
pub use plain_provider::PlainProvider;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any case needs, even on a busy machine: a case that takes longer hangs.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longer than any case waits in paused time, where waiting takes no time.
const PAUSED_CASE_TIMEOUT: Duration = Duration::from_secs(600);

/// Makes one test of every case of the contract, on the providers of the given [`ProviderFactory`].
///
/// The expression is evaluated once for every case: each has a store of its own.
#[macro_export]
macro_rules! provider_tests {
    ($factory:expr) => {
        $crate::abandon_turn_cases!($factory);
        $crate::admin_cases!($factory);
        $crate::arrival_order_cases!($factory);
        $crate::as_store_cases!($factory);
        $crate::capability_filter_cases!($factory);
        $crate::commit_step_cases!($factory);
        $crate::commit_turn_cases!($factory);
        $crate::concurrency_cases!($factory);
        $crate::damage_cases!($factory);
        $crate::delete_cases!($factory);
        $crate::delete_instance_bulk_cases!($factory);
        $crate::dropped_futures_cases!($factory);
        $crate::dropped_writes_cases!($factory);
        $crate::executions_cases!($factory);
        $crate::fetch_turns_cases!($factory);
        $crate::fetch_work_cases!($factory);
        $crate::kv_executions_cases!($factory);
        $crate::locks_cases!($factory);
        $crate::long_poll_cases!($factory);
        $crate::missing_handlers_cases!($factory);
        $crate::notes_cases!($factory);
        $crate::plain_verbs_cases!($factory);
        $crate::poison_cases!($factory);
        $crate::prune_cases!($factory);
        $crate::raw_writes_cases!($factory);
        $crate::read_custom_status_cases!($factory);
        $crate::read_execution_cases!($factory);
        $crate::read_kv_values_cases!($factory);
        $crate::read_orchestration_name_cases!($factory);
        $crate::read_stats_cases!($factory);
        $crate::read_status_cases!($factory);
        $crate::renew_cases!($factory);
        $crate::restart_cases!($factory);
        $crate::session_leases_cases!($factory);
        $crate::session_places_cases!($factory);
        $crate::sessions_cases!($factory);
        $crate::settle_work_cases!($factory);
        $crate::submit_cases!($factory);
        $crate::sweep_cases!($factory);
        $crate::tags_cases!($factory);
        $crate::tokens_cases!($factory);
        $crate::turn_wake_ups_cases!($factory);
        $crate::unknown_instance_cases!($factory);
        $crate::warm_cases!($factory);
        $crate::watch_cases!($factory);
        $crate::work_wake_ups_cases!($factory);
    };
}

/// A case under way.
#[doc(hidden)]
pub type CaseFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Runs one case on a store of its own. Called by what [`provider_tests!`] expands to.
#[doc(hidden)]
pub fn run(factory: impl ProviderFactory + 'static, case: fn(CaseHarness) -> CaseFuture) {
    run_boxed(Box::new(factory), case);
}

/// Compiled once, for all factories and cases: there are thousands of tests.
fn run_boxed(factory: Box<dyn ProviderFactory>, case: fn(CaseHarness) -> CaseFuture) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a tokio runtime").block_on(async {
        let harness = CaseHarness::open(factory).await;
        tokio::time::timeout(CASE_TIMEOUT, case(harness)).await.expect("the case ends");
    });
}

/// Runs one case in paused time, on a store that goes by it; does nothing if the factory opens no such store.
#[doc(hidden)]
pub fn run_in_paused_time(factory: impl ProviderFactory + 'static, case: fn(CaseHarness) -> CaseFuture) {
    run_boxed_in_paused_time(Box::new(factory), case);
}

fn run_boxed_in_paused_time(factory: Box<dyn ProviderFactory>, case: fn(CaseHarness) -> CaseFuture) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a tokio runtime").block_on(async {
        let clock = Arc::new(paused_time::PausedTime::begin());
        if let Some(harness) = CaseHarness::open_on_tokio_time(factory, clock).await {
            tokio::time::timeout(PAUSED_CASE_TIMEOUT, case(harness)).await.expect("the case ends");
        }
    });
}
