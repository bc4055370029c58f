//! A connection that is opened again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::shown;
use crate::server::Server;
use crate::session::{Purpose, ServerSession};

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

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
    retry_after: Duration,
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
            retry_after: RETRY_MIN,
        }
    }

    /// The same; it listens, and notifications go to `notices`.
    pub(crate) fn listening(mut self, greeting: String, notices: UnboundedSender<String>) -> Self {
        (self.greeting, self.notices) = (Some(greeting), Some(notices));
        self
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
                    self.retry_after = RETRY_MIN;
                    let session = Arc::new(session);
                    self.session = Some(Arc::clone(&session));
                    return Some(session);
                }
                Ok(Err(error)) => {
                    tracing::warn!(target: "everturn::providers::postgres", server = %self.server.shown(),
                        error = %shown(&error), retry_in_ms = self.retry_after.as_millis() as u64,
                        "no connection to the server; trying again");
                }
                Err(_elapsed) => return None,
            }
            let pause = self.retry_after;
            self.retry_after = (pause * 2).min(RETRY_MAX);
            if timeout_at(deadline, sleep(pause)).await.is_err() {
                return None;
            }
        }
    }

    async fn connect(&self) -> Result<ServerSession, tokio_postgres::Error> {
        let session = ServerSession::open(&self.server, self.purpose, self.notices.clone()).await?;
        if let Some(greeting) = &self.greeting {
            session.run(greeting).await?;
        }
        session.prepare(&self.statements).await?;
        Ok(session)
    }

    /// This connection is of no use any more.
    pub(crate) fn drop_session(&mut self, lost: &Arc<ServerSession>) {
        self.session.take_if(|session| Arc::ptr_eq(session, lost));
    }
}
