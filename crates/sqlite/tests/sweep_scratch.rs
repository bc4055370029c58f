#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs, dead_code)]
#[path = "it/damage_sweep/mod.rs"]
mod damage_sweep;
#[path = "it/store.rs"]
mod store;
