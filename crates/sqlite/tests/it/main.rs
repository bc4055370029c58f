//! The SQLite provider: the contract, and what is SQLite's alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod conformance;
