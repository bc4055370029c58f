//! Makes a failing plan small enough to be read.

use std::time::{Duration, Instant};

use crate::fault_plan::Fault;
use crate::memory_world;
use crate::plan::Plan;
use crate::program::{Action, Ending, Program};
use crate::world::{Outcome, run_on};
use crate::world_store::CreateStore;

/// How many worlds may be run to shrink one.
const RUNS_MAX: u32 = 1_500;
/// How long that may take.
const TIME_MAX: Duration = Duration::from_secs(60);
/// A smaller plan draws other faults; so many seeds are tried before it counts as good.
const SEEDS: u64 = 4;

/// A smaller plan with the same violation, and its outcome.
pub fn shrink(plan: &Plan, broken: &str) -> (Plan, Outcome) {
    shrink_on(memory_world::create, plan, broken)
}

/// The same on another store.
pub fn shrink_on(create: CreateStore, plan: &Plan, broken: &str) -> (Plan, Outcome) {
    let mut search =
        Search { create, best: plan.clone(), kind: kind_of(broken), runs: 0, began: Instant::now() };
    loop {
        let before = search.best.clone();
        search.fewer_roots();
        search.fewer_faults();
        search.fewer_steps();
        search.plainer_ends();
        if search.best == before || search.is_over() {
            let outcome = run_on(create, &search.best);
            return (search.best, outcome);
        }
    }
}

/// What a violation is about, whatever instance and number it names.
fn kind_of(violation: &str) -> String {
    let words = violation.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic));
    words.take(6).collect::<Vec<_>>().join(" ")
}

struct Search {
    create: CreateStore,
    best: Plan,
    kind: String,
    runs: u32,
    began: Instant,
}

impl Search {
    fn is_over(&self) -> bool {
        self.runs >= RUNS_MAX || self.began.elapsed() >= TIME_MAX
    }

    /// Keeps a smaller plan if it still has the same violation, with its own seed or another.
    fn offer(&mut self, mut plan: Plan) -> bool {
        let seed = plan.seed;
        for attempt in 0..SEEDS {
            if self.is_over() {
                return false;
            }
            plan.seed = seed.wrapping_add(attempt.wrapping_mul(0x9E37_79B9));
            self.runs += 1;
            if run_on(self.create, &plan).violations.iter().any(|violation| kind_of(violation) == self.kind) {
                self.best = plan;
                return true;
            }
        }
        false
    }

    fn fewer_faults(&mut self) {
        // They have no number to be spared by.
        let mut plan = self.best.clone();
        if plan.faults.rates.remove(&Fault::NodeClock).is_some() {
            self.offer(plan);
        }
        let mut least = 0;
        while least < self.best.faults.faults_max {
            let mut plan = self.best.clone();
            plan.faults.faults_max = least + (plan.faults.faults_max - least) / 2;
            let tried = plan.faults.faults_max;
            if !self.offer(plan) {
                least = tried + 1;
            }
        }
        let mut chunk = self.best.faults.faults_max.div_ceil(2);
        while chunk > 0 {
            for from in (0..self.best.faults.faults_max).step_by(chunk as usize) {
                let mut plan = self.best.clone();
                let end = (from + chunk).min(plan.faults.faults_max);
                let spared_before = plan.faults.spared.len();
                plan.faults.spared.extend(from..end);
                if plan.faults.spared.len() > spared_before {
                    self.offer(plan);
                }
            }
            chunk /= 2;
        }
    }

    fn fewer_roots(&mut self) {
        let mut chunk = self.best.roots.len().div_ceil(2);
        while chunk > 0 {
            let mut from = 0;
            while from < self.best.roots.len() && self.best.roots.len() > 1 {
                let mut plan = self.best.clone();
                let end = (from + chunk).min(plan.roots.len());
                plan.roots.drain(from..end);
                if plan.roots.is_empty() || !self.offer(plan) {
                    from += chunk;
                }
            }
            chunk /= 2;
        }
    }

    fn fewer_steps(&mut self) {
        let mut chunk = 8;
        while chunk > 0 {
            let mut skipped = 0;
            loop {
                let mut plan = self.best.clone();
                if remove_steps(&mut plan, skipped, chunk) == 0 {
                    break;
                }
                if !self.offer(plan) {
                    skipped += chunk;
                }
            }
            chunk /= 2;
        }
    }

    fn plainer_ends(&mut self) {
        for index in 0..self.best.roots.len() {
            let mut plan = self.best.clone();
            if let Some(root) = plan.roots.get_mut(index)
                && (root.program.ending != Ending::Complete || root.cancel_after_ms.is_some())
            {
                root.program.ending = Ending::Complete;
                root.cancel_after_ms = None;
                self.offer(plan);
            }
        }
    }
}

/// Takes out up to `count` steps after the first `skip`, wherever they are; returns how many.
fn remove_steps(plan: &mut Plan, skip: usize, count: usize) -> usize {
    let mut cut = Cut { skip, count, removed: 0 };
    for root in &mut plan.roots {
        cut.remove_from(&mut root.program);
    }
    cut.removed
}

struct Cut {
    skip: usize,
    count: usize,
    removed: usize,
}

impl Cut {
    fn remove_from(&mut self, program: &mut Program) {
        program.steps.retain_mut(|step| {
            if self.skip == 0 && self.removed < self.count {
                self.removed += 1;
                return false;
            }
            self.skip = self.skip.saturating_sub(1);
            match &mut step.action {
                Action::Child { program } | Action::NamedChild { program } | Action::Detached { program } => {
                    self.remove_from(program);
                }
                Action::Children { programs } => {
                    for program in programs {
                        self.remove_from(program);
                    }
                }
                _ => {}
            }
            true
        });
    }
}
