//! Tests of the PostgreSQL provider on a real server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests report by panicking"
)]

mod batches;
mod conformance;
mod many_waiting;
mod model;
mod outages;
mod proxy;
mod server_time;
mod store;
mod unread_locks;
