//! The suite notices faults: a store with one fault fails a case.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod faulty;
mod faulty_admin;
mod noticed;
mod unwoken;
