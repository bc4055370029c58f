//! What the victim process does.

pub mod fill;
pub mod hold;
pub mod relay;
pub mod watch;
pub mod work;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use everturn::RuntimeOptions;
use everturn::runtime::Runtime;
use everturn_proof::is_stress_run;
use everturn_sqlite::{SqliteOptions, SqliteProvider};

use crate::activities::{activities, tag_filter};
use crate::instance_script::orchestrations;
use crate::observations::{Observation, ObservationLog};
use crate::observed_store::ObservedStore;

/// The lock timeout of victims.
pub const LOCK: Duration = Duration::from_millis(400);

/// Returns when the test sends a line, or has ended.
async fn wait_for_go() {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    // Without a test there is nothing to wait for.
    drop(line.await);
}

/// Prints a line, and flushes it before it returns.
pub fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // Fails when the test has ended: then no test reads it.
    drop(out.write_all(format!("{line}\n").as_bytes()));
    drop(out.flush());
}

/// Prints an observation.
pub fn print_observation(fact: &Observation) {
    print_line(&serde_json::to_string(fact).unwrap());
}

async fn open(database: &str) -> Arc<SqliteProvider> {
    let usual = SqliteOptions::default();
    let batch_operations_max = if is_stress_run() { 1 } else { usual.batch_operations_max };
    let options = SqliteOptions { batch_operations_max, ..usual };
    Arc::new(SqliteProvider::new(&format!("sqlite:{database}"), Some(options)).await.unwrap())
}

/// Starts runtime number `share.0` of the `share.1` on this file.
async fn start(
    provider: &Arc<SqliteProvider>,
    log: &Arc<ObservationLog>,
    share: (usize, usize),
) -> Arc<Runtime> {
    let filter = tag_filter(share.0, share.1);
    let usual = RuntimeOptions::default();
    let lock = if is_stress_run() { LOCK / 2 } else { LOCK };
    let options = RuntimeOptions {
        orchestrator_lock_timeout: lock,
        worker_lock_timeout: lock,
        session_lock_timeout: lock,
        warm_instances_max: if is_stress_run() { 0 } else { usual.warm_instances_max },
        worker_tag_filter: filter.clone(),
        session_idle_timeout: Duration::from_secs(3_600),
        ..usual
    };
    let store = Arc::new(ObservedStore::new(provider.clone(), Arc::clone(log)));
    Runtime::start_with_options(store, activities(log, filter), orchestrations(), options).await
}
