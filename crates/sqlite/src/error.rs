//! The error of opening, checkpointing or closing a database.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

/// An error of opening, checkpointing or closing a database. Verbs fail with a
/// [`ProviderError`](everturn_provider::ProviderError).
#[derive(Debug)]
pub struct SqliteError {
    kind: SqliteErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SqliteErrorKind {
    Url,
    NewerSchema,
    Closed,
    Database,
    Io,
}

impl SqliteError {
    pub(crate) fn url(message: impl Into<String>) -> Self {
        Self { kind: SqliteErrorKind::Url, message: message.into(), source: None }
    }

    pub(crate) fn newer_schema(message: impl Into<String>) -> Self {
        Self { kind: SqliteErrorKind::NewerSchema, message: message.into(), source: None }
    }

    pub(crate) fn closed(message: impl Into<String>) -> Self {
        Self { kind: SqliteErrorKind::Closed, message: message.into(), source: None }
    }

    /// The database refused, or is not as expected.
    pub(crate) fn database(message: impl Into<String>) -> Self {
        Self { kind: SqliteErrorKind::Database, message: message.into(), source: None }
    }

    /// The database refused while `doing` was under way.
    pub(crate) fn sqlite(doing: impl fmt::Display, source: rusqlite::Error) -> Self {
        Self {
            kind: SqliteErrorKind::Database,
            message: format!("{doing}: {source}"),
            source: Some(Box::new(source)),
        }
    }

    /// The operating system refused while `doing` was under way.
    pub(crate) fn io(doing: impl fmt::Display, source: io::Error) -> Self {
        Self {
            kind: SqliteErrorKind::Io,
            message: format!("{doing}: {source}"),
            source: Some(Box::new(source)),
        }
    }

    /// The same error, with the file that was being opened in its message.
    pub(crate) fn while_opening(mut self, path: &Path) -> Self {
        self.message = format!("opening {}: {}", path.display(), self.message);
        self
    }

    /// Whether the URL could not be understood.
    pub fn is_url(&self) -> bool {
        self.kind == SqliteErrorKind::Url
    }

    /// Whether the file was written by a newer version of this library.
    pub fn is_newer_schema(&self) -> bool {
        self.kind == SqliteErrorKind::NewerSchema
    }

    /// Whether the provider was closed.
    pub fn is_closed(&self) -> bool {
        self.kind == SqliteErrorKind::Closed
    }
}

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SqliteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}
