//! The runner of the proofs.
//!
//! A proof is a test of many cases, each from a seed of its own. [`proof!`] makes one, [`Proof::run`] runs its cases on
//! all processors, adds up their [`Counts`], and fails if a case failed, if too little happened, or if fewer than 95 of
//! a hundred instances finished: a proof in which little happens does not count.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `EVERTURN_PROOF_SEED` | the seed of the first case, 1 if not set; the next case has the next one |
//! | `EVERTURN_PROOF_CASES` | how many cases, in the unit the proof counts |
//! | `EVERTURN_PROOF_SECONDS` | instead of a number of cases: as many as this time allows |
//! | `EVERTURN_PROOF_PROGRESS` | if set, prints the progress every second |
//! | `EVERTURN_STRESS` | if 1, the tests run under stress settings ([`is_stress_run`]), and large tests at a tenth |
//!
//! A proof prints its progress and its result to the standard error, one [`ProofReport`] a line, past the test runner, which
//! would capture it.
#![forbid(unsafe_code)]

mod assert_eq;
mod counts;
mod failure;
mod proof;
mod report;
mod stress;
mod watchdog;

#[doc(hidden)]
pub use assert_eq::difference;
pub use counts::{Counts, FINISHED, INSTANCES};
pub use failure::Failure;
pub use proof::Proof;
pub use report::{ProofReport, ProofState};
pub use stress::{is_stress_run, many};
pub use watchdog::watched;
