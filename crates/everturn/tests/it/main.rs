//! What the contract promises, section by section.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod contract_01_01_layout;
mod contract_01_02_handlers;
mod contract_01_03_typed;
mod contract_01_06_10_kv;
mod contract_01_06_11_system_calls;
mod contract_01_06_1_identity_and_replay;
mod contract_01_06_3_retry;
mod contract_01_06_4_timers;
mod contract_01_06_5_signals_and_queues;
mod contract_01_07_activity_context;
mod contract_01_08_registries;
mod contract_01_09_runtime_entry_points;
mod contract_01_10_orchestration_status;
mod contract_01_11_sessions;
mod contract_01_12_tags;
mod contract_01_13_determinism;
mod contract_01_14_limits;
mod contract_03_01_loops;
mod contract_03_02_commit_errors;
mod contract_03_02_pipeline;
mod contract_03_02_resolution;
mod contract_03_05_outcomes;
mod contract_03_06_cancellation;
mod contract_03_07_races;
mod contract_03_08_continue_as_new;
mod contract_03_09_sub_orchestrations;
mod contract_03_10_poison;
mod contract_03_11_unregistered;
mod contract_03_12_capability;
mod contract_03_13_counts;
mod contract_03_13_metrics;
mod contract_03_14_tracing;
mod contract_03_15_locks;
mod contract_03_15_sessions;
mod contract_03_16_shutdown;
mod contract_03_17_options;
mod contract_03_18_fixed_and_kept;
mod contract_04_01_errors;
mod contract_04_02_starting;
mod contract_04_03_messages;
mod contract_04_04_status;
mod contract_04_05_kv;
mod contract_04_06_management;
mod contract_04_07_guarantees;
mod contract_05_01_ground_rules;
mod contract_05_02_instrumented;
mod contract_05_03_semantics;
#[cfg(feature = "sqlite")]
mod contract_05_04_sqlite;
mod contract_05_05_with_a_running_engine;
#[cfg(feature = "sqlite")]
mod damaged_file;
mod easy_to_get_wrong;
mod log_lines;
mod node_under_test;
mod noting_provider;
mod stores;
mod tampering_store;
#[path = "../../../provider/tests/it/tokio_clock.rs"]
mod tokio_clock;
mod turn_by_hand;
mod warm_instances;
