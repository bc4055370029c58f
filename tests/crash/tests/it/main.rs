//! Proofs on the SQLite provider: power cuts, I/O faults, killed and stalled processes, full disks, damage.
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

mod case;
mod damage;
mod file_system;
mod full_disk;
mod io_faults;
mod kills;
mod power_cuts;
mod simulation;
mod two_processes;
mod unreadable_rows;
mod victim_process;
mod zombies;
