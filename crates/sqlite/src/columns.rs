//! Columns that may hold anything: one damaged row must not stop a query.

use rusqlite::Row;

/// A column's bytes, whatever they are; nothing for NULL.
pub(crate) fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(row.get_ref(column)?.as_bytes_or_null()?.unwrap_or_default().to_vec())
}

/// A column's text; what is no text is replaced.
pub(crate) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}
