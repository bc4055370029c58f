//! Runs a proof: many cases, each from a seed.

use std::any::Any;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::counts::{Counts, FINISHED, INSTANCES};
use crate::failure::Failure;
use crate::report::{ProofReport, ProofState};
use crate::stress::{is_stress_run, many};
use crate::watchdog::Watchdog;

/// The percentage of instances that must finish.
const FINISHED_PERCENT_MIN: u64 = 95;
/// How long one case may take, in real time.
const CASE_TIME_MAX: Duration = Duration::from_secs(300);
/// How many cases that mostly sleep run on each processor.
const SLEEPING_CASES_EACH: u64 = 3;
/// How often a proof prints its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Each proof keeps all processors busy, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A proof: `proof!("R2", "r2_power_cuts", 5_000)` is the test `r2_power_cuts` of the calling package, with five
/// thousand cases unless the environment sets another number.
#[macro_export]
macro_rules! proof {
    ($id:literal, $test:literal, $cases:expr) => {
        $crate::Proof::new($id, env!("CARGO_PKG_NAME"), $test, $cases)
    };
}

/// One proof: many cases, each from a seed of its own.
pub struct Proof {
    id: &'static str,
    package: &'static str,
    test: &'static str,
    cases: u64,
    time: Option<Duration>,
    seed: u64,
    prints_progress: bool,
}

impl Proof {
    /// Use [`proof!`](crate::proof!).
    ///
    /// # Panics
    /// If a variable of the environment is not a number.
    pub fn new(id: &'static str, package: &'static str, test: &'static str, cases: u64) -> Self {
        Self {
            id,
            package,
            test,
            cases: number("EVERTURN_PROOF_CASES").unwrap_or_else(|| many(cases as usize) as u64),
            time: number("EVERTURN_PROOF_SECONDS").map(Duration::from_secs),
            seed: number("EVERTURN_PROOF_SEED").unwrap_or(1),
            prints_progress: std::env::var_os("EVERTURN_PROOF_PROGRESS").is_some(),
        }
    }

    /// The seed of the first case.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Runs cases side by side, each with the next seed, until `unit` was counted as often as cases were asked for, or
    /// until the time is up.
    ///
    /// # Panics
    /// If a case failed: with its seed, the reason, and the command that runs it again. If too little happened.
    pub fn run<E: Into<Failure>>(
        &self,
        unit: &str,
        case: impl Fn(u64) -> Result<Counts, E> + Sync,
    ) -> Counts {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        self.run_on(processors(), unit, case)
    }

    /// The same for cases that mostly sleep: several of them on each processor, and beside another proof.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_sleeping<E: Into<Failure>>(
        &self,
        unit: &str,
        case: impl Fn(u64) -> Result<Counts, E> + Sync,
    ) -> Counts {
        // With stress settings locks are so short that a process which waits for a processor loses them.
        let each = if is_stress_run() { 1 } else { SLEEPING_CASES_EACH };
        self.run_on(processors() * each, unit, case)
    }

    fn run_on<E: Into<Failure>>(
        &self,
        threads: u64,
        unit: &str,
        case: impl Fn(u64) -> Result<Counts, E> + Sync,
    ) -> Counts {
        let run = RunningProof {
            proof: self,
            unit,
            began: Instant::now(),
            next: AtomicU64::new(0),
            is_explained: AtomicBool::new(false),
            totals: Mutex::default(),
        };
        // The cases are the first of all counts.
        run.totals().counts.add(unit, 0);
        thread::scope(|scope| {
            for _ in 0..threads.min(self.cases) {
                scope.spawn(|| run.cases(&case));
            }
        });
        let seconds = run.began.elapsed().as_secs_f64();
        let RunTotals { counts, failures, .. } =
            run.totals.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.print(ProofState::Done { seed: self.seed, seconds }, &counts);
        assert!(failures.is_empty(), "{} {}:\n{}", self.id, self.test, failures.join("\n"));
        let least = if self.time.is_some() { 1 } else { self.cases };
        self.require(&counts, unit, least);
        self.require_finished(&counts);
        counts
    }

    /// Requires that something was counted at least so often.
    ///
    /// # Panics
    /// If it was not.
    pub fn require(&self, counts: &Counts, name: &str, at_least: u64) {
        let count = counts.get(name);
        assert!(count >= at_least, "{} {}: {count} {name}, {at_least} are needed", self.id, self.test);
    }

    /// Requires that enough instances finished.
    fn require_finished(&self, counts: &Counts) {
        let (instances, finished) = (counts.get(INSTANCES), counts.get(FINISHED));
        assert!(
            finished * 100 >= instances * FINISHED_PERCENT_MIN,
            "{} {}: {finished} of {instances} instances finished",
            self.id,
            self.test
        );
    }

    fn report(&self, state: ProofState, counts: &Counts) -> ProofReport {
        ProofReport { id: self.id.to_owned(), test: self.test.to_owned(), state, counts: counts.clone() }
    }

    fn print(&self, state: ProofState, counts: &Counts) {
        let report = self.report(state, counts);
        // Past the test runner, which captures what passing tests print. A closed output is no failure.
        drop(writeln!(std::io::stderr().lock(), "{report}"));
    }

    /// The message for a seed that hangs.
    fn report_of(&self, seed: u64) -> String {
        let state = ProofState::Broken { seed, command: self.command(seed) };
        format!("{}\nseed {seed}", self.report(state, &Counts::default()))
    }

    /// The command that runs this seed again.
    fn command(&self, seed: u64) -> String {
        let Self { package, test, .. } = self;
        let stress = if is_stress_run() { "EVERTURN_STRESS=1 " } else { "" };
        format!(
            "{stress}EVERTURN_PROOF_SEED={seed} EVERTURN_PROOF_CASES=1 cargo test -p {package} --test it {test} -- --nocapture"
        )
    }
}

/// A proof that is being run.
struct RunningProof<'a> {
    proof: &'a Proof,
    unit: &'a str,
    began: Instant,
    /// The number of the next case.
    next: AtomicU64,
    is_explained: AtomicBool,
    totals: Mutex<RunTotals>,
}

/// What the cases have added up to so far.
#[derive(Default)]
struct RunTotals {
    counts: Counts,
    failures: Vec<String>,
    progress_at: Duration,
}

impl RunningProof<'_> {
    fn cases<E: Into<Failure>>(&self, case: &impl Fn(u64) -> Result<Counts, E>) {
        while let Some(seed) = self.next_seed() {
            let watchdog = Watchdog::of(self.proof.report_of(seed), CASE_TIME_MAX);
            let done = catch_unwind(AssertUnwindSafe(|| case(seed)));
            drop(watchdog);
            match done {
                Ok(Ok(counts)) => self.totals().counts.add_all(&counts),
                Ok(Err(failure)) => self.failed(seed, failure.into()),
                Err(panic) => self.failed(seed, format!("it panicked: {}", text_of(panic.as_ref())).into()),
            }
        }
    }

    /// The seed of the next case, unless enough cases have run.
    fn next_seed(&self) -> Option<u64> {
        let mut totals = self.totals();
        let percent = self.percent(&totals.counts);
        let elapsed = self.began.elapsed();
        if self.proof.prints_progress && elapsed >= totals.progress_at + PROGRESS_EVERY {
            totals.progress_at = elapsed;
            self.proof.print(ProofState::Running { percent: percent.min(100) }, &totals.counts);
        }
        if percent >= 100 || !totals.failures.is_empty() {
            return None;
        }
        drop(totals);
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        // Ends a proof whose cases count nothing.
        let is_idle = self.proof.time.is_none() && number > self.proof.cases * 10 + 100;
        (!is_idle).then(|| self.proof.seed.wrapping_add(number))
    }

    fn percent(&self, counts: &Counts) -> u64 {
        match self.proof.time {
            Some(time) => self.began.elapsed().as_millis() as u64 * 100 / (time.as_millis() as u64).max(1),
            None => counts.get(self.unit) * 100 / self.proof.cases.max(1),
        }
    }

    /// Prints the reason at once, and the explanation when the proof ends.
    fn failed(&self, seed: u64, failure: Failure) {
        let command = self.proof.command(seed);
        self.proof.print(ProofState::Broken { seed, command: command.clone() }, &Counts::default());
        let what = failure.what().to_owned();
        drop(writeln!(std::io::stderr().lock(), "{what}"));
        // One explanation is enough, and may take a while.
        let is_first = !self.is_explained.swap(true, Ordering::SeqCst);
        let explanation = if is_first { failure.explanation() } else { String::new() };
        self.totals()
            .failures
            .push(format!("seed {seed}: {what}\nrun it again with:\n  {command}\n{explanation}"));
    }

    fn totals(&self) -> MutexGuard<'_, RunTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a value that is no text")
}

fn processors() -> u64 {
    thread::available_parallelism().map_or(2, |processors| processors.get() as u64)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable} is not a number: {text}"),
    }
}

#[cfg(test)]
mod tests;
