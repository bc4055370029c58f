//! What is stored before the runtimes of a machine start.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::TagFilter;
use everturn::{Client, OrchestrationStatus};
use everturn_simulation::SimClock;
use everturn_sqlite::SqliteProvider;

use super::CrashMachine;
use crate::observations::Observation;

/// How far the instances of a machine get before the database is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// Their starts are queued.
    Started,
    /// Their first turns are committed, and their first activities are queued.
    Begun,
}

impl CrashMachine {
    /// Opens the database without a runtime, and closes it after `visit`.
    pub fn visit<T, F: Future<Output = T>>(&mut self, visit: impl FnOnce(Arc<SqliteProvider>) -> F) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let random = self.random.branch(self.now_ms);
        let visited = runtime.unwrap().block_on(async {
            let provider = self.open(Arc::new(SimClock::starting_at(self.now_ms, random))).await.unwrap();
            let visited = visit(Arc::clone(&provider)).await;
            provider.close().await;
            visited
        });
        self.now_ms += 1_000;
        visited
    }

    /// Starts all instances and lets them get so far. Then everything is moved from the log into the file, and the database
    /// is closed.
    pub fn prepare(&mut self, how_far: Prepared) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let random = self.random.branch(self.now_ms);
        runtime.unwrap().block_on(async {
            let clock = Arc::new(SimClock::starting_at(self.now_ms, random));
            let provider = self.open(clock.clone()).await.unwrap();
            let client = Client::new(provider.clone());
            let instances = self.log.snapshot().instances;
            for (id, observed) in &instances {
                let script = observed.script;
                self.log.record(Observation::Asked(id.clone(), "start".to_owned()));
                client.start_orchestration(id, script.orchestration(), script.input()).await.unwrap();
                self.log.record(Observation::Started(id.clone()));
            }
            if how_far == Prepared::Begun {
                // No activity runs: no worker has this filter.
                let runtime = self.start(provider.clone(), TagFilter::None, clock).await;
                for id in instances.keys() {
                    while client.get_orchestration_status(id).await.unwrap() == OrchestrationStatus::NotFound
                    {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                runtime.shutdown(None).await;
            }
            provider.checkpoint().await.unwrap();
            provider.close().await;
        });
        self.now_ms += 1_000;
    }
}
