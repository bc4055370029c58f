//! Durable commits of plain SQLite without the engine: the reference for all other figures.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::Result;
use crate::figures::median;

const WARM_UP_COMMITS: usize = 2_000;
const SINGLE_ROW_COMMITS: usize = 1_000;
const MANY_ROW_COMMITS: usize = 200;
const ROWS_A_COMMIT: usize = 100;
const TEXT_BYTES: usize = 100;

/// Durable commits of plain SQLite, at the median.
pub(crate) struct BareDisk {
    /// Seconds that a durable commit of one row takes.
    pub(crate) commit_s: f64,
    /// Rows a second in durable transactions of a hundred rows.
    pub(crate) rows_per_s: f64,
}

impl BareDisk {
    /// Measures in a new database in this folder.
    pub(crate) fn measure(folder: &Path) -> Result<Self> {
        let (_folder, mut connection) = warm_database(folder)?;
        let commit_s = median_commit_s(&mut connection, SINGLE_ROW_COMMITS, 1, Duration::ZERO)?;
        let many_rows_s = median_commit_s(&mut connection, MANY_ROW_COMMITS, ROWS_A_COMMIT, Duration::ZERO)?;
        Ok(Self { commit_s, rows_per_s: ROWS_A_COMMIT as f64 / many_rows_s })
    }

    pub(crate) fn mean(before: &Self, after: &Self) -> Self {
        Self {
            commit_s: (before.commit_s + after.commit_s) / 2.0,
            rows_per_s: (before.rows_per_s + after.rows_per_s) / 2.0,
        }
    }
}

/// Seconds that a durable commit of one row takes after a rest.
pub(crate) fn rested_commit_s(folder: &Path, commits: usize, rest: Duration) -> Result<f64> {
    let (_folder, mut connection) = warm_database(folder)?;
    median_commit_s(&mut connection, commits, 1, rest)
}

fn warm_database(folder: &Path) -> Result<(TempDir, Connection)> {
    let folder = tempfile::Builder::new().prefix("bare-").tempdir_in(folder)?;
    let mut connection = Connection::open(folder.path().join("bare.db"))?;
    set_up(&connection)?;
    for _ in 0..WARM_UP_COMMITS {
        commit_rows(&mut connection, 1)?;
    }
    Ok((folder, connection))
}

/// One table of an integer key and a text, in a database as durable as the engine's.
fn set_up(connection: &Connection) -> Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if mode != "wal" || synchronous != 2 {
        return Err(format!("no durable WAL database: journal_mode {mode}, synchronous {synchronous}").into());
    }
    connection.execute_batch("CREATE TABLE bare (key INTEGER PRIMARY KEY, text TEXT NOT NULL)")?;
    Ok(())
}

fn commit_rows(connection: &mut Connection, rows: usize) -> Result<()> {
    let text = "x".repeat(TEXT_BYTES);
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare_cached("INSERT INTO bare (text) VALUES (?1)")?;
        for _ in 0..rows {
            insert.execute([&text])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn median_commit_s(connection: &mut Connection, commits: usize, rows: usize, rest: Duration) -> Result<f64> {
    let mut seconds = Vec::with_capacity(commits);
    for _ in 0..commits {
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        let began = Instant::now();
        commit_rows(connection, rows)?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    median(seconds)
}
