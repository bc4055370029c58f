//! Numbers of rows, as SQLite takes them and as answers give them.

/// A number of rows as SQLite takes it.
pub(crate) fn stored(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// A number of rows as answers give it.
pub(crate) fn answered(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}
