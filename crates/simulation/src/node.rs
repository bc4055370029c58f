//! A node: a real runtime that dies, is started again, and in the end is stopped.

use std::sync::Arc;
use std::time::Duration;

use everturn::RuntimeOptions;
use everturn::providers::{Clock, Provider, TagFilter};
use everturn::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::activities::{activities, orchestrations_in};
use crate::life::Life;
use crate::names;
use crate::plan::NodePlan;
use crate::scene::Scene;
use crate::sim_clock::SimClock;
use crate::stormy_store::{Caller, Seat, StormyStore};

/// How long a dead node stays away, at most.
const DOWN_MS_MAX: u64 = 2_000;
/// How long a node that is stopped in order may finish what it has in hand, at most.
const GRACE_MS_MAX: u64 = 500;

/// A machine of the world, on which one process after the other runs a runtime.
pub(crate) struct Machine {
    pub(crate) scene: Arc<Scene>,
    pub(crate) index: usize,
    pub(crate) plan: NodePlan,
    pub(crate) clock: Arc<SimClock>,
    /// Asks for the node to be stopped in order and started again.
    pub(crate) restart: Arc<Notify>,
}

impl Machine {
    /// Runs one process after the other until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.scene.power() => {}
            }
            let life = Arc::new(Life::new());
            self.scene.comes_up(self.index, &life);
            self.live(&life, &stop).await;
            self.scene.is_down(self.index);
            let down = self.scene.some_ms(0, DOWN_MS_MAX);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(down) => {}
            }
        }
    }

    /// One process, from its start to its end.
    async fn live(&self, life: &Arc<Life>, stop: &CancellationToken) {
        self.scene.note(format_args!("node {} starts", self.index));
        let opened = match self.scene.store.open().await {
            Ok(opened) => opened,
            Err(error) => {
                return self.scene.note(format_args!("node {} cannot start: {error}", self.index));
            }
        };
        let (runtime, store) = self.start(life, opened.provider()).await;
        let grace_ms = tokio::select! {
            biased;
            () = life.died() => Some(0),
            () = self.restart.notified() => Some(self.scene.some_ms(1, GRACE_MS_MAX).as_millis() as u64),
            () = stop.cancelled() => None,
        };
        runtime.shutdown(grace_ms).await;
        let has_died = life.is_dead();
        life.die();
        if has_died {
            opened.kill().await;
        } else {
            opened.close().await;
        }
        self.scene.note(format_args!("node {} is down", self.index));
        let left = Arc::strong_count(&store) - 1;
        if left > 0 {
            self.scene.violated(format!("node {} is down, and {left} handles of its store live", self.index));
        }
    }

    async fn start(&self, life: &Arc<Life>, provider: Arc<dyn Provider>) -> (Arc<Runtime>, Arc<StormyStore>) {
        let caller = Caller {
            name: format!("n{}", self.index),
            clock: Some(Arc::clone(&self.clock)),
            freeze_ms: self.plan.lock_ms * 2,
        };
        let seat = Seat::Own(provider);
        let store = Arc::new(StormyStore::new(Arc::clone(&self.scene), caller, Arc::clone(life), seat));
        let activities = activities(&self.scene, life, self.plan.lock_ms);
        let orchestrations = orchestrations_in(&self.scene, life);
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
