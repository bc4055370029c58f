//! Everturn's provider for several machines: a PostgreSQL database.
//!
//! Calls that write share transactions: the operations that wait at the same time are one batch, which takes two round trips
//! and one sync of the server's disk. Fetches that wait for work are served together. Notifications tell other processes of
//! news, and every process looks for itself once a second.
//!
//! Each verb is a file: `fetch_turns`, `commit_turn`, `commit_step`, `abandon_turn`, `fetch_work`, `settle_work`, `renew`,
//! `submit`, `sweep`, `read`, `raw_writes`, and `admin`, `delete`, `prune` for the management side.
#![forbid(unsafe_code)]

mod abandon_turn;
mod admin;
mod callbacks;
mod commit_lane;
mod commit_queue;
mod commit_step;
mod commit_turn;
mod damaged_activity;
mod dead_letters;
mod delete;
mod delete_bulk;
mod drawn_locks;
mod due;
mod engine_version;
mod error;
mod fetch_lane;
mod fetch_turns;
mod fetch_work;
mod hosts;
mod instance_image;
mod kv;
mod link;
mod list_instances;
mod load;
mod locks;
mod needs;
mod notices;
mod operation;
mod options;
mod orchestrator_queue;
mod parked_fetches;
mod provider;
mod prune;
mod queue_depths;
mod raw_writes;
mod read;
mod readers;
mod renew;
mod retry;
mod return_unread;
mod schema;
mod server;
mod server_time;
mod session;
mod sessions;
mod settle_work;
mod shared;
mod submit;
mod sweep;
#[doc(hidden)]
pub mod testing;
mod text;
mod totals;
mod unit_of_work;
mod unknown_instance;
mod url;
mod watches;
mod writes;

pub use error::PostgresError;
pub use options::PostgresOptions;
pub use provider::PostgresProvider;
