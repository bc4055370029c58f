//! Reading columns whose content may be damaged: one damaged row must not fail a query.

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};

/// A column's bytes, whatever they are; nothing for NULL.
pub(crate) fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(stored(row, column)?.unwrap_or_default().into_owned())
}

/// A column's text; bytes that are no UTF-8 are replaced.
pub(crate) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(stored(row, column)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// A column's number; nothing for NULL and for anything but an integer.
#[inline]
pub(crate) fn integer(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => Some(number),
        _ => None,
    })
}

#[inline(always)]
fn stored<'row>(row: &'row Row<'_>, column: usize) -> rusqlite::Result<Option<Cow<'row, [u8]>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(Cow::Owned(number.to_string().into_bytes())),
        ValueRef::Real(number) => Some(Cow::Owned(number.to_string().into_bytes())),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(Cow::Borrowed(bytes)),
    })
}

/// A column that is 0 or 1; anything but an integer counts as 0.
pub(crate) fn flag(row: &Row<'_>, column: usize) -> rusqlite::Result<bool> {
    Ok(integer(row, column)?.is_some_and(|number| number != 0))
}

/// A column's text; anything else is an error that names the column.
pub(crate) fn nullable(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    row.get(column).map_err(|error| match error {
        rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::Utf8Error(..) => {
            let name = row.as_ref().column_name(column).unwrap_or_default();
            rusqlite::Error::InvalidColumnType(column, format!("{name} (not UTF-8)"), Type::Text)
        }
        error => error,
    })
}

/// The same for a column that is never NULL.
pub(crate) fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    nullable(row, column)?.ok_or_else(|| {
        let name = row.as_ref().column_name(column).unwrap_or_default();
        rusqlite::Error::InvalidColumnType(column, name.to_owned(), Type::Null)
    })
}
