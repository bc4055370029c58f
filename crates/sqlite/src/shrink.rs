//! The file becomes smaller after deletions: free pages are given back to the disk, a few at a time.

use rusqlite::Connection;

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};

/// So many pages one step gives back. It takes a few milliseconds: pages at the end of the file move to free places.
const STEP_PAGES: i64 = 32;
/// So many free pages stay, for what is written next.
const KEPT_PAGES: i64 = 256;
/// Or this part of all pages, if that is more.
const KEPT_PART: i64 = 16;

// A batch that changes no row is not committed.
const CHANGE_A_ROW: &str = "UPDATE everturn_totals SET totals_key = totals_key";

/// Whether the file can give pages back, if the database is in one.
pub(crate) fn is_possible(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(number(conn, "PRAGMA auto_vacuum")? == 2)
}

/// Whether the file has so many free pages that some go back to the disk.
pub(crate) fn is_wanted(conn: &Connection) -> rusqlite::Result<bool> {
    let kept = KEPT_PAGES.max(number(conn, "PRAGMA page_count")? / KEPT_PART);
    Ok(number(conn, "PRAGMA freelist_count")? > kept)
}

fn number(conn: &Connection, sql: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Gives some free pages back.
pub(crate) struct ShrinkFile;

impl Verb for ShrinkFile {
    type Answer = ();
    const NAME: &'static str = "shrink_file";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        // Every page is a row of the answer.
        let mut vacuum = scope.conn.prepare_cached(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        // Without a change the step is rolled back, and another one would do no more.
        scope.effects.freed = scope.conn.prepare_cached(CHANGE_A_ROW)?.execute([])? > 0;
        Ok(())
    }
}
