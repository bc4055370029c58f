//! How a machine is set up.

use std::time::Duration;

use everturn::RuntimeOptions;
use everturn::runtime::ShadowReplay;
use everturn_proof::is_stress_run;
use everturn_simulation::SeededRandom;
use everturn_sqlite::Synchronous;

/// How a machine is set up; the same in all its runs.
#[derive(Debug, Clone)]
pub struct MachineSetup {
    /// How many processes share the file, each with its own provider and runtime.
    pub nodes: usize,
    /// When a commit counts as done.
    pub synchronous: Synchronous,
    /// How many operations share a commit.
    pub batch_operations_max: usize,
    /// How many instances stay in memory.
    pub warm_instances_max: usize,
    /// Whether turns that began in memory are compared with a replay.
    pub shadow_replay: ShadowReplay,
    /// How long locks last.
    pub lock_timeout: Duration,
    /// How often something is tried before it counts as poison.
    pub max_attempts: u32,
    /// Whether the writers are threads and time is real, as in production. Such a run is not deterministic.
    pub threads: bool,
    /// How often the log is moved into the file, in milliseconds; never if 0.
    pub checkpoint_every_ms: u64,
}

impl MachineSetup {
    /// A random set-up.
    pub fn draw(random: &mut SeededRandom) -> Self {
        let drawn = Self {
            nodes: [1, 1, 1, 2, 3][random.index(5)],
            synchronous: Synchronous::Full,
            batch_operations_max: if random.percent(30) { 1 } else { 512 },
            warm_instances_max: [0, 2, 1_000][random.index(3)],
            shadow_replay: if random.percent(20) { ShadowReplay::Always } else { ShadowReplay::Off },
            lock_timeout: Duration::from_millis([200, 1_000, 5_000][random.index(3)]),
            max_attempts: RuntimeOptions::default().max_attempts,
            threads: false,
            checkpoint_every_ms: [0, 5, 20][random.index(3)],
        };
        if is_stress_run() { drawn.stressed() } else { drawn }
    }

    /// The same under stress settings: nothing warm, one operation a commit, short locks.
    fn stressed(self) -> Self {
        let lock_timeout = Duration::from_millis(200);
        Self { batch_operations_max: 1, warm_instances_max: 0, lock_timeout, ..self }
    }
}
