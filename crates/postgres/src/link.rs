//! A connection that is opened again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{ExchangeError, ServerFailure};
use crate::retry::{RareWarning, pause_after};
use crate::server::Server;
use crate::session::{Purpose, ServerSession};

/// A connection that is opened again when it is lost.
pub(crate) struct Link {
    server: Arc<Server>,
    purpose: Purpose,
    /// Prepared on every new connection, so that later they are sent together with others.
    statements: Vec<&'static str>,
    /// Run on every new connection.
    greeting: Option<String>,
    notices: Option<UnboundedSender<String>>,
    session: Option<Arc<ServerSession>>,
    /// How many attempts to connect have failed in a row.
    failures: u32,
    warning: RareWarning,
}

impl Link {
    pub(crate) fn new(server: Arc<Server>, purpose: Purpose, statements: Vec<&'static str>) -> Self {
        Self {
            server,
            purpose,
            statements,
            greeting: None,
            notices: None,
            session: None,
            failures: 0,
            warning: RareWarning::default(),
        }
    }

    /// The same; it listens, and notifications go to `notices`.
    pub(crate) fn listening(mut self, greeting: String, notices: UnboundedSender<String>) -> Self {
        (self.greeting, self.notices) = (Some(greeting), Some(notices));
        self
    }

    /// How long it takes at most to connect, if any of the hosts answers.
    pub(crate) fn connect_max(&self) -> Duration {
        self.server.connect_max()
    }

    /// The connection; a new one if there is none. `None` if that was not possible before `deadline`.
    pub(crate) async fn session(&mut self, deadline: Instant) -> Option<Arc<ServerSession>> {
        if let Some(session) = self.session.as_ref().filter(|session| !session.is_closed()) {
            return Some(Arc::clone(session));
        }
        self.session = None;
        loop {
            match timeout_at(deadline, self.connect()).await {
                Ok(Ok(session)) => {
                    self.failures = 0;
                    let session = Arc::new(session);
                    self.session = Some(Arc::clone(&session));
                    return Some(session);
                }
                Ok(Err(error)) => {
                    self.failures = self.failures.saturating_add(1);
                    if let Some(left_out) = self.warning.is_due() {
                        tracing::warn!(target: "everturn::providers::postgres", server = %self.server.shown(), %error,
                            left_out, "no connection to the server; trying again");
                    }
                }
                Err(_elapsed) => return None,
            }
            if timeout_at(deadline, sleep(pause_after(self.failures))).await.is_err() {
                return None;
            }
        }
    }

    async fn connect(&self) -> Result<ServerSession, ExchangeError> {
        let session = ServerSession::open(&self.server, self.purpose, self.notices.clone()).await?;
        if let Some(greeting) = &self.greeting {
            session.within(session.run(greeting)).await?;
        }
        session.within(session.prepare(&self.statements)).await?;
        Ok(session)
    }

    /// This connection is of no use any more.
    pub(crate) fn drop_session(&mut self, lost: &Arc<ServerSession>) {
        self.session.take_if(|session| Arc::ptr_eq(session, lost));
    }

    /// The next call gets a new connection.
    pub(crate) fn forget(&mut self) {
        self.session = None;
    }

    /// Ends a transaction that failed, so that the connection can be used again. If that is not possible, it is dropped.
    pub(crate) async fn roll_back(&mut self, session: &Arc<ServerSession>, failure: ServerFailure) {
        if failure == ServerFailure::Connection || session.within(session.run("ROLLBACK")).await.is_err() {
            self.drop_session(session);
        }
    }
}
