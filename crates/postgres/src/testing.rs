//! What only tests need: stores with the clock of a test.

use std::sync::Arc;

use everturn_provider::Clock;

use crate::error::PostgresError;
use crate::options::PostgresOptions;
use crate::provider::PostgresProvider;
use crate::shared::TimeSource;

/// Opens a database; this clock rules instead of the server's.
pub async fn open(
    url: &str,
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
) -> Result<PostgresProvider, PostgresError> {
    PostgresProvider::open(url, options, clock, TimeSource::ClockOfTest).await
}

/// Opens a database in a process that has this clock; the server's time rules, as it does outside of tests.
pub async fn open_with_clock_of_process(
    url: &str,
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
) -> Result<PostgresProvider, PostgresError> {
    PostgresProvider::open(url, options, clock, TimeSource::Server).await
}
