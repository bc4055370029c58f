//! Runs every example as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod built;
mod every_example;
mod killed_orders;
mod order;
