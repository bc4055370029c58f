//! The engine in a simulated world.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

// Failed comparisons say what was expected of which expression.
#[macro_use]
extern crate everturn_proof;

mod determinism;
mod faulty_store;
mod harness;
mod long_activities;
mod lost_batches;
mod poison;
mod progress;
mod proofs;
mod warm_and_cold;
