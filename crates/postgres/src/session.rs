//! A connection to the server, with the statements that were prepared on it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Error, Row, Statement};

use crate::error::ExchangeError;
use crate::server::Server;

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Short statements of known shape: the planner is told to use their indexes.
    HotPath,
    /// Lists, whole histories, deletions.
    Other,
    /// Changes of the schema, which may take long.
    Migration,
}

/// A parameter of a statement.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The statements that were prepared on a connection.
#[derive(Default)]
struct PreparedStatements {
    by_text: HashMap<&'static str, Statement>,
    /// The same by the address of a text, which is found faster. A constant may have several.
    by_address: HashMap<usize, Statement>,
}

impl PreparedStatements {
    fn get(&mut self, sql: &'static str) -> Option<Statement> {
        let address = sql.as_ptr().addr();
        if let Some(statement) = self.by_address.get(&address) {
            return Some(statement.clone());
        }
        let statement = self.by_text.get(sql)?.clone();
        self.by_address.insert(address, statement.clone());
        Some(statement)
    }
}

/// A connection to the server. It is closed when this is dropped.
pub(crate) struct ServerSession {
    client: Client,
    /// The schema as statements name it.
    schema: String,
    prepared: Mutex<PreparedStatements>,
    driver: JoinHandle<()>,
    /// Its sender is dropped when the connection has ended.
    ended: watch::Receiver<()>,
    exchange_max: Duration,
}

impl ServerSession {
    /// Connects. Notifications go to `notices`.
    pub(crate) async fn open(
        server: &Server,
        purpose: Purpose,
        notices: Option<UnboundedSender<String>>,
    ) -> Result<Self, ExchangeError> {
        let (client, connection) = server.connect(purpose).await?;
        let (alive, ended) = watch::channel(());
        let driver = connection.run(move |message| {
            if let (AsyncMessage::Notification(notice), Some(notices)) = (message, &notices) {
                // A listener that is gone needs no news.
                drop(notices.send(notice.payload().to_owned()));
            }
        });
        let driver = tokio::spawn(async move {
            driver.await;
            drop(alive);
        });
        let (schema, exchange_max) = (server.schema().to_owned(), server.exchange_max());
        Ok(Self { client, schema, prepared: Mutex::default(), driver, ended, exchange_max })
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: it fails when the sender is dropped.
        while ended.changed().await.is_ok() {}
    }

    /// Runs an exchange of the hot path. A server that does not answer in time, although the connection is open, is as good as
    /// lost: then the caller must drop the session.
    pub(crate) async fn within<T>(
        &self,
        exchange: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ExchangeError> {
        match timeout(self.exchange_max, exchange).await {
            Ok(answer) => answer.map_err(ExchangeError::Server),
            Err(_elapsed) => Err(ExchangeError::Late),
        }
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The text of a statement for this schema.
    fn text(&self, sql: &str) -> String {
        sql.replace("{schema_text}", &self.schema.replace('\'', "''")).replace("{schema}", &self.schema)
    }

    fn prepared(&self) -> MutexGuard<'_, PreparedStatements> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared().get(sql) {
            return Ok(statement);
        }
        let statement = self.client.prepare(&self.text(sql)).await?;
        self.prepared().by_text.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Prepares statements, so that they are later sent together with others.
    pub(crate) async fn prepare(&self, statements: &[&'static str]) -> Result<(), Error> {
        futures::future::try_join_all(statements.iter().map(|sql| self.statement(sql))).await.map(drop)
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, parameters).await
    }

    /// Runs a statement that returns one row or none.
    pub(crate) async fn query_opt(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, Error> {
        let statement = self.statement(sql).await?;
        self.client.query_opt(&statement, parameters).await
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, parameters).await
    }

    /// Runs a text of several statements without parameters.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(&self.text(sql)).await
    }
}

impl Drop for ServerSession {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
