//! The SQLite provider: the contract, and what only SQLite has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod backup;
mod bulk_delete;
mod checkpoint;
mod clock_jumps;
mod conformance;
mod damage_sweep;
mod damaged_rows;
mod dead_letters;
mod derived_columns;
mod engine_fences;
mod group_commit;
mod guide;
mod large_store;
mod large_turns;
mod log_growth;
mod model;
mod newer_schema;
mod opening;
mod pins;
mod prune;
mod read_only;
mod reads_during_deletion;
mod replaced_file;
mod sharing;
mod stale_locks;
mod store;
mod totals;
mod turn_messages;
mod waking;
mod warm_steps;
