//! A node: a real runtime that crashes, is started again, and is stopped in the end.

use std::sync::Arc;
use std::time::Duration;

use everturn::RuntimeOptions;
use everturn::providers::{Clock, Provider, TagFilter};
use everturn::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::activities::{activities, orchestrations_in};
use crate::faulty_store::FaultyStore;
use crate::names;
use crate::plan::NodePlan;
use crate::process::Process;
use crate::process_faults::ProcessFaults;
use crate::recorded_store::RecordedStore;
use crate::scenario::Scenario;
use crate::sim_clock::SimClock;
use crate::world_store::OpenedStore;

/// How long a node stays down, at most.
const DOWN_MS_MAX: u64 = 2_000;
/// How long a shutdown waits for running work, at most.
const GRACE_MS_MAX: u64 = 500;

/// A machine of the world. Its processes, one after the other, each run a runtime.
pub(crate) struct Machine {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) index: usize,
    pub(crate) plan: NodePlan,
    pub(crate) clock: Arc<SimClock>,
    /// Asks for a shutdown and a new start.
    pub(crate) restart: Arc<Notify>,
}

impl Machine {
    /// Runs one process after the other until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.scenario.power() => {}
            }
            let process = Arc::new(Process::new());
            self.scenario.process_started(self.index, &process);
            self.run_process(&process, &stop).await;
            self.scenario.process_ended(self.index);
            let down = self.scenario.some_ms(0, DOWN_MS_MAX);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(down) => {}
            }
        }
    }

    /// One process, from its start to its end.
    async fn run_process(&self, process: &Arc<Process>, stop: &CancellationToken) {
        self.scenario.trace(format_args!("node {} starts", self.index));
        let opened = match self.scenario.store.open().await {
            Ok(opened) => opened,
            Err(error) => {
                return self.scenario.trace(format_args!("node {} cannot start: {error}", self.index));
            }
        };
        let (runtime, store) = self.start(process, &opened).await;
        let grace_ms = tokio::select! {
            biased;
            () = process.killed() => Some(0),
            () = self.restart.notified() => Some(self.scenario.some_ms(1, GRACE_MS_MAX).as_millis() as u64),
            () = stop.cancelled() => None,
        };
        runtime.shutdown(grace_ms).await;
        let was_killed = process.is_killed();
        process.kill();
        if was_killed {
            opened.kill().await;
        } else {
            opened.close().await;
        }
        self.scenario.trace(format_args!("node {} is down", self.index));
        let left = Arc::strong_count(&store) - 1;
        if left > 0 {
            self.scenario
                .violated(format!("node {} is down, and {left} handles of its store are left", self.index));
        }
    }

    async fn start(
        &self,
        process: &Arc<Process>,
        opened: &Arc<dyn OpenedStore>,
    ) -> (Arc<Runtime>, Arc<FaultyStore>) {
        let scenario = &self.scenario;
        let recorded = RecordedStore::new(
            opened.store(),
            Arc::clone(scenario),
            Arc::clone(process),
            Some(Arc::clone(&self.clock)),
        );
        let faults = ProcessFaults {
            scenario: Arc::clone(scenario),
            name: format!("n{}", self.index),
            is_node: true,
            opened: Arc::clone(opened),
        };
        let stall = Duration::from_millis(self.plan.lock_ms * 2);
        let store = FaultyStore::around(Arc::new(recorded));
        let store = Arc::new(store.with_call_faults(Arc::clone(process), stall, Arc::new(faults)));
        let activities = activities(scenario, process, self.plan.lock_ms);
        let orchestrations = orchestrations_in(scenario, process);
        let handle = Arc::clone(&store) as Arc<dyn Provider>;
        let runtime = Runtime::start_with_options(handle, activities, orchestrations, self.options()).await;
        (runtime, store)
    }

    fn options(&self) -> RuntimeOptions {
        let lock = Duration::from_millis(self.plan.lock_ms);
        let worker_tag_filter = match self.index {
            0 => TagFilter::default_and([names::TAG]),
            1 => TagFilter::default_only(),
            _ => TagFilter::any(),
        };
        RuntimeOptions {
            dispatcher_min_poll_interval: Duration::from_millis(10),
            orchestration_concurrency: self.plan.orchestrations,
            worker_concurrency: self.plan.activities,
            orchestrator_lock_timeout: lock,
            worker_lock_timeout: lock,
            session_lock_timeout: lock,
            max_sessions_per_runtime: self.plan.sessions_max,
            session_idle_timeout: Duration::from_secs(20),
            session_cleanup_interval: Duration::from_secs(30),
            activity_cancellation_grace_period: Duration::from_millis(200),
            max_attempts: self.plan.max_attempts,
            worker_node_id: self.plan.is_named.then(|| format!("node-{}", self.index)),
            worker_tag_filter,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            warm_instances_max: self.plan.warm_instances_max,
            shadow_replay: self.plan.shadow_replay,
            ..RuntimeOptions::default()
        }
    }
}
