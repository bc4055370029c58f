//! The faulty store: batches, lost batches, and the provider contract in batches.

mod batches;
mod conformance;
mod lost_batches;
#[path = "../../../../provider/tests/it/tokio_clock.rs"]
mod tokio_clock;
#[path = "../../../../provider/tests/it/turns.rs"]
mod turns;
