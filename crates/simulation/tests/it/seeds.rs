//! Which seeds to run: those of every submission by default, others by the environment.

use std::env;
use std::time::Instant;

use everturn_simulation::{Proof, Theme, prove};

/// How many seeds `EVERTURN_SIM_SEEDS` asks for.
pub(crate) fn how_many(by_default: u64) -> u64 {
    number("EVERTURN_SIM_SEEDS").unwrap_or(by_default)
}

/// The seed `EVERTURN_SIM_SEED` asks for.
pub(crate) fn first() -> u64 {
    number("EVERTURN_SIM_SEED").unwrap_or(1)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs the seeds of a theme and prints what they amount to.
pub(crate) fn hold(theme: Theme, seeds_by_default: u64) {
    let began = Instant::now();
    match prove(Proof { theme, first_seed: first(), seeds: how_many(seeds_by_default) }) {
        Ok(counts) => {
            let seeds_a_second = counts.seeds as f64 / began.elapsed().as_secs_f64();
            println!("{theme:?}: {counts}; {seeds_a_second:.1} seeds a second");
        }
        Err(text) => panic!("{text}"),
    }
}
