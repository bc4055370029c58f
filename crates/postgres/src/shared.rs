//! What the lanes, the reads and the callers of one provider share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use everturn_provider::Clock;
use everturn_provider::encoded::{stored_ms, unsigned};
use tokio::sync::{Notify, watch};
use tokio_postgres::Error;

use crate::server_time::{ServerTime, TimeReading};
use crate::session::ServerSession;
use crate::unit_of_work::CommitEffects;
use crate::watches::InstanceWatches;

/// The time of the store.
pub(crate) const NOW: &str = "SELECT {schema}.everturn_now_ms($1)";

/// What the lanes, the reads and the callers of one provider share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the clock of this process rules, as in tests, and not that of the server.
    pub(crate) is_test: bool,
    /// Names this provider in locks, and its row of the totals.
    pub(crate) owner: i64,
    pub(crate) watches: InstanceWatches,
    time: ServerTime,
    pub(crate) commits: AtomicU64,
    /// Why the fetch lane must look.
    turns: AtomicBool,
    work: AtomicBool,
    due_ms: AtomicI64,
    look: Notify,
    /// What other processes have not been told yet, as the bits of [`News`].
    news: AtomicU8,
    news_arrived: Notify,
    is_closed: watch::Sender<bool>,
}

/// Why other processes should look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Instances are ready.
    pub(crate) turns: bool,
    /// Activities are ready.
    pub(crate) work: bool,
    /// Clients can see a change of some instance.
    pub(crate) clients: bool,
}

impl News {
    pub(crate) const ALL: Self = Self { turns: true, work: true, clients: true };

    pub(crate) fn to_bits(self) -> u8 {
        u8::from(self.turns) | u8::from(self.work) << 1 | u8::from(self.clients) << 2
    }

    pub(crate) fn of_bits(bits: u8) -> Self {
        Self { turns: bits & 1 != 0, work: bits & 2 != 0, clients: bits & 4 != 0 }
    }
}

/// Whose time rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeSource {
    /// The server's.
    Server,
    /// That of the clock of this process, which a test moves.
    ClockOfTest,
}

/// Why the fetch lane must look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hints {
    pub(crate) turns: bool,
    pub(crate) work: bool,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>, is_test: bool) -> Self {
        let owner = i64::from_le_bytes(
            clock.random_u128().to_le_bytes().first_chunk::<8>().copied().unwrap_or_default(),
        );
        Self {
            clock,
            is_test,
            owner: owner & i64::MAX,
            watches: InstanceWatches::default(),
            time: ServerTime::default(),
            commits: AtomicU64::new(0),
            turns: AtomicBool::new(false),
            work: AtomicBool::new(false),
            due_ms: AtomicI64::new(i64::MAX),
            look: Notify::new(),
            news: AtomicU8::new(0),
            news_arrived: Notify::new(),
            is_closed: watch::Sender::new(false),
        }
    }

    /// The time that statements go by, if a test says it.
    pub(crate) fn test_now_ms(&self) -> Option<i64> {
        self.is_test.then(|| stored_ms(self.clock.wall_ms()))
    }

    /// The time of the store, as far as this process knows it.
    pub(crate) fn now_ms(&self) -> i64 {
        let of_test = self.test_now_ms();
        of_test.or_else(|| self.time.now_ms(self.clock.monotonic())).unwrap_or(0)
    }

    /// Asks the server for the time of the store.
    pub(crate) async fn read_time(
        &self,
        session: &ServerSession,
        test_now_ms: Option<i64>,
    ) -> Result<i64, Error> {
        let asked = self.clock.monotonic();
        let row = session.query_opt(NOW, &[&test_now_ms]).await?;
        let server_ms = row.map_or(Ok(0), |row| row.try_get(0))?;
        self.time.note(TimeReading { server_ms, asked, heard: self.clock.monotonic() });
        Ok(server_ms)
    }

    /// Asks the server for its time if that rules.
    pub(crate) async fn refresh_time(&self, session: &ServerSession) -> Result<(), Error> {
        if self.is_test { Ok(()) } else { self.read_time(session, None).await.map(drop) }
    }

    /// A batch was committed.
    pub(crate) fn apply(&self, effects: CommitEffects) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.watches.bump(&effects.touched);
        if let Some(due_ms) = effects.due_ms {
            self.due_at(due_ms);
        }
        let (turns, work) = (effects.turns || effects.orphans, effects.work);
        if turns || work {
            self.want_look(turns, work);
        }
        self.tell(News { turns, work, clients: !effects.touched.is_empty() });
    }

    /// Other processes should look.
    pub(crate) fn tell(&self, news: News) {
        if news != News::default() {
            self.news.fetch_or(news.to_bits(), Ordering::SeqCst);
            self.news_arrived.notify_one();
        }
    }

    /// Waits until there is something to tell other processes.
    pub(crate) async fn news_arrived(&self) {
        self.news_arrived.notified().await;
    }

    /// What to tell other processes; forgets it.
    pub(crate) fn take_news(&self) -> News {
        News::of_bits(self.news.swap(0, Ordering::SeqCst))
    }

    /// Another process has told us.
    pub(crate) fn note_news(&self, news: News) {
        if news.clients {
            self.watches.bump_all();
        }
        if news.turns || news.work {
            self.want_look(news.turns, news.work);
        }
    }

    /// Something may have been committed that this process has not heard of: its clients and its fetch lane look.
    pub(crate) fn look_again(&self) {
        self.note_news(News::ALL);
        self.due_at(self.now_ms());
    }

    /// Something may have been committed of which no process was notified: all of them look.
    pub(crate) fn look_everywhere(&self) {
        self.look_again();
        self.tell(News::ALL);
    }

    /// Something becomes due then.
    pub(crate) fn due_at(&self, at_ms: i64) {
        if self.due_ms.fetch_min(at_ms, Ordering::SeqCst) > at_ms {
            self.look.notify_one();
        }
    }

    /// When something becomes due next, as far as is known; forgets it.
    pub(crate) fn take_due_ms(&self) -> i64 {
        self.due_ms.swap(i64::MAX, Ordering::SeqCst)
    }

    pub(crate) fn next_due_ms(&self) -> i64 {
        self.due_ms.load(Ordering::SeqCst)
    }

    /// There may be something to fetch.
    pub(crate) fn want_look(&self, turns: bool, work: bool) {
        self.turns.fetch_or(turns, Ordering::SeqCst);
        self.work.fetch_or(work, Ordering::SeqCst);
        self.look.notify_one();
    }

    pub(crate) fn take_hints(&self) -> Hints {
        Hints {
            turns: self.turns.swap(false, Ordering::SeqCst),
            work: self.work.swap(false, Ordering::SeqCst),
        }
    }

    /// Waits until there is a reason to look.
    pub(crate) async fn look_wanted(&self) {
        self.look.notified().await;
    }

    /// The commit lane has ended.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
        self.watches.close();
        self.look.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Waits until the commit lane has ended.
    pub(crate) async fn closed(&self) {
        // It fails when the sender is dropped, which is later.
        drop(self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await);
    }

    pub(crate) fn now_ms_unsigned(&self) -> u64 {
        unsigned(self.now_ms())
    }
}
