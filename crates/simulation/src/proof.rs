//! Runs one seed of a proof.

use std::fmt::Write as _;

use everturn_proof::{Counts, Failure, is_stress_run};

use crate::fault_plan::Fault;
use crate::memory_world;
use crate::plan::{Plan, Theme};
use crate::shrink::shrink_on;
use crate::world::{Outcome, run_on};
use crate::world_store::CreateStore;

/// Runs the world of a seed, and returns how much happened in it.
///
/// # Errors
/// If it violated a guarantee, or too little happened in it. The explanation is the smallest plan that was found to violate
/// the same.
pub fn prove(theme: Theme, seed: u64) -> Result<Counts, Failure> {
    prove_on(memory_world::create, theme, Plan::new(theme, seed))
}

/// The same with a plan, on another store.
///
/// # Errors
/// As above.
pub fn prove_on(create: CreateStore, theme: Theme, plan: Plan) -> Result<Counts, Failure> {
    let mut plan = if is_stress_run() { plan.with_stress_settings() } else { plan };
    let mut outcome = run_on(create, &plan);
    let was_set = |outcome: &Outcome| outcome.counts.faults.contains_key(&Fault::StoreClock);
    if theme == Theme::Clocks && outcome.violations.is_empty() && !was_set(&outcome) {
        // By chance, in one world of thousands. It has its faults once more, with a clock that is set all the time.
        plan.faults.rates.insert(Fault::StoreClock, 1_000);
        outcome = run_on(create, &plan);
    }
    let clock_was_set = was_set(&outcome);
    let mut wrong = outcome.violations;
    wrong.extend(outcome.counts.shortfalls());
    if theme == Theme::Clocks && !clock_was_set {
        wrong.push("the store's clock was never set".to_owned());
    }
    if wrong.is_empty() {
        return Ok(outcome.counts.named());
    }
    Err(Failure::explained_by(format!("violations of {theme:?}:\n  {}", wrong.join("\n  ")), move || {
        explain(create, &plan)
    }))
}

fn explain(create: CreateStore, plan: &Plan) -> String {
    let mut text = String::new();
    // A seed in which too little happened has nothing to shrink.
    let Some(first) = run_on(create, plan).violations.into_iter().next() else { return text };
    let (plan, outcome) = shrink_on(create, plan, &first);
    // Writing into a text cannot fail.
    let _ = writeln!(text, "\nthe smallest plan found (seed {}):\n{plan}", plan.seed);
    let _ = writeln!(text, "  faults:\n{}\n  violations:", outcome.faults);
    for violation in &outcome.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text
}
