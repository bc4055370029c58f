//! What the workflows tell the workloads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Counts and times what workflows do.
#[derive(Default)]
pub struct Probe {
    steps_each: AtomicU64,
    sleep_ms: AtomicU64,
    steps: AtomicU64,
    times: Mutex<Vec<Instant>>,
    asked: Mutex<HashMap<String, Instant>>,
    stepped: Notify,
}

/// The probe of this process.
pub fn probe() -> &'static Probe {
    static PROBE: LazyLock<Probe> = LazyLock::new(Probe::default);
    &PROBE
}

impl Probe {
    pub(crate) fn configure(&self, steps_each: u64, sleep_ms: u64) {
        self.steps_each.store(steps_each, Ordering::Relaxed);
        self.sleep_ms.store(sleep_ms, Ordering::Relaxed);
    }

    /// How many steps an instance of `steps` has.
    pub fn steps_each(&self) -> u64 {
        self.steps_each.load(Ordering::Relaxed)
    }

    /// How long an instance of `sleeper` sleeps.
    pub fn sleep(&self) -> Duration {
        Duration::from_millis(self.sleep_ms.load(Ordering::Relaxed))
    }

    /// A step runs.
    pub fn step(&self) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.stepped.notify_one();
    }

    /// Forgets what was counted: a warm-up does not count.
    pub fn reset(&self) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.steps.store(0, Ordering::Relaxed);
    }

    /// An instance asks for its timer. Only the first time counts: later ones are replays.
    pub fn ask(&self, id: &str) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.entry(id.to_owned()).or_insert_with(Instant::now);
    }

    /// How many steps ran.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn asked(&self, id: &str) -> Option<Instant> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// From each step to the next.
    pub(crate) fn step_seconds(&self) -> Vec<f64> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.iter().zip(times.iter().skip(1)).map(|(one, next)| (*next - *one).as_secs_f64()).collect()
    }

    pub(crate) async fn wait_for_a_step(&self) {
        self.stepped.notified().await;
    }
}
