//! The schema, in numbered steps.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Error, Row};

use crate::error::{ExchangeError, PostgresError};
use crate::server::Server;
use crate::session::{Purpose, ServerSession};

/// The steps in order; `everturn_migrations` says how many the schema has taken.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_initial.sql")];

/// How long a migration takes at most, with the wait for another process that migrates.
const MIGRATION_MAX: Duration = Duration::from_secs(600);

const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)";
const HAS_MIGRATIONS: &str = "SELECT to_regclass('{schema_text}.everturn_migrations') IS NOT NULL";
const TAKEN: &str = "SELECT coalesce(max(version), 0) FROM {schema}.everturn_migrations";
const CREATE_SCHEMA: &str = "CREATE SCHEMA {schema}";
const CREATE_MIGRATIONS: &str = "CREATE TABLE {schema}.everturn_migrations (\
     version bigint PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";
// One process at a time; the lock ends with the transaction.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('everturn ' || $1, 0))";
const NOTE_TAKEN: &str = "INSERT INTO {schema}.everturn_migrations (version) VALUES ($1)";
const OPTIONS: &str = "SELECT current_setting('jit') = 'off' AND current_setting('plan_cache_mode') = 'force_generic_plan', \
     pg_backend_pid()";

/// Checks the server and brings the schema to the newest version that this library knows. Nothing is created where everything
/// is there, so that a role without the right to create can use a schema that was prepared for it. Returns the connection.
pub(crate) async fn prepare(server: &Server, schema: &str) -> Result<ServerSession, PostgresError> {
    let session = opened(server, Purpose::HotPath).await?;
    within(&session, "checking the connection", check_pooler(&session)).await?;
    if within(&session, "reading the version of the schema", taken(&session)).await? == MIGRATIONS.len() {
        return Ok(session);
    }
    let session = opened(server, Purpose::Migration).await?;
    match timeout(MIGRATION_MAX, migrate(&session, schema)).await {
        Ok(migrated) => migrated?,
        Err(_elapsed) => return Err(PostgresError::exchange("migrating the schema", ExchangeError::Late)),
    }
    Ok(session)
}

async fn opened(server: &Server, purpose: Purpose) -> Result<ServerSession, PostgresError> {
    let opened = ServerSession::open(server, purpose, None).await;
    opened.map_err(|error| PostgresError::exchange(format_args!("opening {}", server.shown()), error))
}

/// Waits only so long for a server that does not answer.
async fn within<T>(
    session: &ServerSession,
    doing: &str,
    exchange: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    let ended = session.within(async { Ok(exchange.await) }).await;
    ended.unwrap_or_else(|error| Err(PostgresError::exchange(doing, error)))
}

async fn migrate(session: &ServerSession, schema: &str) -> Result<(), PostgresError> {
    let migrating = |error| PostgresError::server("migrating the schema", error);
    session.run("BEGIN").await.map_err(migrating)?;
    session.query(LOCK, &[&schema]).await.map_err(migrating)?;
    // Another process may have been here meanwhile.
    let taken = taken(session).await?;
    if !says_yes(&session.query(HAS_SCHEMA, &[&schema]).await.map_err(migrating)?).map_err(migrating)? {
        session.run(CREATE_SCHEMA).await.map_err(migrating)?;
    }
    if taken == 0 {
        session.run(CREATE_MIGRATIONS).await.map_err(migrating)?;
    }
    for (nth, migration) in MIGRATIONS.iter().enumerate().skip(taken) {
        session.run(migration).await.map_err(migrating)?;
        let version = i64::try_from(nth + 1).unwrap_or(i64::MAX);
        session.execute(NOTE_TAKEN, &[&version]).await.map_err(migrating)?;
    }
    session.run("COMMIT").await.map_err(migrating)
}

/// What a statement with one column and one row answers.
fn says_yes(rows: &[Row]) -> Result<bool, Error> {
    rows.first().map_or(Ok(false), |row| row.try_get(0))
}

/// How many steps the schema has taken. Fails if a newer library has taken more.
async fn taken(session: &ServerSession) -> Result<usize, PostgresError> {
    let reading = |error| PostgresError::server("reading the version of the schema", error);
    if !says_yes(&session.query(HAS_MIGRATIONS, &[]).await.map_err(reading)?).map_err(reading)? {
        return Ok(0);
    }
    let version = session.query_opt(TAKEN, &[]).await.map_err(reading)?;
    let version: i64 = version.map_or(Ok(0), |row| row.try_get(0)).map_err(reading)?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    let known = MIGRATIONS.len();
    if version > known {
        return Err(PostgresError::newer_schema(format!(
            "the schema has version {version}, which is newer than the {known} this library knows: upgrade the library"
        )));
    }
    Ok(version)
}

/// Refuses a pooler that shares sessions among clients: it loses settings, notifications and prepared statements.
async fn check_pooler(session: &ServerSession) -> Result<(), PostgresError> {
    let mut process = None;
    for _ in 0..3 {
        let checking = |error| PostgresError::server("checking the connection", error);
        let row = session
            .query_opt(OPTIONS, &[])
            .await
            .map_err(checking)?
            .ok_or_else(|| PostgresError::database("the server says nothing of the connection"))?;
        // A server without one of the settings says nothing of it.
        let has_options = row.try_get::<_, Option<bool>>(0).map_err(checking)?.unwrap_or(false);
        let of_server: i32 = row.try_get(1).map_err(checking)?;
        if !has_options || process.is_some_and(|before| before != of_server) {
            return Err(PostgresError::pooler(
                "a connection pooler that shares sessions is between this process and the server: connect to the server \
                 itself, or let the pooler pool sessions",
            ));
        }
        process = Some(of_server);
    }
    Ok(())
}
