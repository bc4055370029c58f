//! How a proof is run.
//!
//! A proof is a test of many cases, each from a seed of its own. [`proof!`] makes one, [`Proof::run`] runs its cases on
//! all processors, adds up their [`Counts`], and fails if a case failed, if too little happened, or if fewer than 95 of
//! a hundred instances finished: an empty pass is no pass.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `EVERTURN_PROOF_SEED` | the seed of the first case, 1 if not set; the next case has the next one |
//! | `EVERTURN_PROOF_CASES` | how many cases, in the unit the proof counts |
//! | `EVERTURN_PROOF_SECONDS` | instead: as many cases as this time allows |
//! | `EVERTURN_PROOF_PROGRESS` | if set, a line a second says how far it is |
//! | `EVERTURN_CRUEL` | if 1, the tests run under cruel settings ([`is_cruel`]), and everything large at a tenth |
//!
//! What a proof says of itself goes to the standard error, a [`Report`] a line, whether or not the test runner keeps
//! the output of tests to itself.
#![forbid(unsafe_code)]

mod counts;
mod cruel;
mod failure;
mod proof;
mod report;
mod watchdog;

pub use counts::{Counts, FINISHED, INSTANCES};
pub use cruel::{is_cruel, many};
pub use failure::Failure;
pub use proof::Proof;
pub use report::{Report, State};
pub use watchdog::watched;
