//! Many seeds, and what they prove.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::counts::Counts;
use crate::plan::{Plan, Theme};
use crate::shrink::shrink;
use crate::world::run;

/// A run of seeds.
#[derive(Debug, Clone, Copy)]
pub struct Proof {
    /// What is to be proved.
    pub theme: Theme,
    /// The first seed.
    pub first_seed: u64,
    /// How many.
    pub seeds: u64,
}

/// A seed that broke something.
#[derive(Debug, Clone)]
struct Broken {
    seed: u64,
    violations: Vec<String>,
}

/// Runs all seeds, on as many threads as there are processors.
///
/// Fails with a text for people: the first seed that broke something, what, how to see it again, and the smallest plan
/// found that breaks it too.
pub fn prove(proof: Proof) -> Result<Counts, String> {
    let next = AtomicU64::new(proof.first_seed);
    let counts = Mutex::new(Counts::default());
    let broken: Mutex<Vec<Broken>> = Mutex::default();
    let end = proof.first_seed.saturating_add(proof.seeds);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while broken.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end {
                        return;
                    }
                    let outcome = run(&Plan::new(proof.theme, seed));
                    let mut violations = outcome.violations;
                    violations.extend(outcome.counts.shortfalls());
                    counts.lock().unwrap_or_else(PoisonError::into_inner).add(&outcome.counts);
                    if !violations.is_empty() {
                        let failed = Broken { seed, violations };
                        broken.lock().unwrap_or_else(PoisonError::into_inner).push(failed);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    match broken.into_iter().min_by_key(|broken| broken.seed) {
        Some(broken) => Err(explain(proof.theme, &broken)),
        None => Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn explain(theme: Theme, broken: &Broken) -> String {
    let Broken { seed, violations } = broken;
    let mut text = format!("seed {seed} of {theme:?} broke something:\n");
    for violation in violations {
        // Writing into a text cannot fail.
        let _ = writeln!(text, "  {violation}");
    }
    let _ = writeln!(text, "\nto see it again:\n  {}", theme.command(*seed));
    let plan = Plan::new(theme, *seed);
    // A seed in which too little happened has nothing to shrink.
    let Some(first) = run(&plan).violations.into_iter().next() else { return text };
    let (plan, outcome) = shrink(&plan, &first);
    let _ = writeln!(text, "\nthe smallest plan found (seed {} of the sky):\n{plan}", plan.seed);
    let _ = writeln!(text, "  faults:\n{}\n  broke:", outcome.faults);
    for violation in &outcome.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text
}
