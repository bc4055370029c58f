//! News among processes: a notification says that one of them has committed something that others may wait for.
//!
//! A notification in the committing transaction would hold a lock of the whole database while its commit is synced. So it is
//! sent afterwards, in a transaction of its own that writes nothing, and for all commits of a moment at once. A process that
//! ends in between is made up for by the looks that every other one takes once a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep};

use crate::error::ExchangeError;
use crate::link::Link;
use crate::session::ServerSession;
use crate::shared::{News, Shared};

/// The shortest pause between two notifications.
const PAUSE: Duration = Duration::from_millis(5);
/// How often an idle connection is tested: one that forwards nothing looks like one without news.
const TEST_EVERY: Duration = Duration::from_secs(5);

const NOTIFY: &str = "SELECT pg_notify($1, $2)";
const TEST: &str = "SELECT 1";

/// The statements of this connection.
pub(crate) const STATEMENTS: &[&str] = &[NOTIFY, TEST];

/// What sends and hears news.
pub(crate) struct Notices {
    pub(crate) link: Link,
    pub(crate) shared: Arc<Shared>,
    pub(crate) heard: UnboundedReceiver<String>,
    pub(crate) channel: String,
}

/// The channel of a schema. Its name is a hash: the name of a channel has no room for the longest names of schemas.
pub(crate) fn channel(schema: &str) -> String {
    // FNV-1a. Schemas whose hashes are equal hear each other's news, and look once more.
    let hash = schema.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("everturn_{hash:016x}")
}

impl Notices {
    /// Runs until the provider is closed.
    pub(crate) async fn run(mut self) {
        // The connection listens as long as it is open.
        let mut listening: Option<Arc<ServerSession>> = None;
        while !self.shared.is_closed() {
            let deadline = Instant::now() + self.link.connect_max();
            let connected = tokio::select! {
                biased;
                connected = self.link.session(deadline) => connected,
                () = self.shared.closed() => break,
            };
            let Some(session) = connected else { continue };
            if !listening.as_ref().is_some_and(|known| Arc::ptr_eq(known, &session)) {
                // What was said before it listened was not heard.
                self.shared.look_again();
                listening = Some(Arc::clone(&session));
            }
            tokio::select! {
                biased;
                said = self.heard.recv() => self.hear(said),
                () = session.ended() => {}
                () = self.shared.closed() => break,
                () = self.shared.news_arrived() => {
                    let news = self.shared.take_news();
                    if self.say(&session, news).await.is_err() {
                        self.link.drop_session(&session);
                        self.shared.tell(news);
                    }
                    sleep(PAUSE).await;
                }
                () = sleep(TEST_EVERY) => {
                    if session.within(session.query(TEST, &[])).await.is_err() {
                        self.link.drop_session(&session);
                    }
                }
            }
        }
    }

    /// Notes what other processes say.
    fn hear(&mut self, said: Option<String>) {
        let mut bits = 0;
        let mut next = said;
        while let Some(said) = next {
            if let Some((sender, news)) = said.split_once(' ')
                && sender != self.shared.owner.to_string()
            {
                // A word of a newer version says that there is something.
                bits |= news.parse().unwrap_or(News::ALL.to_bits());
            }
            next = self.heard.try_recv().ok();
        }
        self.shared.note_news(News::of_bits(bits));
    }

    /// Notifies the other processes.
    async fn say(&self, session: &ServerSession, news: News) -> Result<(), ExchangeError> {
        if news != News::default() {
            let said = format!("{} {}", self.shared.owner, news.to_bits());
            session.within(session.query(NOTIFY, &[&self.channel, &said])).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_long_schemas_differ() {
        let long = "x".repeat(62);
        let channels = ["a", "b"].map(|last| channel(&format!("{long}{last}")));
        assert_ne!(channels[0], channels[1]);
        assert!(channels.iter().all(|channel| channel.len() < 63));
    }
}
