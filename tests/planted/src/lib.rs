//! R15: a harness that has never caught a bug is not known to work, so bugs are planted.
//!
//! The [`CATALOGUE`] names each bug, what it breaks and the proof that must catch it. [`built`] builds those proofs a second
//! time, with the feature `planted-bugs` of `everturn-core` and in a target folder of their own; [`try_out`] runs one of
//! them with a bug in it, or without.

mod binaries;
mod catalogue;
mod trial;

pub use binaries::{Binary, built};
pub use catalogue::{CATALOGUE, Package, Planted, Proof};
pub use trial::{Trial, try_out};
