//! What the contract promises, section by section.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

mod contract_01_01_layout;
mod contract_01_03_typed;
mod contract_01_07_activity_context;
mod contract_01_08_registries;
mod contract_03_02_commit_errors;
mod contract_03_02_pipeline;
mod contract_03_06_cancellation;
mod contract_03_10_poison;
mod contract_03_13_counts;
mod contract_03_13_metrics;
mod contract_03_15_sessions;
mod contract_03_16_shutdown;
mod contract_03_17_options;
mod contract_04_01_errors;
mod contract_04_02_starting;
mod contract_04_03_messages;
mod contract_04_04_status;
mod contract_04_05_kv;
mod contract_04_06_management;
mod contract_05_02_instrumented;
mod easy_to_get_wrong;
mod node_under_test;
mod noting_provider;
mod stores;
mod tampering_store;
mod turn_by_hand;
mod warm_instances;
