//! Proofs on the SQLite provider: power cuts, I/O faults, killed and stalled processes, a full disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod damage;
mod file_system;
mod full_disk;
mod io_faults;
mod kills;
mod power_cuts;
mod process;
mod simulation;
mod zombies;
