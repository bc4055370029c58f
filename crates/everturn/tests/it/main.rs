//! What a program that uses Everturn can rely on, tested through the public API on a store in memory and on a SQLite file.
//!
//! `docs/semantics.md` describes the same behaviour and links each of its sections to a module here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

// The authoring API: what orchestrations and activities are written with.
mod activity_context;
mod determinism;
#[cfg(feature = "sqlite")]
mod fused_steps;
mod futures_crate;
mod handlers;
mod identity_and_replay;
mod key_value_store;
mod limits;
mod public_paths;
mod registries;
mod retry;
mod signals_and_queues;
mod system_calls;
mod tags;
mod timers;
mod typed_values;

// The way of an instance: turns, their commits, and what follows from their end.
mod cancellation;
mod cancellation_delivery;
mod commit_errors;
mod continue_as_new;
mod continue_as_new_window;
mod dead_letters;
mod handler_resolution;
mod instance_lifecycle;
mod large_sizes;
mod message_timing;
mod parents_and_strangers;
mod poison;
mod races;
mod sub_orchestrations;
mod turn_outcomes;
mod turns_fetched_together;
mod unregistered_handlers;
mod warm_instances;

// The runtime: its options, loops, locks, sessions, logs and metrics.
mod blocking_destructors;
mod capability_filter;
mod lock_renewal;
mod logging;
mod metrics;
mod outages_and_attempts;
mod outages_and_panics;
mod runtime_loops;
mod runtime_options;
mod runtime_start;
mod session_affinity;
mod session_leases;
mod shutdown;

// The client.
mod client_errors;
mod client_guarantees;
mod client_key_value_reads;
mod client_management;
mod client_requests;
mod client_status_and_waits;
mod client_waits;
mod orchestration_status;

// Providers, as the engine and its users meet them.
#[cfg(feature = "sqlite")]
mod damaged_file;
mod instrumented_conformance;
mod instrumented_provider;
#[cfg(feature = "sqlite")]
mod opening_by_url;
#[cfg(feature = "sqlite")]
mod sqlite_provider;
mod store_ground_rules;

// What the tests are built with: stores, fakes, recorders.
mod log_lines;
mod node_under_test;
mod recording_store;
mod stores;
mod tampering_store;
#[path = "../../../provider/tests/it/tokio_clock.rs"]
mod tokio_clock;
mod turn_by_hand;
