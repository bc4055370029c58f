//! Waking rows that have become due, a bounded number at a time.

use crate::operation::{Scope, VerbFailure};
use crate::unreadable::RowPlace;

/// How many rows of a kind one batch wakes at most; the rest follows in the next batch.
const WAKE_MAX: i64 = 1_000;

/// Wakes one row. A damaged row that refuses it does not keep the others from waking, nor does a row that cannot be read.
pub(crate) fn wake_row(
    scope: &mut Scope<'_>,
    place: RowPlace,
    wake: impl FnOnce(&mut Scope<'_>) -> Result<(), VerbFailure>,
) -> Result<(), VerbFailure> {
    if let Some(error) = scope.change_row(place, wake)? {
        tracing::warn!(target: "everturn::providers::sqlite", %error,
            "a row that is due is damaged and stays as it is; the others are woken");
    }
    Ok(())
}

/// Rows that have become due. Sets `more` if there are more.
pub(crate) fn due_rows(scope: &Scope<'_>, select: &str, more: &mut bool) -> Result<Vec<i64>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(select)?;
    let due = select.query_map([scope.now.wall_ms, WAKE_MAX], |row| row.get(0))?;
    let due = due.collect::<rusqlite::Result<Vec<_>>>()?;
    *more |= is_full(&due);
    Ok(due)
}

fn is_full<T>(rows: &[T]) -> bool {
    i64::try_from(rows.len()).is_ok_and(|rows| rows >= WAKE_MAX)
}
