//! The file system itself: SQLite works on it, and a power cut loses unsynced writes.

use std::sync::Arc;

use everturn_crash_tests::disk::Disk;
use everturn_crash_tests::vfs::Vfs;
use rusqlite::{Connection, OpenFlags};

fn open(vfs: &Vfs) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    Connection::open_with_flags_and_vfs("/db", flags, vfs.name()).unwrap()
}

fn prepare(conn: &Connection, synchronous: &str) {
    conn.execute_batch(&format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}")).unwrap();
    conn.execute_batch("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, filler BLOB)").unwrap();
}

fn count(conn: &Connection) -> i64 {
    conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// Inserts until the power fails; returns how many rows were committed, and how many there are afterwards.
fn committed_and_kept(synchronous: &str, seed: u64) -> (i64, i64) {
    let disk = Arc::new(Disk::new(seed));
    let vfs = Vfs::register(Arc::clone(&disk), seed);
    let conn = open(&vfs);
    prepare(&conn, synchronous);
    disk.cut_power_after(seed % 200);
    let mut committed = 0;
    while conn.execute("INSERT INTO t (filler) VALUES (randomblob(3000))", []).is_ok() {
        committed += 1;
    }
    assert!(disk.is_powered_off());
    drop(conn);
    assert_eq!(vfs.open_files(), 0);
    disk.restart();
    let conn = open(&vfs);
    let integrity: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok", "seed {seed}");
    // The table itself may be lost.
    prepare(&conn, "FULL");
    (committed, count(&conn))
}

#[test]
fn what_was_committed_with_full_sync_survives() {
    for seed in 0..300 {
        let (committed, kept) = committed_and_kept("FULL", seed);
        assert!(kept >= committed, "seed {seed}: {committed} rows were committed, {kept} are left");
    }
}

#[test]
fn what_was_committed_with_normal_sync_may_be_lost() {
    let lossy = (0..300).map(|seed| committed_and_kept("NORMAL", seed)).filter(|(done, kept)| kept < done);
    assert!(lossy.count() > 50, "the disk must lose unsynced writes");
}

#[test]
fn readers_and_the_writer_share_memory() {
    let disk = Arc::new(Disk::new(1));
    let vfs = Vfs::register(Arc::clone(&disk), 1);
    let writer = open(&vfs);
    prepare(&writer, "FULL");
    let reader = open(&vfs);
    for n in 1..=100 {
        writer.execute("INSERT INTO t (filler) VALUES (zeroblob(100))", []).unwrap();
        assert_eq!(count(&reader), n);
    }
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader), 100);
    writer.execute("DELETE FROM t", []).unwrap();
    assert_eq!(count(&reader), 100, "a reader stays at its snapshot");
    let blocked = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    assert!(blocked.unwrap());
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&reader), 0);
    drop((writer, reader));
    assert_eq!(count(&open(&vfs)), 0, "closing moves the log into the file");
}
