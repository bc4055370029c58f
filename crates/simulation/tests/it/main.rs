//! The engine in a simulated world.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod determinism;
mod harness;
mod progress;
mod proofs;
