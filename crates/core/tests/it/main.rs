//! The behaviour of the core, as tables of inputs and outputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs, unreachable_pub)]

mod harness;
mod messages;
mod random_programs;
mod summaries;

mod activities;
mod applying_events;
mod cancellation;
mod children;
mod codec;
mod combinators;
mod continue_as_new;
mod custom_status;
mod determinism;
mod durable_futures;
mod error_details;
mod event_envelope;
mod event_kinds_json;
mod identity_and_replaying;
mod key_value_store;
mod limits;
mod log_lines;
mod message_conversion;
mod new_decisions;
mod nondeterminism;
mod panics_and_aborts;
mod parent_notices;
mod payload_limit;
mod public_constants;
mod queues;
mod races;
mod retries;
mod signals;
mod successors;
mod system_calls;
mod system_stats_json;
mod timers;
mod turn_effects;
mod turn_loop;
mod turn_outcomes;
mod warm_equals_cold;
mod what_a_call_records;
mod work_items_json;
