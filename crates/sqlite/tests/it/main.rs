//! The SQLite provider: the contract, and what only SQLite has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod checkpoint;
mod clock_jumps;
mod conformance;
mod damage_sweep;
mod damaged_rows;
mod group_commit;
mod guide;
mod large_turns;
mod model;
mod opening;
mod pins;
mod sharing;
mod stale_locks;
mod store;
mod waking;
mod warm_steps;
