//! In memory, without the cases that damage rows.

use super::MemoryFactory;

everturn_conformance::abandon_turn_cases!(MemoryFactory::new());
everturn_conformance::admin_cases!(MemoryFactory::new());
everturn_conformance::as_store_cases!(MemoryFactory::new());
everturn_conformance::concurrency_cases!(MemoryFactory::new());
everturn_conformance::delete_cases!(MemoryFactory::new());
everturn_conformance::delete_instance_bulk_cases!(MemoryFactory::new());
everturn_conformance::dropped_futures_cases!(MemoryFactory::new());
everturn_conformance::dropped_writes_cases!(MemoryFactory::new());
everturn_conformance::executions_cases!(MemoryFactory::new());
everturn_conformance::fetch_turns_cases!(MemoryFactory::new());
everturn_conformance::fetch_work_cases!(MemoryFactory::new());
everturn_conformance::kv_executions_cases!(MemoryFactory::new());
everturn_conformance::locks_cases!(MemoryFactory::new());
everturn_conformance::long_poll_cases!(MemoryFactory::new());
everturn_conformance::poison_cases!(MemoryFactory::new());
everturn_conformance::prune_cases!(MemoryFactory::new());
everturn_conformance::raw_writes_cases!(MemoryFactory::new());
everturn_conformance::read_custom_status_cases!(MemoryFactory::new());
everturn_conformance::read_kv_values_cases!(MemoryFactory::new());
everturn_conformance::read_orchestration_name_cases!(MemoryFactory::new());
everturn_conformance::read_stats_cases!(MemoryFactory::new());
everturn_conformance::renew_cases!(MemoryFactory::new());
everturn_conformance::session_leases_cases!(MemoryFactory::new());
everturn_conformance::sessions_cases!(MemoryFactory::new());
everturn_conformance::settle_work_cases!(MemoryFactory::new());
everturn_conformance::submit_cases!(MemoryFactory::new());
everturn_conformance::sweep_cases!(MemoryFactory::new());
everturn_conformance::tags_cases!(MemoryFactory::new());
everturn_conformance::tokens_cases!(MemoryFactory::new());
everturn_conformance::turn_wake_ups_cases!(MemoryFactory::new());
everturn_conformance::unknown_instance_cases!(MemoryFactory::new());
everturn_conformance::warm_cases!(MemoryFactory::new());
everturn_conformance::work_wake_ups_cases!(MemoryFactory::new());
