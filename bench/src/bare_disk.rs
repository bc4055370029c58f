//! Durable commits of plain SQLite without an engine: the limit of the disk in the same run.

use std::path::Path;
use std::time::{Duration, Instant};

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, median};
use rusqlite::Connection;

const WARM_UP_COMMITS: usize = 1_000;
const SINGLE_ROW_COMMITS: usize = 500;
const RESTED_COMMITS: usize = 50;
const MANY_ROW_COMMITS: usize = 200;
const ROWS_A_COMMIT: usize = 100;
const TEXT_BYTES: usize = 100;

/// Measures in a new database in the folder of the request, with its rest (`rest_ms`) before each single-row commit.
pub(crate) fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let mut connection = warm_database(&request.folder)?;
    let rest = Duration::from_millis(request.size_or_zero("rest_ms"));
    let commits = if rest.is_zero() { SINGLE_ROW_COMMITS } else { RESTED_COMMITS };
    let commit_s = median_commit_s(&mut connection, commits, 1, rest)?;
    let many_rows_s = median_commit_s(&mut connection, MANY_ROW_COMMITS, ROWS_A_COMMIT, Duration::ZERO)?;
    let rows_per_s = ROWS_A_COMMIT as f64 / many_rows_s;
    Ok(MeasureReply::whole(Figures::of([("commit_s", commit_s), ("rows_per_s", rows_per_s)])))
}

fn warm_database(folder: &Path) -> BenchResult<Connection> {
    let mut connection = Connection::open(folder.join("bare.db"))?;
    set_up(&connection)?;
    for _ in 0..WARM_UP_COMMITS {
        commit_rows(&mut connection, 1)?;
    }
    Ok(connection)
}

/// One table of an integer key and a text, in a database as durable as the engine's.
fn set_up(connection: &Connection) -> BenchResult<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if mode != "wal" || synchronous != 2 {
        return Err(format!("no durable WAL database: journal_mode {mode}, synchronous {synchronous}").into());
    }
    connection.execute_batch("CREATE TABLE bare (key INTEGER PRIMARY KEY, text TEXT NOT NULL)")?;
    Ok(())
}

fn commit_rows(connection: &mut Connection, rows: usize) -> BenchResult<()> {
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

fn median_commit_s(
    connection: &mut Connection,
    commits: usize,
    rows: usize,
    rest: Duration,
) -> BenchResult<f64> {
    let mut seconds = Vec::with_capacity(commits);
    for _ in 0..commits {
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        let began = Instant::now();
        commit_rows(connection, rows)?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    median(&seconds)
}
