//! The contract of the pure heart, as tables of inputs and outputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs, unreachable_pub)]

mod lines;
mod messages;
mod programs;
mod stage;

mod contract_01_03_codec;
mod contract_01_04_durable_future;
mod contract_01_05_combinators;
mod contract_01_06_activities;
mod contract_01_06_children;
mod contract_01_06_continue_as_new;
mod contract_01_06_custom_status;
mod contract_01_06_identity_and_replay;
mod contract_01_06_kv;
mod contract_01_06_queues;
mod contract_01_06_retry_policy;
mod contract_01_06_signals;
mod contract_01_06_system_calls;
mod contract_01_06_timers;
mod contract_01_06_tracing;
mod contract_01_13_determinism;
mod contract_01_14_limits;
mod contract_01_14_payloads;
mod contract_02_01_event_envelope;
mod contract_02_02_event_kinds;
mod contract_02_03_work_items;
mod contract_02_04_error_details;
mod contract_02_05_what_a_call_records;
mod contract_02_06_system_stats;
mod contract_02_07_identity_strings;
mod contract_03_03_1_converting_messages;
mod contract_03_03_2_loop;
mod contract_03_03_3_applying;
mod contract_03_03_4_nondeterminism;
mod contract_03_03_5_new_decisions;
mod contract_03_03_6_finalising;
mod contract_03_04_errors;
mod contract_03_05_effects;
mod contract_03_06_cancellation;
mod contract_03_07_races;
mod contract_03_08_continue_as_new;
mod contract_03_09_sub_orchestrations;
mod warm_equals_cold;
