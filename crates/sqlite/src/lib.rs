//! Everturn's embedded provider: one SQLite file, or a database in memory.
//!
//! One thread owns the only connection that writes. Every call that writes sends it a command; the operations that are
//! pending at the same time share one transaction, and so one sync of the disk. A fetch that finds nothing is parked in the
//! writer until there is work for it. Reads have connections of their own.
//!
//! Each verb is a file: `fetch_turns`, `commit_turn`, `abandon_turn`, `fetch_work`, `settle_work`, `renew`, `submit`,
//! `sweep`, `read`, `raw_writes`, and `admin`, `delete`, `prune` for the management side. What time changes has files of its
//! own: `due_timers` makes messages visible and ends delays, `expired_locks` ends locks and leases.
#![forbid(unsafe_code)]

mod abandon_turn;
mod admin;
mod backup;
mod checkpoint;
mod clock_reading;
mod columns;
mod command_queue;
mod commit_step;
mod commit_turn;
mod damaged_activity;
mod dead_letters;
mod delete;
mod delete_bulk;
mod due_rows;
mod due_timers;
mod engine_version;
mod error;
mod expired_locks;
mod fetch_turns;
mod fetch_work;
mod fetched_messages;
mod file_identity;
mod frozen_file;
mod garbage;
mod history;
mod identity;
mod kv;
mod list_instances;
mod locks;
mod open;
mod open_file;
mod operation;
mod options;
mod orchestrator_queue;
mod owned_rows;
mod owners;
mod parked_fetches;
mod payloads;
mod pragmas;
mod process_lock;
mod provider;
mod prune;
#[cfg(test)]
mod query_plans;
mod queue_depths;
mod raw_writes;
mod read;
mod reader_gate;
mod readers;
mod ready_instances;
mod ready_unbound;
mod ready_work;
mod renew;
mod return_unread;
mod row_counts;
mod schema;
mod sessions;
mod settle_work;
mod shrink;
mod stale_locks;
mod store_guard;
mod submit;
mod sweep;
#[doc(hidden)]
pub mod testing;
mod totals;
mod unknown_instance;
mod unreadable;
mod url;
mod watches;
mod worker_queue;
mod writer;
mod writers_of_process;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-provider.md")]
mod guide {}

pub use error::SqliteError;
pub use options::{SqliteOptions, Synchronous};
pub use provider::SqliteProvider;
