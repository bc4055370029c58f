//! What becomes of the engine when power, disks and processes fail: power cuts, I/O errors, kill -9, stalled processes and
//! full disks under the real runtime on the SQLite provider.
//!
//! [`disk`] is a disk in memory that loses what was not synced, [`vfs`] puts SQLite on it, and a [`machine`] runs
//! providers and runtimes on it through its lives. The [`ledger`] knows what clients were told; the [`inspector`] holds
//! what is stored against it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "this package is tests and nothing else"
)]

mod agreement;
pub mod chance;
pub mod damage;
pub mod disk;
pub mod inspector;
pub mod ledger;
pub mod load;
pub mod machine;
pub mod plan;
pub mod sim_time;
pub mod simulated;
pub mod tables;
pub mod vfs;
pub mod victim;
pub mod watched_store;
