//! Databases on a throw-away PostgreSQL server at its defaults, on the measured disk.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use everturn_bench_protocol::BenchResult;
use everturn_test_server::{Durability, TestServer};

/// A running server.
pub(crate) struct PostgresCluster {
    server: TestServer,
    databases: AtomicU64,
    empty_bytes: f64,
}

/// A database of the cluster. It is removed when it is dropped.
pub(crate) struct Database<'a> {
    cluster: &'a PostgresCluster,
    name: String,
}

impl PostgresCluster {
    /// Starts a server with its data below this folder.
    pub(crate) fn start(folder: &Path) -> BenchResult<Self> {
        let server = TestServer::start(folder, Durability::Synced)?;
        let mut cluster = Self { server, databases: AtomicU64::new(0), empty_bytes: 0.0 };
        let empty_bytes = cluster.new_database()?.all_bytes()?;
        cluster.empty_bytes = empty_bytes;
        Ok(cluster)
    }

    pub(crate) fn new_database(&self) -> BenchResult<Database<'_>> {
        let name = format!("bench_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.server.query("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(Database { cluster: self, name })
    }
}

impl Database<'_> {
    pub(crate) fn url(&self) -> String {
        self.cluster.server.url(&self.name)
    }

    /// Bytes of the database beyond those of an empty one.
    pub(crate) fn bytes(&self) -> BenchResult<f64> {
        Ok(self.all_bytes()? - self.cluster.empty_bytes)
    }

    /// Bytes that the server has written to its log so far.
    pub(crate) fn log_bytes(&self) -> BenchResult<f64> {
        self.number("SELECT pg_current_wal_lsn() - '0/0'")
    }

    fn all_bytes(&self) -> BenchResult<f64> {
        self.number("SELECT pg_database_size(current_database())")
    }

    fn number(&self, sql: &str) -> BenchResult<f64> {
        Ok(self.cluster.server.query(&self.name, sql)?.parse()?)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // The whole server is removed at the end; this only frees the disk earlier.
        drop(self.cluster.server.query("postgres", &format!("DROP DATABASE {} WITH (FORCE)", self.name)));
    }
}
