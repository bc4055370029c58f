//! Random sequences of operations, on a provider and on the in-memory one: every answer must be equal.
//!
//! The in-memory provider is the reference. A sequence has up to 75 operations on four instances: verbs of the store as
//! the engine calls them, plain verbs, the management side, and the passing of time. Answers are compared whole except
//! for tokens: the n-th token of one store corresponds to the n-th of the other. Everything that can be seen of the
//! stores is compared every few operations and at the end, when everything that is still queued is fetched, too.
//!
//! How many turns or activities come at once is the store's choice, so a fetch of several is repeated until it has them
//! or none is left.
//!
//! [`model_test!`](crate::model_test) makes tests of it: a [`Proof`]. A run prints its seed, and how often each verb did
//! something, found nothing and was refused; it fails if a verb lacks variety in a hundred cases. What differs is
//! shrunk and printed as code that [`replay`] takes: keep it as a regression test.
//!
//! Every run tries the same sequences unless the environment says otherwise, as [`everturn_proof`] explains. The long
//! run, on other ones:
//!
//! ```sh
//! EVERTURN_PROOF_SEED=1000000 EVERTURN_PROOF_CASES=20000 cargo test -p everturn-sqlite --test it model::model
//! ```

mod administration;
mod answer;
mod choices;
mod choices_of_histories;
mod choices_of_turns;
mod choices_of_works;
mod comparison;
mod histories;
mod op;
mod op_parts;
mod op_sequences;
mod regressions;
mod store_summary;
mod tally;
mod tracked_store;
mod turns;
mod works;

pub use op::{INSTANCES, Op, as_code};
pub use op_parts::{Base, Decided, Filter, Item, Naming, NewEvent, Settled, Tags, Token, Which};

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use everturn_proof::{Counts, Proof};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use tokio::runtime::Runtime;

use crate::ProviderFactory;
use answer::AnswerKind;
use comparison::Comparison;
use op_sequences::OpSequences;
use tally::{CaseCounts, Tally};

/// How many operations a sequence has.
const LENGTH: RangeInclusive<usize> = 40..=75;
/// How many simpler sequences are tried once one has failed.
const SHRINKS_MAX: u32 = 20_000;

/// Makes the model test of the providers of a [`ProviderFactory`](crate::ProviderFactory), in a module `model`.
///
/// The expression is evaluated once for every sequence: each has a store of its own. `cases` is how many are tried if
/// the environment does not say.
#[macro_export]
macro_rules! model_test {
    ($factory:expr, cases: $cases:expr) => {
        mod model {
            #[allow(unused_imports, reason = "the factory may be named by its full path")]
            use super::*;

            #[test]
            fn r12_answers_are_those_of_the_memory_provider() {
                const TEST: &str = concat!(module_path!(), "::r12_answers_are_those_of_the_memory_provider");
                $crate::model::run(&$crate::model::proof(env!("CARGO_PKG_NAME"), TEST, $cases), || $factory);
            }

            #[test]
            fn what_once_differed_is_equal() {
                $crate::model::replay_regressions(|| $factory);
            }
        }
    };
}

/// The proof R12 as a test of a package; `test` is its whole path. Called by what [`model_test!`](crate::model_test)
/// expands to.
pub fn proof(package: &'static str, test: &'static str, cases: u64) -> Proof {
    let without_the_crate = test.split_once("::").map_or(test, |(_, path)| path);
    Proof::new("R12", package, without_the_crate, cases)
}

/// Tries the sequences of a proof. Called by what [`model_test!`](crate::model_test) expands to.
///
/// # Panics
/// If an answer differs, or if a verb lacks variety.
pub fn run<F: ProviderFactory>(proof: &Proof, factory: impl Fn() -> F + Sync) {
    let tally = Mutex::new(Tally::default());
    proof.run("sequences", |seed| {
        let case = run_case(seed, &factory)?;
        let mut counts = Counts::default();
        counts.add("sequences", 1);
        counts.add("operations", case.operations());
        let number = seed.wrapping_sub(proof.seed());
        tally.lock().unwrap_or_else(PoisonError::into_inner).add(number, case);
        Ok::<_, String>(counts)
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    say(&tally.table());
    let lacking = tally.lacking();
    assert!(lacking.is_empty(), "too little variety in a hundred cases:\n{}", lacking.join("\n"));
}

fn run_case<F: ProviderFactory>(seed: u64, factory: &impl Fn() -> F) -> Result<CaseCounts, String> {
    let runtime = runtime();
    let case = RefCell::new(CaseCounts::default());
    let config =
        Config { cases: 1, failure_persistence: None, max_shrink_iters: SHRINKS_MAX, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng(seed));
    let is_first = Cell::new(true);
    let tried = runner.run(&OpSequences::sequential_strategy(LENGTH), |(_, ops, seen)| {
        // Only the first run counts: the others are simpler forms of it.
        let counts = is_first.replace(false);
        let note = |op: &Op, kind| match (kind, &seen) {
            (None, Some(seen)) => {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            (Some(kind), _) if counts => case.borrow_mut().count(op, kind),
            _ => {}
        };
        compare(&runtime, factory(), &ops, note).map_err(TestCaseError::fail)
    });
    match tried {
        Ok(()) => Ok(case.into_inner()),
        Err(TestError::Fail(_, (_, ops, _))) => {
            let ops = without_the_needless(&runtime, ops, factory);
            let difference = compare(&runtime, factory(), &ops, |_, _| {}).err().unwrap_or_default();
            Err(format!("{difference}\nafter\n{}", as_code(&ops)))
        }
        Err(TestError::Abort(reason)) => Err(reason.to_string()),
    }
}

/// Carries out operations on a fresh store and on the in-memory provider; an error says how they differ. `note` is
/// called before each operation, and after it with how it ended.
fn compare(
    runtime: &Runtime,
    factory: impl ProviderFactory,
    ops: &[Op],
    note: impl Fn(&Op, Option<AnswerKind>),
) -> Result<(), String> {
    runtime.block_on(async {
        let mut comparison = Comparison::open(factory).await;
        for op in ops {
            note(op, None);
            let kind = comparison.apply(op).await?;
            note(op, Some(kind));
        }
        comparison.end().await
    })
}

/// The same operations without those that do not matter: shrinking made some of them simple after it had tried to leave
/// them out.
fn without_the_needless<F: ProviderFactory>(
    runtime: &Runtime,
    mut ops: Vec<Op>,
    factory: &impl Fn() -> F,
) -> Vec<Op> {
    loop {
        let length = ops.len();
        for at in (0..length).rev() {
            let mut fewer = ops.clone();
            fewer.remove(at);
            if compare(runtime, factory(), &fewer, |_, _| {}).is_err() {
                ops = fewer;
            }
        }
        if ops.len() == length {
            return ops;
        }
    }
}

/// Carries out these operations on a fresh store and on the in-memory provider.
///
/// ```
/// use everturn_conformance::model::{Filter::*, Item::*, Op::*, replay};
/// # use std::sync::Arc;
/// # use everturn_provider::{ManualClock, MemoryProvider, Provider};
/// # struct MyFactory(Arc<ManualClock>);
/// # #[async_trait::async_trait]
/// # impl everturn_conformance::ProviderFactory for MyFactory {
/// #     fn clock(&self) -> Arc<ManualClock> { Arc::clone(&self.0) }
/// #     async fn open(&self) -> Arc<dyn Provider> { Arc::new(MemoryProvider::with_clock(self.clock())) }
/// #     async fn damage_event(&self, _: &Arc<dyn Provider>, _: &str, _: u64, _: u64) {}
/// #     async fn message_attempts(&self, _: &Arc<dyn Provider>, _: &str) -> Option<Vec<u32>> { None }
/// # }
/// # let my_factory = MyFactory(Arc::new(ManualClock::new(0)));
///
/// replay(my_factory, &vec![
///     EnqueueForOrchestrator { item: Start("a"), delay_ms: None },
///     FetchOrchestrationItem { lock_ms: 30000, filter: Everything },
/// ]);
/// ```
///
/// # Panics
/// If an answer differs.
pub fn replay(factory: impl ProviderFactory + 'static, ops: &[Op]) {
    if let Err(difference) = compare(&runtime(), factory, ops, |_, _| {}) {
        panic!("{difference}\nafter\n{}", as_code(ops));
    }
}

/// Carries out every sequence that once showed a difference. Called by what [`model_test!`](crate::model_test)
/// expands to.
///
/// # Panics
/// If an answer differs.
pub fn replay_regressions<F: ProviderFactory + 'static>(factory: impl Fn() -> F) {
    for (name, ops) in regressions::all() {
        if let Err(difference) = compare(&runtime(), factory(), &ops, |_, _| {}) {
            panic!("{name}: {difference}\nafter\n{}", as_code(&ops));
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime")
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Writes to the standard output itself: the test harness hides what `println!` writes if the test passes.
fn say(text: &str) {
    // A closed output is no reason to fail.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}
