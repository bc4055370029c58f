//! Connections for reads, deletions and pruning, beside those that write and fetch.
//!
//! A connection goes back into the pool only after a call that ended: one whose future was dropped, or whose transaction could
//! not be rolled back, is closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everturn_provider::ProviderError;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};

use crate::error::{ServerFailure, storage_error};
use crate::server::Server;
use crate::session::{Parameter, Purpose, ServerSession};

/// The pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How long the statements of a transaction take at most. The server ends a single one earlier.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a transaction is tried that the server has rolled back.
const TRIES: u32 = 4;
/// The pause before the second try; later ones are longer.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

// Each statement sees what was committed before it began, whatever the default of the server is.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// A small pool of connections.
pub(crate) struct Readers {
    server: Arc<Server>,
    idle: Mutex<Vec<ServerSession>>,
    /// One permit for each connection that may be open.
    room: Semaphore,
    /// One transaction at a time, so that long ones leave connections to the reads.
    transactions: Semaphore,
    call_timeout: Duration,
}

/// A connection that one call has. It is closed if it is dropped.
struct LentSession<'a> {
    session: ServerSession,
    /// It was opened for this call.
    is_fresh: bool,
    _room: SemaphorePermit<'a>,
}

/// A change that is a transaction of its own, beside those of the commit lane.
#[async_trait]
pub(crate) trait Transaction: Sync {
    /// What the caller gets.
    type Answer: Send;
    /// Its name in errors.
    const NAME: &'static str;

    /// Runs its statements, or fails; then nothing is written. It runs again if the server has rolled it back.
    async fn run(&self, session: &ServerSession) -> Result<Self::Answer, TransactionError>;
}

/// Why a transaction is rolled back.
#[derive(Debug)]
pub(crate) enum TransactionError {
    /// The call is refused.
    Refused(ProviderError),
    /// A statement failed.
    Server(Error),
    /// It took too long.
    Late,
}

impl From<ProviderError> for TransactionError {
    fn from(error: ProviderError) -> Self {
        Self::Refused(error)
    }
}

impl From<Error> for TransactionError {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl Readers {
    /// An empty pool of at most `readers_max` connections. A call waits up to `call_timeout` for the server.
    pub(crate) fn new(server: Arc<Server>, readers_max: usize, call_timeout: Duration) -> Self {
        Self {
            server,
            idle: Mutex::default(),
            room: Semaphore::new(readers_max.clamp(1, Semaphore::MAX_PERMITS)),
            transactions: Semaphore::new(1),
            call_timeout,
        }
    }

    /// Closes the idle connections; those in use are closed when their calls end. Later calls fail.
    pub(crate) fn close(&self) {
        self.room.close();
        self.transactions.close();
        self.idle().clear();
    }

    /// Runs one statement, which sees one state of the store, and returns its rows.
    ///
    /// A text that the server cannot hold, such as one with a NUL character, is in no row: then there are none.
    pub(crate) async fn query(
        &self,
        operation: &str,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, ProviderError> {
        let deadline = Instant::now() + self.call_timeout;
        let mut lent = self.lend(operation, deadline).await?;
        loop {
            match timeout_at(deadline, lent.session.query(sql, parameters)).await {
                Ok(Ok(rows)) => {
                    self.give_back(lent);
                    return Ok(rows);
                }
                Ok(Err(error)) if ServerFailure::of(&error) == ServerFailure::Connection => {
                    if lent.is_fresh {
                        return Err(storage_error(operation, error));
                    }
                    self.reopen(&mut lent, operation, deadline).await?;
                }
                Ok(Err(error)) => {
                    self.give_back(lent);
                    let holds_none = is_text_that_cannot_be_held(&error);
                    return if holds_none { Ok(Vec::new()) } else { Err(storage_error(operation, error)) };
                }
                Err(_elapsed) => return Err(self.late(operation)),
            }
        }
    }

    /// The same for a statement that returns one row or none.
    pub(crate) async fn query_opt(
        &self,
        operation: &str,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, ProviderError> {
        Ok(self.query(operation, sql, parameters).await?.into_iter().next())
    }

    /// Commits a change. Tries it again if the server has rolled it back.
    ///
    /// Fails as retryable if the connection was lost while the server committed: then the change may have happened.
    pub(crate) async fn transact<T: Transaction>(&self, change: &T) -> Result<T::Answer, ProviderError> {
        let mut tries = self.tries(T::NAME).await?;
        loop {
            let lent = tries.begin().await?;
            let ran = match timeout(TRANSACTION_TIMEOUT, change.run(&lent.session)).await {
                Ok(ran) => ran,
                Err(_elapsed) => Err(TransactionError::Late),
            };
            if let Some(answer) = tries.finish(lent, ran).await? {
                return Ok(answer);
            }
        }
    }

    /// The same for statements that are never refused. The closure must own what it uses.
    pub(crate) async fn transaction<T>(
        &self,
        operation: &str,
        run: impl AsyncFn(&ServerSession) -> Result<T, Error>,
    ) -> Result<T, ProviderError> {
        let mut tries = self.tries(operation).await?;
        loop {
            let lent = tries.begin().await?;
            let ran = match timeout(TRANSACTION_TIMEOUT, run(&lent.session)).await {
                Ok(ran) => ran.map_err(TransactionError::Server),
                Err(_elapsed) => Err(TransactionError::Late),
            };
            if let Some(answer) = tries.finish(lent, ran).await? {
                return Ok(answer);
            }
        }
    }

    async fn tries<'a>(&'a self, operation: &'a str) -> Result<Tries<'a>, ProviderError> {
        let turn = self.transactions.acquire().await.map_err(|_closed| closed(operation))?;
        Ok(Tries { readers: self, operation, made: 0, _turn: turn })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<ServerSession>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection, or a new one if there is none.
    async fn lend(&self, operation: &str, deadline: Instant) -> Result<LentSession<'_>, ProviderError> {
        let room = match timeout_at(deadline, self.room.acquire()).await {
            Ok(room) => room.map_err(|_closed| closed(operation))?,
            Err(_elapsed) => {
                return Err(ProviderError::retryable(operation, "all connections for reads are in use"));
            }
        };
        let idle = {
            let mut idle = self.idle();
            idle.retain(|session| !session.is_closed());
            idle.pop()
        };
        let is_fresh = idle.is_none();
        let session = match idle {
            Some(session) => session,
            None => self.open(operation, deadline).await?,
        };
        Ok(LentSession { session, is_fresh, _room: room })
    }

    /// The connection of a call turned out closed: replaces it by a new one.
    async fn reopen(
        &self,
        lent: &mut LentSession<'_>,
        operation: &str,
        deadline: Instant,
    ) -> Result<(), ProviderError> {
        lent.session = self.open(operation, deadline).await?;
        lent.is_fresh = true;
        Ok(())
    }

    /// Connects. A server that cannot be reached may come back until `deadline`.
    async fn open(&self, operation: &str, deadline: Instant) -> Result<ServerSession, ProviderError> {
        loop {
            let error =
                match timeout_at(deadline, ServerSession::open(&self.server, Purpose::Other, None)).await {
                    Ok(Ok(session)) => return Ok(session),
                    Ok(Err(error)) => error,
                    Err(_elapsed) => return Err(self.late(operation)),
                };
            let may_come_back = error.failure() == ServerFailure::Connection;
            if !may_come_back || timeout_at(deadline, sleep(CONNECT_PAUSE)).await.is_err() {
                let message = format!("connecting to {}: {error}", self.server.shown());
                return Err(ProviderError::retryable(operation, message));
            }
        }
    }

    fn give_back(&self, lent: LentSession<'_>) {
        if !lent.session.is_closed() && !self.room.is_closed() {
            self.idle().push(lent.session);
        }
    }

    fn late(&self, operation: &str) -> ProviderError {
        ProviderError::retryable(operation, format!("{} did not answer in time", self.server.shown()))
    }
}

/// The tries of one transaction.
struct Tries<'a> {
    readers: &'a Readers,
    operation: &'a str,
    made: u32,
    _turn: SemaphorePermit<'a>,
}

impl<'a> Tries<'a> {
    /// Begins a transaction.
    async fn begin(&mut self) -> Result<LentSession<'a>, ProviderError> {
        self.made += 1;
        let (readers, operation) = (self.readers, self.operation);
        let deadline = Instant::now() + readers.call_timeout;
        let mut lent = readers.lend(operation, deadline).await?;
        loop {
            match timeout_at(deadline, lent.session.run(BEGIN)).await {
                Ok(Ok(())) => return Ok(lent),
                Ok(Err(error))
                    if ServerFailure::of(&error) == ServerFailure::Connection && !lent.is_fresh =>
                {
                    readers.reopen(&mut lent, operation, deadline).await?;
                }
                Ok(Err(error)) => return Err(storage_error(operation, error)),
                Err(_elapsed) => return Err(readers.late(operation)),
            }
        }
    }

    /// Commits after statements that all succeeded, and rolls back after any other: a COMMIT would hide that one failed.
    /// `None` says that the transaction is to be tried again.
    async fn finish<T>(
        &self,
        lent: LentSession<'_>,
        ran: Result<T, TransactionError>,
    ) -> Result<Option<T>, ProviderError> {
        let error = match ran {
            Ok(answer) => match self.commit(lent).await? {
                Committed::Yes => return Ok(Some(answer)),
                Committed::RolledBack(error) => error,
            },
            Err(TransactionError::Refused(mut error)) => {
                self.roll_back(lent).await;
                error.operation = self.operation.to_owned();
                return Err(error);
            }
            Err(TransactionError::Server(error)) => {
                self.roll_back(lent).await;
                error
            }
            Err(TransactionError::Late) => return Err(self.readers.late(self.operation)),
        };
        if self.made >= TRIES || !may_succeed_later(&error) {
            return Err(storage_error(self.operation, error));
        }
        sleep(RETRY_PAUSE * self.made).await;
        Ok(None)
    }

    /// Fails if the outcome is not known.
    async fn commit(&self, lent: LentSession<'_>) -> Result<Committed, ProviderError> {
        const UNKNOWN: &str =
            "the connection was lost while the server committed the change; it may have happened";
        match timeout(TRANSACTION_TIMEOUT, lent.session.run("COMMIT")).await {
            Ok(Ok(())) => {
                self.readers.give_back(lent);
                Ok(Committed::Yes)
            }
            Ok(Err(error)) if ServerFailure::of(&error) == ServerFailure::Connection => {
                Err(ProviderError::retryable(self.operation, UNKNOWN).with_source(error))
            }
            Ok(Err(error)) => Ok(Committed::RolledBack(error)),
            Err(_elapsed) => Err(ProviderError::retryable(self.operation, UNKNOWN)),
        }
    }

    /// Closes the connection if that is not possible.
    async fn roll_back(&self, lent: LentSession<'_>) {
        if let Ok(Ok(())) = timeout(self.readers.call_timeout, lent.session.run("ROLLBACK")).await {
            self.readers.give_back(lent);
        }
    }
}

/// What became of a transaction whose statements succeeded.
enum Committed {
    Yes,
    RolledBack(Error),
}

/// Whether a transaction that was not committed may succeed if it is tried again at once.
fn may_succeed_later(error: &Error) -> bool {
    // What was ended because it took too long takes as long again.
    ServerFailure::of(error) != ServerFailure::Content && error.code() != Some(&SqlState::QUERY_CANCELED)
}

fn is_text_that_cannot_be_held(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE) || code == Some(&SqlState::UNTRANSLATABLE_CHARACTER)
}

fn closed(operation: &str) -> ProviderError {
    ProviderError::permanent(operation, "the provider is closed")
}
