//! A provider by its URL.

use std::sync::Arc;

use everturn_provider::{Provider, ProviderError};

/// The name of this call in errors.
const OPERATION: &str = "open";

/// Opens the provider that a URL names, with the default options of that provider.
///
/// | URL | provider | feature |
/// | --- | --- | --- |
/// | `sqlite:orders.db`, `sqlite:///var/lib/orders.db` | a SQLite file; `?mode=rw` does not create it, `?mode=ro` only reads it | `sqlite` (default) |
/// | `sqlite::memory:` | a SQLite database in memory | `sqlite` (default) |
/// | `postgres://user:password@host:port/database` | a PostgreSQL database; several hosts may be named, `host1,host2` | `postgres` |
///
/// So one program runs on a laptop and on several machines, and its configuration decides. For other options, open
#[cfg_attr(feature = "sqlite", doc = "[`SqliteProvider`](crate::providers::sqlite::SqliteProvider) or ")]
#[cfg_attr(not(feature = "sqlite"), doc = "`SqliteProvider` or ")]
#[cfg_attr(
    feature = "postgres",
    doc = "[`PostgresProvider`](crate::providers::postgres::PostgresProvider) yourself."
)]
#[cfg_attr(not(feature = "postgres"), doc = "`PostgresProvider` yourself.")]
///
/// Fails if the URL is not understood, the feature of its provider is not enabled, or the database cannot be opened. No error
/// shows the password of a URL.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = std::env::var("ORDERS_URL").unwrap_or_else(|_| "sqlite::memory:".to_owned());
/// let store = everturn::providers::open(&url).await?;
/// assert_eq!(store.name(), "sqlite");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub async fn open(url: &str) -> Result<Arc<dyn Provider>, ProviderError> {
    match url.split_once(':') {
        Some(("sqlite", _)) => sqlite(url).await,
        Some(("postgres" | "postgresql", _)) => postgres(url).await,
        // A string without a scheme may be a path, or a secret that was put into the wrong place: it is not shown.
        _ => Err(ProviderError::permanent(
            OPERATION,
            "the url of a provider begins with sqlite: (sqlite:orders.db, sqlite::memory:) or postgres:// \
             (postgres://user:password@host:port/database)",
        )),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<Arc<dyn Provider>, ProviderError> {
    let opened = everturn_sqlite::SqliteProvider::new(url, None).await;
    Ok(Arc::new(opened.map_err(|error| failed(&error.to_string(), error))?))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_url: &str) -> Result<Arc<dyn Provider>, ProviderError> {
    Err(without("sqlite"))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Arc<dyn Provider>, ProviderError> {
    use everturn_postgres::{PostgresOptions, PostgresProvider};

    let opened = PostgresProvider::connect(url, PostgresOptions::default()).await;
    Ok(Arc::new(opened.map_err(|error| failed(&error.to_string(), error))?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_url: &str) -> Result<Arc<dyn Provider>, ProviderError> {
    Err(without("postgres"))
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn failed(message: &str, error: impl std::error::Error + Send + Sync + 'static) -> ProviderError {
    ProviderError::permanent(OPERATION, message).with_source(error)
}

#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn without(feature: &str) -> ProviderError {
    ProviderError::permanent(
        OPERATION,
        format!(
            "this program is built without the feature \"{feature}\" of everturn: add it to the dependency's features"
        ),
    )
}
