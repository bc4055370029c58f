//! Many cases by seed.

use std::any::Any;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::counts::{Counts, FINISHED, INSTANCES};
use crate::cruel::{is_cruel, many};
use crate::failure::Failure;
use crate::report::{Report, State};
use crate::watchdog::Watchdog;

/// A run counts only if so many of a hundred instances finished.
const FINISHED_PERCENT_MIN: u64 = 95;
/// How long one case may take, in real time.
const CASE_TIME_MAX: Duration = Duration::from_secs(300);
/// How often a proof says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Each proof keeps all processors busy: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A proof: `proof!("R2", "r2_power_cuts", 5_000)` is the test `r2_power_cuts` of the package it stands in, with five
/// thousand cases unless the environment says otherwise.
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
    says_progress: bool,
}

impl Proof {
    /// What [`proof!`](crate::proof!) makes.
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
            says_progress: std::env::var_os("EVERTURN_PROOF_PROGRESS").is_some(),
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
    /// If a case failed: with its seed, what it found, and the command that shows it again. If too little happened.
    pub fn run<E: Into<Failure>>(
        &self,
        unit: &str,
        case: impl Fn(u64) -> Result<Counts, E> + Sync,
    ) -> Counts {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let run = Run {
            proof: self,
            unit,
            began: Instant::now(),
            next: AtomicU64::new(0),
            is_explained: AtomicBool::new(false),
            books: Mutex::default(),
        };
        // First of all counts.
        run.books().counts.add(unit, 0);
        let threads = thread::available_parallelism().map_or(2, |threads| threads.get() as u64);
        thread::scope(|scope| {
            for _ in 0..threads.min(self.cases) {
                scope.spawn(|| run.cases(&case));
            }
        });
        let seconds = run.began.elapsed().as_secs_f64();
        let Books { counts, failures, .. } = run.books.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.say(State::Done { seed: self.seed, seconds }, &counts);
        assert!(failures.is_empty(), "{} {}:\n{}", self.id, self.test, failures.join("\n"));
        let least = if self.time.is_some() { 1 } else { self.cases };
        self.require(&counts, unit, least);
        self.require_finished(&counts);
        counts
    }

    /// Fails if something happened less often than it must.
    ///
    /// # Panics
    /// Then.
    pub fn require(&self, counts: &Counts, name: &str, at_least: u64) {
        let count = counts.get(name);
        assert!(count >= at_least, "{} {}: {count} {name}, {at_least} are needed", self.id, self.test);
    }

    /// Fails if too few instances finished.
    fn require_finished(&self, counts: &Counts) {
        let (instances, finished) = (counts.get(INSTANCES), counts.get(FINISHED));
        assert!(
            finished * 100 >= instances * FINISHED_PERCENT_MIN,
            "{} {}: {finished} of {instances} instances finished",
            self.id,
            self.test
        );
    }

    fn report(&self, state: State, counts: &Counts) -> Report {
        Report { id: self.id.to_owned(), test: self.test.to_owned(), state, counts: counts.clone() }
    }

    fn say(&self, state: State, counts: &Counts) {
        let report = self.report(state, counts);
        // Past the test runner, which keeps to itself what passing tests print. Nobody may be there to read it.
        drop(writeln!(std::io::stderr().lock(), "{report}"));
    }

    /// What is said of a seed that hangs: its report, and a line that says so.
    fn report_of(&self, seed: u64) -> String {
        let state = State::Broken { seed, command: self.command(seed) };
        format!("{}\nseed {seed}", self.report(state, &Counts::default()))
    }

    /// The command that runs one seed again.
    fn command(&self, seed: u64) -> String {
        let Self { package, test, .. } = self;
        let cruel = if is_cruel() { "EVERTURN_CRUEL=1 " } else { "" };
        format!(
            "{cruel}EVERTURN_PROOF_SEED={seed} EVERTURN_PROOF_CASES=1 cargo test -p {package} --test it {test} -- --nocapture"
        )
    }
}

/// A proof that is being run.
struct Run<'a> {
    proof: &'a Proof,
    unit: &'a str,
    began: Instant,
    /// The number of the next case.
    next: AtomicU64,
    is_explained: AtomicBool,
    books: Mutex<Books>,
}

/// What has come of the cases so far.
#[derive(Default)]
struct Books {
    counts: Counts,
    failures: Vec<String>,
    said: Duration,
}

impl Run<'_> {
    fn cases<E: Into<Failure>>(&self, case: &impl Fn(u64) -> Result<Counts, E>) {
        while let Some(seed) = self.next_seed() {
            let watchdog = Watchdog::of(self.proof.report_of(seed), CASE_TIME_MAX);
            let done = catch_unwind(AssertUnwindSafe(|| case(seed)));
            drop(watchdog);
            match done {
                Ok(Ok(counts)) => self.books().counts.add_all(&counts),
                Ok(Err(failure)) => self.failed(seed, failure.into()),
                Err(panic) => self.failed(seed, format!("it panicked: {}", text_of(panic.as_ref())).into()),
            }
        }
    }

    /// The next seed to run, if it is not enough yet.
    fn next_seed(&self) -> Option<u64> {
        let mut books = self.books();
        let percent = self.percent(&books.counts);
        let elapsed = self.began.elapsed();
        if self.proof.says_progress && elapsed >= books.said + PROGRESS_EVERY {
            books.said = elapsed;
            self.proof.say(State::Running { percent: percent.min(100) }, &books.counts);
        }
        if percent >= 100 || !books.failures.is_empty() {
            return None;
        }
        drop(books);
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        // Cases in which nothing happens prove nothing, however many.
        let is_idle = self.proof.time.is_none() && number > self.proof.cases * 10 + 100;
        (!is_idle).then(|| self.proof.seed.wrapping_add(number))
    }

    fn percent(&self, counts: &Counts) -> u64 {
        match self.proof.time {
            Some(time) => self.began.elapsed().as_millis() as u64 * 100 / (time.as_millis() as u64).max(1),
            None => counts.get(self.unit) * 100 / self.proof.cases.max(1),
        }
    }

    /// Says at once what is known, and explains it in the end.
    fn failed(&self, seed: u64, failure: Failure) {
        let command = self.proof.command(seed);
        self.proof.say(State::Broken { seed, command: command.clone() }, &Counts::default());
        let what = failure.what().to_owned();
        drop(writeln!(std::io::stderr().lock(), "{what}"));
        // One explanation is enough, and may take a while.
        let is_first = !self.is_explained.swap(true, Ordering::SeqCst);
        let explanation = if is_first { failure.explanation() } else { String::new() };
        self.books()
            .failures
            .push(format!("seed {seed}: {what}\nto see it again:\n  {command}\n{explanation}"));
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
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
