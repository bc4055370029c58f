//! The SQLite provider: the contract, and what is SQLite's alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod checkpoint;
mod clock_jumps;
mod conformance;
mod damage_sweep;
mod damaged_rows;
mod dead_locks;
mod group_commit;
mod guide;
mod large_turns;
mod model;
mod opening;
mod pins;
mod sharing;
mod store;
mod waking;
mod warm_steps;
