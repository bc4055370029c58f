//! What only tests need: a store that goes by the clock of a test.

use std::sync::Arc;

use everturn_provider::Clock;

use crate::error::PostgresError;
use crate::options::PostgresOptions;
use crate::provider::PostgresProvider;

/// Opens a database; this clock rules instead of the server's.
pub async fn open(
    url: &str,
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
) -> Result<PostgresProvider, PostgresError> {
    PostgresProvider::open(url, options, Some(clock)).await
}
