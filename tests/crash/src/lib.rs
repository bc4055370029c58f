//! Power cuts, I/O errors, kill -9, stalled processes and full disks under the real runtime on the SQLite provider.
//!
//! [`disk`] is a disk in memory that loses unsynced writes, [`vfs`] is SQLite's file system on it, and a [`machine`] runs
//! providers and runtimes on it from one power cut to the next. [`observations`] has what clients, activities and runtimes
//! observed; the [`inspector`] checks stored data against it. [`simulated_store`] is the same disk under the simulation.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "this package contains only tests"
)]

mod activities;
mod clients;
pub mod damage;
pub mod disk;
mod history_rules;
pub mod inspector;
pub mod instance_script;
mod lock_tracker;
pub mod machine;
pub mod observations;
mod observed_store;
pub mod random;
pub mod simulated_store;
pub mod tables;
pub mod vfs;
pub mod victim;
mod work_places;
