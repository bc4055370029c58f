//! Tests of the PostgreSQL provider on a real server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests report by panicking"
)]

mod conformance;
mod model;
mod outages;
mod proxy;
