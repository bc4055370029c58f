//! What the tests of this repository need and users do not: no part of the published surface.

use crate::error::SqliteError;
use crate::options::SqliteOptions;
use crate::provider::SqliteProvider;
use crate::url;

/// Where a provider runs. The default is what [`SqliteProvider::new`] uses.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The file system that SQLite uses, by the name under which it is registered; `None` for the default one.
    pub vfs: Option<String>,
    /// Whether the writer is a task of the async runtime that opens the database, instead of a thread. Reads use no thread
    /// either: the caller's runtime decides the order of everything that happens.
    pub writer_in_task: bool,
}

/// Opens a database in an environment of the test's choice.
pub async fn open(
    url: &str,
    options: SqliteOptions,
    environment: Environment,
) -> Result<SqliteProvider, SqliteError> {
    SqliteProvider::open(url::parse(url)?, options, environment).await
}

/// Ends a writer that is a task at once, as the death of its process would: commands that it has not begun are never
/// executed. Waits until the file is closed.
pub async fn kill(provider: &SqliteProvider) {
    provider.abort_writer_task();
    provider.close().await;
}
