//! Everturn's embedded provider: one SQLite file, or a database in memory.
//!
//! One thread owns the only connection that writes. Every call that writes sends it an operation; the operations that
//! wait at the same time share one transaction, and so one sync of the disk. A fetch that finds nothing waits in the
//! writer until there is work for it. Reads have connections of their own.
#![forbid(unsafe_code)]

mod abandon_orchestration_item;
mod abandon_work_item;
mod ack_orchestration_item;
mod ack_work_item;
mod admin;
mod append_with_execution;
mod batch;
mod checkpoint;
mod columns;
mod delete;
mod due;
mod enqueue;
mod error;
mod fetch_orchestration_item;
mod fetch_work_item;
mod hand_back;
mod history;
mod inbox;
mod kv;
mod locks;
mod mailbox;
mod moment;
mod offers;
mod open;
mod operation;
mod options;
mod pragmas;
mod process_lock;
mod provider;
mod prune;
mod read;
mod readers;
mod schema;
mod sessions;
mod shared;
mod url;
mod waiters;
mod watches;
mod writer;
mod writer_task;
mod writer_thread;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-provider.md")]
mod guide {}

pub use error::SqliteError;
pub use options::{SqliteOptions, Synchronous};
pub use provider::SqliteProvider;
