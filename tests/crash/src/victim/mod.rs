//! What a victim does. It runs in a process of its own.

pub mod fill;
pub mod hold;
pub mod work;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use everturn::RuntimeOptions;
use everturn::runtime::Runtime;
use everturn_proof::is_stress_run;
use everturn_sqlite::{SqliteOptions, SqliteProvider};

use crate::ledger::{Fact, Ledger};
use crate::load::{activities, tag_filter};
use crate::plan::orchestrations;
use crate::watched_store::WatchedStore;

/// How long the locks of victims last.
pub const LOCK: Duration = Duration::from_millis(400);

/// Says a line: whole, and before anything else happens.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: then nobody minds.
    drop(out.write_all(format!("{line}\n").as_bytes()));
    drop(out.flush());
}

/// Says a fact.
pub fn tell(fact: &Fact) {
    say(&serde_json::to_string(fact).unwrap());
}

async fn open(database: &str) -> Arc<SqliteProvider> {
    let usual = SqliteOptions::default();
    let batch_operations_max = if is_stress_run() { 1 } else { usual.batch_operations_max };
    let options = SqliteOptions { batch_operations_max, ..usual };
    Arc::new(SqliteProvider::new(&format!("sqlite:{database}"), Some(options)).await.unwrap())
}

/// Starts a runtime: one of `share.1` on this file, with the number `share.0`.
async fn start(provider: &Arc<SqliteProvider>, ledger: &Arc<Ledger>, share: (usize, usize)) -> Arc<Runtime> {
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
        max_attempts: u32::MAX,
        ..usual
    };
    let store = Arc::new(WatchedStore::new(provider.clone(), Arc::clone(ledger)));
    Runtime::start_with_options(store, activities(ledger, filter), orchestrations(), options).await
}
