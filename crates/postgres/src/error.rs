//! The error of opening a database, and what an error of the server means for a call.

use std::error::Error;
use std::fmt;

use everturn_provider::ProviderError;
use tokio_postgres::error::SqlState;

/// An error of opening a database. Verbs fail with a [`ProviderError`].
#[derive(Debug)]
pub struct PostgresError {
    kind: PostgresErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PostgresErrorKind {
    Url,
    Options,
    NewerSchema,
    Pooler,
    Database,
}

impl PostgresError {
    fn of_kind(kind: PostgresErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(crate) fn url(message: impl Into<String>) -> Self {
        Self::of_kind(PostgresErrorKind::Url, message)
    }

    pub(crate) fn options(message: impl Into<String>) -> Self {
        Self::of_kind(PostgresErrorKind::Options, message)
    }

    pub(crate) fn newer_schema(message: impl Into<String>) -> Self {
        Self::of_kind(PostgresErrorKind::NewerSchema, message)
    }

    pub(crate) fn pooler(message: impl Into<String>) -> Self {
        Self::of_kind(PostgresErrorKind::Pooler, message)
    }

    /// The database is not as expected.
    pub(crate) fn database(message: impl Into<String>) -> Self {
        Self::of_kind(PostgresErrorKind::Database, message)
    }

    /// The server or the connection failed while `doing` was under way.
    pub(crate) fn server(doing: impl fmt::Display, source: tokio_postgres::Error) -> Self {
        Self {
            kind: PostgresErrorKind::Database,
            message: format!("{doing}: {}", shown(&source)),
            source: Some(Box::new(source)),
        }
    }

    /// The server did not answer while `doing` was under way.
    pub(crate) fn exchange(doing: impl fmt::Display, error: ExchangeError) -> Self {
        match error {
            ExchangeError::Server(source) => Self::server(doing, source),
            ExchangeError::Late => Self::database(format!("{doing}: {error}")),
        }
    }

    /// Whether the URL could not be understood.
    pub fn is_url(&self) -> bool {
        self.kind == PostgresErrorKind::Url
    }

    /// Whether an option has a value that it cannot have.
    pub fn is_options(&self) -> bool {
        self.kind == PostgresErrorKind::Options
    }

    /// Whether the schema was written by a newer version of this library.
    pub fn is_newer_schema(&self) -> bool {
        self.kind == PostgresErrorKind::NewerSchema
    }

    /// Whether a connection pooler that shares sessions is between this process and the server.
    pub fn is_pooler(&self) -> bool {
        self.kind == PostgresErrorKind::Pooler
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for PostgresError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}

/// What the server said, or what became of the connection.
pub(crate) fn shown(error: &tokio_postgres::Error) -> String {
    if let Some(server) = error.as_db_error() {
        return format!("{} ({})", server.message(), server.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Why an exchange with the server failed.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The server said so, or the connection was lost.
    Server(tokio_postgres::Error),
    /// The server did not answer in time. The connection is of no use any more.
    Late,
}

impl From<tokio_postgres::Error> for ExchangeError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl ExchangeError {
    /// What it means for the transaction that met it.
    pub(crate) fn failure(&self) -> ServerFailure {
        match self {
            Self::Server(error) => ServerFailure::of(error),
            Self::Late => ServerFailure::Connection,
        }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => f.write_str(&shown(error)),
            Self::Late => f.write_str("the server did not answer in time"),
        }
    }
}

/// What an error of the server means for the transaction that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerFailure {
    /// The connection is of no use any more. If the transaction was being committed, its outcome is unknown.
    Connection,
    /// The transaction was rolled back because it waited too long for a row that another transaction holds.
    Blocked,
    /// The transaction was rolled back; the same one may succeed.
    Transaction,
    /// The transaction was rolled back because of what it contains; the same one fails again.
    Content,
}

impl ServerFailure {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        let Some(code) = error.code() else {
            // A value that cannot be sent or read is no failure of the connection.
            let is_value = error.source().is_some_and(|source| {
                !source.is::<std::io::Error>() && !error.is_closed() && !source.is::<rustls::Error>()
            });
            return if is_value { Self::Content } else { Self::Connection };
        };
        // A server that was promoted, demoted or stopped; one that refuses writes is a standby by now.
        let of_connection = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::INVALID_SQL_STATEMENT_NAME,
        ];
        if code.code().starts_with("08") || of_connection.contains(code) {
            return Self::Connection;
        }
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Self::Blocked;
        }
        // Rights and tables come and go while an operator works on the database: no instance fails because of that.
        let of_operator =
            [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
        if of_operator.contains(code) {
            return Self::Transaction;
        }
        match code.code().get(..2) {
            // Data, constraints, limits of the server, statements that it does not understand, damage.
            Some("21" | "22" | "23" | "2B" | "42" | "0A" | "3F" | "54" | "XX") => Self::Content,
            _ => Self::Transaction,
        }
    }
}

/// The error of a call that the server or the connection failed.
pub(crate) fn storage_error(operation: &str, error: tokio_postgres::Error) -> ProviderError {
    let message = shown(&error);
    let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
    let made = match ServerFailure::of(&error) {
        // Damaged pages and rows that cannot be read as what their column holds.
        ServerFailure::Content if code.starts_with("XX") || error.code().is_none() => {
            ProviderError::damaged(operation, message)
        }
        ServerFailure::Content => ProviderError::permanent(operation, message),
        ServerFailure::Connection | ServerFailure::Blocked | ServerFailure::Transaction => {
            ProviderError::retryable(operation, message)
        }
    };
    made.with_source(error)
}
