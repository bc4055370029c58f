//! How a database is opened.

use std::time::Duration;

use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;

use crate::error::PostgresError;

/// The longest name of a schema: PostgreSQL cuts longer ones.
const SCHEMA_BYTES_MAX: usize = 63;

/// How a database is opened.
///
/// ```
/// use everturn_postgres::PostgresOptions;
///
/// let options = PostgresOptions { schema: "orders".to_owned(), ..PostgresOptions::default() };
/// assert_eq!(options.payload_bytes_max, 8 * 1024 * 1024);
/// ```
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The schema that the tables are in. It is created if it is missing. Applications that share a database each have one.
    pub schema: String,
    /// The largest payload that client and runtime accept, in UTF-8 bytes.
    pub payload_bytes_max: usize,
    /// How many operations share one commit at most; 1 gives each its own.
    pub batch_operations_max: usize,
    /// How many payload bytes share one commit at most (a single operation may be larger).
    pub batch_payload_bytes_max: usize,
    /// How long a call waits for a server that cannot be reached, before it fails as retryable.
    pub call_timeout: Duration,
    /// How many connections serve reads, beside the three that write, fetch and listen.
    pub readers_max: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "everturn".to_owned(),
            payload_bytes_max: DEFAULT_PAYLOAD_BYTES_MAX,
            // Every caller waits for the whole batch: it must take milliseconds.
            batch_operations_max: 200,
            batch_payload_bytes_max: 8 * 1024 * 1024,
            call_timeout: Duration::from_secs(10),
            readers_max: 3,
        }
    }
}

impl PostgresOptions {
    /// Fails if an option has a value that it cannot have.
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        let schema = &self.schema;
        let is_name = !schema.is_empty() && schema.len() <= SCHEMA_BYTES_MAX && !schema.contains('\0');
        if !is_name || schema.starts_with("pg_") {
            return Err(PostgresError::options(format!(
                "schema {schema:?} cannot be the name of a schema: choose one of 1 to {SCHEMA_BYTES_MAX} bytes that does \
                 not begin with pg_"
            )));
        }
        if self.batch_operations_max == 0 || self.readers_max == 0 {
            return Err(PostgresError::options("batch_operations_max and readers_max must be at least 1"));
        }
        Ok(())
    }

    /// The schema as statements name it.
    pub(crate) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_quoted_whatever_its_name() {
        let options = PostgresOptions { schema: "my \"own\"".to_owned(), ..PostgresOptions::default() };
        options.check().unwrap();
        assert_eq!(options.quoted_schema(), "\"my \"\"own\"\"\"");
    }

    #[test]
    fn what_cannot_be_a_schema_is_refused() {
        for schema in ["", "pg_catalog", "a\0b", &"x".repeat(64)] {
            let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
            assert!(options.check().unwrap_err().is_options(), "{schema:?}");
        }
    }
}
