//! How a proof is run: many cases from one seed, their counts added up, a failure with the way to see it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::chance::Chance;

/// How many failures are shown.
const SHOWN: usize = 5;
/// A run counts only if so many of a hundred instances finished.
pub const FINISHED_PERCENT_MIN: u64 = 95;

/// One proof: a number of cases, each from a seed of its own.
pub struct Proof {
    name: &'static str,
    test: &'static str,
    cases: u64,
    seed: u64,
    began: Instant,
    _alone: MutexGuard<'static, ()>,
}

/// Proofs measure and use real processes: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What a case came to: counts by name.
#[derive(Debug, Default, Clone)]
pub struct Counts(Vec<(&'static str, u64)>);

impl Counts {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, count: u64) {
        match self.0.iter_mut().find(|(other, _)| *other == name) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((name, count)),
        }
    }

    /// A count.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count)
    }

    /// Adds all counts of another.
    pub fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, count)| self.add(name, *count));
    }
}

impl Proof {
    /// A proof with so many cases, unless `EVERTURN_PROOF_CASES` says otherwise; its seed is `EVERTURN_PROOF_SEED`, or
    /// one that is the same every time.
    pub fn new(name: &'static str, test: &'static str, cases: u64) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse().ok());
        let cases = number("EVERTURN_PROOF_CASES").unwrap_or(cases);
        let seed = number("EVERTURN_PROOF_SEED").unwrap_or(1);
        Self { name, test, cases, seed, began: Instant::now(), _alone: alone }
    }

    /// How many cases there are.
    pub fn cases(&self) -> u64 {
        self.cases
    }

    /// The seed of the first case; the next case has the next one.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Runs cases side by side until `unit` was counted as often as cases were asked for; each has a seed of its own. A case fails with
    /// what it found.
    pub fn run(&self, unit: &str, case: impl Fn(u64) -> Result<Counts, String> + Sync) -> Counts {
        let next = AtomicU64::new(0);
        let total = Mutex::new(Counts::default());
        let failures = Mutex::new(Vec::<(u64, String)>::new());
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while lock(&total).get(unit) < self.cases && lock(&failures).len() < SHOWN {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number > self.cases * 10 + 100 {
                            // Cases in which nothing happens prove nothing, however many.
                            break;
                        }
                        let seed = self.seed + number;
                        match case(seed) {
                            Ok(counts) => lock(&total).add_all(&counts),
                            Err(failure) => lock(&failures).push((seed, failure)),
                        }
                    }
                });
            }
        });
        let counts = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.settle(lock(&failures).as_slice(), &counts);
        self.require(&counts, unit, self.cases);
        counts
    }

    /// Prints the counts; fails if a case failed.
    fn settle(&self, failures: &[(u64, String)], counts: &Counts) {
        let mut line = format!("{}: seed {}", self.name, self.seed);
        for (name, count) in &counts.0 {
            line.push_str(&format!(", {count} {name}"));
        }
        println!("{line}, {:.1} s", self.began.elapsed().as_secs_f64());
        let mut report = String::new();
        for (seed, failure) in failures {
            let again = format!(
                "EVERTURN_PROOF_SEED={seed} EVERTURN_PROOF_CASES=1 cargo test -p everturn-crash-tests --test it {} -- --nocapture",
                self.test
            );
            report.push_str(&format!("\nseed {seed}: {failure}\n  {again}\n"));
        }
        assert!(failures.is_empty(), "{}:{report}", self.name);
    }

    /// Fails if too few instances finished: an empty pass is no pass.
    pub fn require_finished(&self, counts: &Counts) {
        let (instances, finished) = (counts.get("instances"), counts.get("finished"));
        assert!(
            instances > 0 && finished * 100 >= instances * FINISHED_PERCENT_MIN,
            "{}: {finished} of {instances} instances finished",
            self.name
        );
    }

    /// Fails if something happened less often than it must.
    pub fn require(&self, counts: &Counts, name: &str, at_least: u64) {
        let count = counts.get(name);
        assert!(count >= at_least, "{}: {count} {name}, {at_least} are needed", self.name);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The chance of a case.
pub fn chance(seed: u64) -> Chance {
    Chance::new(seed.wrapping_mul(0xA076_1D64_78BD_642F))
}
