//! R15: the proofs catch bugs. A proof that has never failed may be unable to fail, so bugs are planted.
//!
//! The product's sources have no trace of this. [`plant`] copies the workspace and replaces a few texts of the copy, so that
//! each [`PlantedBug`] can be switched on by its name in the environment; test modules that no trial needs stay out of it
//! ([`KEPT_MODULES`]). [`build`] builds the tests of the copy once, for all
//! bugs. A [`Trial`] names a bug and the proof that must catch it; [`run`] runs a proof of the copy with a bug or without.
//!
//! A change of the product may remove a text that a bug replaces. Then the tests here name the bug, the file and the text:
//! find the place where the same mistake could be made now, and change the entry in `bugs.rs`.
#![forbid(unsafe_code)]

mod bugs;
mod build;
mod kept_modules;
mod run;
mod tree;
mod trials;

pub use bugs::{BUGS, PlantedBug};
pub use build::{ProofBinaries, build};
pub use kept_modules::{KEPT_MODULES, KeptModules};
pub use run::{ProofResult, run};
pub use tree::plant;
pub use trials::{ProofRun, TRIALS, TestPackage, Trial};
