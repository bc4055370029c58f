//! Behaviour of the in-memory provider beyond the contract that every provider follows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod clock_jumps;
mod conformance;
mod damage;
mod default_bodies;
mod tokio_clock;
mod turns;
mod waiting;
mod warm;
