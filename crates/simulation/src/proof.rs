//! What a seed proves.

use std::fmt::Write as _;

use everturn_proof::{Counts, Failure, is_stress_run};

use crate::memory_store;
use crate::plan::{Plan, Theme};
use crate::shrink::shrink_on;
use crate::store::Founder;
use crate::weather::Fault;
use crate::world::run_on;

/// Lives through the world of a seed, and says what it amounts to.
///
/// # Errors
/// If it broke a promise, or too little happened in it. The explanation is the smallest plan found that breaks the same.
pub fn prove(theme: Theme, seed: u64) -> Result<Counts, Failure> {
    prove_on(memory_store::found, theme, Plan::new(theme, seed))
}

/// The same with a plan, in a store of one's own.
///
/// # Errors
/// As above.
pub fn prove_on(found: Founder, theme: Theme, plan: Plan) -> Result<Counts, Failure> {
    let plan = if is_stress_run() { plan.cruelly() } else { plan };
    let outcome = run_on(found, &plan);
    let mut wrong = outcome.violations;
    wrong.extend(outcome.counts.shortfalls());
    if theme == Theme::Clocks && !outcome.counts.faults.contains_key(&Fault::StoreClock) {
        wrong.push("nobody set the store's clock".to_owned());
    }
    if wrong.is_empty() {
        return Ok(outcome.counts.named());
    }
    Err(Failure::explained_by(format!("{theme:?} broke something:\n  {}", wrong.join("\n  ")), move || {
        explain(found, &plan)
    }))
}

fn explain(found: Founder, plan: &Plan) -> String {
    let mut text = String::new();
    // A seed in which too little happened has nothing to shrink.
    let Some(first) = run_on(found, plan).violations.into_iter().next() else { return text };
    let (plan, outcome) = shrink_on(found, plan, &first);
    // Writing into a text cannot fail.
    let _ = writeln!(text, "\nthe smallest plan found (seed {} of the sky):\n{plan}", plan.seed);
    let _ = writeln!(text, "  faults:\n{}\n  broke:", outcome.faults);
    for violation in &outcome.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text
}
