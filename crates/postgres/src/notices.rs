//! News among processes: a notification says that one of them has committed something that others may wait for.
//!
//! A notification in the committing transaction would hold a lock of the whole database while its commit is synced. So it is
//! sent afterwards, in a transaction of its own that writes nothing, and for all commits of a moment at once. A process that
//! ends in between is made up for by the looks that every other one takes once a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep};

use crate::link::Link;
use crate::shared::Shared;

/// The shortest pause between two notifications.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a connection is tried at once.
const CONNECT_MAX: Duration = Duration::from_secs(5);

const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// The statements of this connection.
pub(crate) const STATEMENTS: &[&str] = &[NOTIFY];

/// What sends and hears news.
pub(crate) struct Notices {
    pub(crate) link: Link,
    pub(crate) shared: Arc<Shared>,
    pub(crate) heard: UnboundedReceiver<String>,
    pub(crate) channel: String,
}

impl Notices {
    /// Runs until the provider is closed.
    pub(crate) async fn run(mut self) {
        let own = self.shared.owner.to_string();
        while !self.shared.is_closed() {
            // The connection listens as long as it is open.
            let Some(session) = self.link.session(Instant::now() + CONNECT_MAX).await else { continue };
            tokio::select! {
                biased;
                heard = self.heard.recv() => {
                    let mut is_foreign = heard.is_some_and(|sender| sender != own);
                    while let Ok(sender) = self.heard.try_recv() {
                        is_foreign |= sender != own;
                    }
                    if is_foreign {
                        self.shared.watches.bump_all();
                        self.shared.want_look(true, true);
                        self.shared.due_at(self.shared.now_ms());
                    }
                }
                () = self.shared.news.notified() => {
                    if session.query(NOTIFY, &[&self.channel, &own]).await.is_err() {
                        self.link.drop_session(&session);
                    }
                    sleep(PAUSE).await;
                }
                () = sleep(CONNECT_MAX) => {}
            }
        }
    }
}
