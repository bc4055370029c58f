//! What a workload left on the disk, for systems that keep it in an SQLite file or a PostgreSQL database.

use std::path::Path;

use everturn_bench_protocol::{BenchResult, Figures, MeasureRequest};
use rusqlite::Connection;

use super::postgres_cluster::Database;

/// Adds the bytes per instance and per step, of workloads that have both, unless the measuring process has said it.
pub(crate) fn add_to(
    figures: &mut Figures,
    request: &MeasureRequest,
    database: Option<&Database<'_>>,
    log_bytes_before: Option<f64>,
) {
    let (Ok(instances), Ok(activities)) = (request.size("instances"), request.size("activities")) else {
        return;
    };
    if figures.get("file_bytes_per_instance").is_ok() {
        return;
    }
    if let Some(Ok(after)) = database.map(Database::log_bytes)
        && let Some(before) = log_bytes_before
    {
        figures.set("log_bytes_per_step", (after - before) / (instances * activities) as f64);
    }
    let bytes = match database {
        Some(database) => database.bytes(),
        None => sqlite_bytes(&request.folder),
    };
    // Not every system has a file that can be read from outside.
    if let Ok(bytes) = bytes
        && bytes > 0.0
    {
        figures.set("file_bytes_per_instance", bytes / instances as f64);
        figures.set("file_bytes_per_step", bytes / (instances * activities) as f64);
    }
}

/// Bytes of the databases in a folder, with their logs moved into them.
fn sqlite_bytes(folder: &Path) -> BenchResult<f64> {
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "db") {
            let connection = Connection::open(&path)?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            drop(connection);
            bytes += path.metadata()?.len() as f64;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_counts_once_it_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("engine.db")).unwrap();
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        connection
            .execute_batch("CREATE TABLE t (x BLOB); INSERT INTO t VALUES (zeroblob(1000000))")
            .unwrap();
        let mut request = MeasureRequest::parse(std::iter::empty()).unwrap();
        request.folder = folder.path().to_path_buf();
        request.sizes = [("instances".to_owned(), 100), ("activities".to_owned(), 5)].into();
        let mut figures = Figures::default();
        add_to(&mut figures, &request, None, None);
        let per_instance = figures.get("file_bytes_per_instance").unwrap();
        assert!((10_000.0..11_000.0).contains(&per_instance), "{per_instance}");
        assert_eq!(figures.get("file_bytes_per_step").unwrap(), per_instance / 5.0);
    }
}
