//! The ready activities as the parked fetches of one batch see them: read once, not once for every fetch.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use everturn_provider::TagFilter;
use everturn_provider::store::{HandlerView, SessionRoom};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::columns;
use crate::engine_version::OWN_ENGINE;
use crate::parked_fetches::ParkedWorkFetch;
use crate::ready_unbound;
use crate::unreadable::{RowPlace, RowReads};

/// How many activities without a session are read at once.
const READ_AHEAD: usize = 64;
/// How many of the oldest rows are read before the sessions are read one by one.
const FRONT_ROWS: usize = 32;

const OLDEST_BOUND: &str = "SELECT seq, session_id, tag, iif(visible_at_ms > 0, missing_handler, NULL), needs_engine \
     FROM everturn_worker_queue INDEXED BY everturn_worker_queue_session_ready \
     WHERE ready = 1 AND session_id IS NOT NULL ORDER BY seq LIMIT ?1";
// The same in the index alone: its rows need not be readable.
const BOUND_KEYS: &str = "SELECT seq FROM everturn_worker_queue INDEXED BY everturn_worker_queue_session_ready \
     WHERE ready = 1 AND session_id IS NOT NULL ORDER BY seq";
const KEYS_OF_SESSION: &str = "SELECT seq FROM everturn_worker_queue INDEXED BY everturn_worker_queue_session_heads \
     WHERE ready = 1 AND session_id IS NOT NULL AND session_id = ?1 ORDER BY seq";
const BOUND_ROW: &str = "SELECT seq, session_id, tag, iif(visible_at_ms > 0, missing_handler, NULL), needs_engine \
     FROM everturn_worker_queue WHERE seq = ?1";
const NEXT_SESSION: &str = "SELECT session_id FROM everturn_worker_queue INDEXED BY everturn_worker_queue_session_heads \
     WHERE ready = 1 AND session_id IS NOT NULL AND session_id > ?1 ORDER BY session_id LIMIT 1";
const ROWS_OF_SESSION: &str = "SELECT seq, session_id, tag, iif(visible_at_ms > 0, missing_handler, NULL), needs_engine \
     FROM everturn_worker_queue INDEXED BY everturn_worker_queue_session_heads \
     WHERE ready = 1 AND session_id IS NOT NULL AND session_id = ?1 ORDER BY seq";
const OWNER_OF_SESSION: &str = "SELECT owner_id FROM everturn_sessions WHERE session_id = ?1 \
     AND typeof(lease_until_ms) = 'integer' AND lease_until_ms > ?2";

/// An activity that a fetch may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadyActivity {
    pub(crate) seq: i64,
    /// The session that it is bound to.
    pub(crate) session_id: Option<String>,
}

/// The oldest ready activities, as far as they were read. Valid until any other statement changes the queue.
#[derive(Default)]
pub(crate) struct ReadyWork {
    /// The tags and the handlers that everything here was read for.
    read_for: Option<(TagFilter, Option<Arc<dyn HandlerView>>)>,
    /// How many fetches may take some.
    fetches: usize,
    /// The oldest activities without a session, as far as they were read; `None` if they must be read. Empty if there are none.
    plain: Option<VecDeque<i64>>,
    sessions: ReadySessions,
}

/// The oldest ready activity of each session.
#[derive(Default)]
struct ReadySessions {
    /// By age.
    heads: BTreeMap<i64, SessionHead>,
    read: SessionsRead,
    /// Heads of sessions that were asked for by name.
    by_session: HashMap<String, Option<(i64, SessionHead)>>,
}

/// How far the sessions were read.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum SessionsRead {
    #[default]
    Nothing,
    /// All sessions whose oldest activity is not younger than this.
    UpTo(i64),
    All,
}

#[derive(Debug, Clone)]
struct SessionHead {
    session_id: String,
    /// The owner, if its lease has not expired.
    owner: Option<String>,
}

impl SessionHead {
    fn is_open_to(&self, owner_id: &str, room: &SessionRoom) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner == owner_id) && room.admits(&self.session_id)
    }
}

impl ReadyWork {
    /// Nothing is read yet. So many fetches may take some.
    pub(crate) fn for_fetches(fetches: usize) -> Self {
        Self { fetches, ..Self::default() }
    }

    /// The oldest activity that this fetch may take at `now_ms`.
    pub(crate) fn oldest_for(
        &mut self,
        conn: &Connection,
        reads: RowReads<'_>,
        fetch: &ParkedWorkFetch,
        now_ms: i64,
    ) -> rusqlite::Result<Option<ReadyActivity>> {
        let wants_the_same =
            |(tags, handlers): &(_, Option<_>)| fetch.wants_the_same(tags, handlers.as_ref());
        if !self.read_for.as_ref().is_some_and(wants_the_same) {
            let read_for = Some((fetch.tags.clone(), fetch.handlers.clone()));
            *self = Self { read_for, ..Self::for_fetches(self.fetches) };
        }
        let plain = match &self.plain {
            Some(plain) => plain,
            None => {
                self.plain.insert(ready_unbound::oldest(conn, reads, fetch, self.fetches.min(READ_AHEAD))?)
            }
        };
        let plain = plain.front().copied();
        let bound = match &fetch.session {
            Some(session) => {
                let places = fetch.session_places.as_ref();
                let room = places.map_or(SessionRoom::Any, |places| places.room());
                let rows = SessionRows { conn, reads, fetch, now_ms };
                self.sessions.oldest_for(&rows, &session.owner_id, &room)?
            }
            None => None,
        };
        Ok(match (plain, bound) {
            (None, None) => None,
            (Some(plain), Some((seq, session_id))) if seq < plain => {
                Some(ReadyActivity { seq, session_id: Some(session_id) })
            }
            (None, Some((seq, session_id))) => Some(ReadyActivity { seq, session_id: Some(session_id) }),
            (Some(plain), _) => Some(ReadyActivity { seq: plain, session_id: None }),
        })
    }

    /// A fetch took this activity; if it is bound to a session, for this owner.
    pub(crate) fn taken(
        &mut self,
        conn: &Connection,
        reads: RowReads<'_>,
        taken: &ReadyActivity,
        fetch: &ParkedWorkFetch,
        now_ms: i64,
    ) -> rusqlite::Result<()> {
        match &taken.session_id {
            Some(session_id) => {
                let rows = SessionRows { conn, reads, fetch, now_ms };
                self.sessions.taken(&rows, taken.seq, session_id)
            }
            None => {
                // When the last one that was read is taken, there may be more.
                if let Some(plain) = &mut self.plain {
                    plain.pop_front();
                }
                self.plain.take_if(|plain| plain.is_empty());
                Ok(())
            }
        }
    }

    /// What was read may be wrong by now.
    pub(crate) fn forget(&mut self) {
        *self = Self::for_fetches(self.fetches);
    }
}

impl ReadySessions {
    fn oldest_for(
        &mut self,
        rows: &SessionRows<'_>,
        owner_id: &str,
        room: &SessionRoom,
    ) -> rusqlite::Result<Option<(i64, String)>> {
        if let SessionRoom::Only(served) = room {
            return self.oldest_of(rows, owner_id, served);
        }
        loop {
            let found = self.heads.iter().find(|(_, head)| head.is_open_to(owner_id, room));
            if let Some((seq, head)) = found {
                return Ok(Some((*seq, head.session_id.clone())));
            }
            match self.read {
                SessionsRead::Nothing => self.read_front(rows)?,
                SessionsRead::UpTo(_) => self.read_all(rows)?,
                SessionsRead::All => return Ok(None),
            }
        }
    }

    /// The oldest activity of these few sessions.
    fn oldest_of(
        &mut self,
        rows: &SessionRows<'_>,
        owner_id: &str,
        sessions: &[String],
    ) -> rusqlite::Result<Option<(i64, String)>> {
        let mut oldest: Option<(i64, String)> = None;
        for session_id in sessions {
            let head = match self.by_session.get(session_id) {
                Some(known) => known.clone(),
                None => {
                    let head = rows.head_of(session_id)?;
                    self.by_session.insert(session_id.clone(), head.clone());
                    head
                }
            };
            if let Some((seq, head)) = head
                && head.is_open_to(owner_id, &SessionRoom::Any)
                && oldest.as_ref().is_none_or(|(oldest, _)| seq < *oldest)
            {
                oldest = Some((seq, head.session_id));
            }
        }
        Ok(oldest)
    }

    /// Reads the oldest rows. That is enough unless they all belong to sessions of other owners.
    fn read_front(&mut self, rows: &SessionRows<'_>) -> rusqlite::Result<()> {
        let mut seen = HashSet::new();
        let (mut read, mut last) = (0, i64::MIN);
        for row in rows.front()? {
            (read, last) = (read + 1, row.seq);
            if rows.may_take(&row) && seen.insert(row.session_id.clone()) {
                let owner = rows.owner_of(row.seq, &row.session_id)?;
                self.heads.insert(last, SessionHead { session_id: row.session_id, owner });
            }
        }
        self.read = if read < FRONT_ROWS { SessionsRead::All } else { SessionsRead::UpTo(last) };
        Ok(())
    }

    /// Reads the oldest activity of every session: one step a session, however many activities it has.
    fn read_all(&mut self, rows: &SessionRows<'_>) -> rusqlite::Result<()> {
        let known: HashSet<String> = self.heads.values().map(|head| head.session_id.clone()).collect();
        let mut next_session = rows.conn.prepare_cached(NEXT_SESSION)?;
        let mut after = Value::Text(String::new());
        loop {
            let next = next_session.query_row([&after], |row| row.get::<_, Value>(0)).optional();
            match next {
                Ok(Some(next)) => after = next,
                Ok(None) => break,
                // A damaged name ends the walk: its rows are taken when they are the oldest.
                Err(rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::Utf8Error(..)) => break,
                Err(error) => return Err(error),
            }
            if let Value::Text(session_id) = &after
                && !known.contains(session_id)
                && let Some((seq, head)) = rows.head_of(session_id)?
            {
                self.heads.insert(seq, head);
            }
        }
        self.read = SessionsRead::All;
        Ok(())
    }

    /// The next activity of the session takes the place of the one that was taken.
    fn taken(&mut self, rows: &SessionRows<'_>, seq: i64, session_id: &str) -> rusqlite::Result<()> {
        self.heads.remove(&seq);
        let next = rows.head_of(session_id)?;
        if let Some((seq, head)) = &next {
            let is_read = match self.read {
                SessionsRead::Nothing => false,
                SessionsRead::UpTo(last) => *seq <= last,
                SessionsRead::All => true,
            };
            if is_read {
                self.heads.insert(*seq, head.clone());
            }
        }
        self.by_session.insert(session_id.to_owned(), next);
        Ok(())
    }
}

/// The ready rows of sessions, as a fetch sees them.
struct SessionRows<'a> {
    conn: &'a Connection,
    reads: RowReads<'a>,
    fetch: &'a ParkedWorkFetch,
    now_ms: i64,
}

/// An activity that is bound to a session.
struct BoundRow {
    seq: i64,
    session_id: String,
    tag: Option<String>,
    /// The handler for whose lack it was given back.
    missing_handler: Option<String>,
    needs_engine: i64,
}

impl BoundRow {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            session_id: columns::text(row, 1)?.unwrap_or_default(),
            tag: columns::text(row, 2)?,
            missing_handler: columns::text(row, 3)?,
            needs_engine: columns::integer(row, 4)?.unwrap_or(0),
        })
    }
}

impl SessionRows<'_> {
    /// Whether the fetch may take an activity.
    fn may_take(&self, row: &BoundRow) -> bool {
        row.needs_engine <= OWN_ENGINE
            && self.fetch.tags.matches(row.tag.as_deref())
            && row.missing_handler.as_ref().is_none_or(|handler| self.fetch.has(handler))
    }

    /// The oldest rows.
    fn front(&self) -> rusqlite::Result<Vec<BoundRow>> {
        if !self.reads.one_by_one {
            let mut select = self.conn.prepare_cached(OLDEST_BOUND)?;
            let limit = i64::try_from(FRONT_ROWS).unwrap_or(i64::MAX);
            return select.query_map([limit], BoundRow::of)?.collect();
        }
        let mut select = self.conn.prepare_cached(BOUND_KEYS)?;
        let mut listed = select.query([])?;
        let mut front = Vec::new();
        while let Some(row) = listed.next()? {
            front.extend(self.read(row.get(0)?)?);
            if front.len() >= FRONT_ROWS {
                break;
            }
        }
        Ok(front)
    }

    /// One row, unless it cannot be read.
    fn read(&self, seq: i64) -> rusqlite::Result<Option<BoundRow>> {
        let place = RowPlace::Activity(seq);
        if self.reads.passes_over(place) {
            return Ok(None);
        }
        self.reads.at(place);
        let row = self.conn.prepare_cached(BOUND_ROW)?.query_row([seq], BoundRow::of).optional()?;
        self.reads.done();
        Ok(row)
    }

    /// The oldest activity of a session that the fetch may take.
    fn head_of(&self, session_id: &str) -> rusqlite::Result<Option<(i64, SessionHead)>> {
        let one_by_one = self.reads.one_by_one;
        let mut select =
            self.conn.prepare_cached(if one_by_one { KEYS_OF_SESSION } else { ROWS_OF_SESSION })?;
        let mut listed = select.query([session_id])?;
        while let Some(row) = listed.next()? {
            let row = if one_by_one { self.read(row.get(0)?)? } else { Some(BoundRow::of(row)?) };
            if let Some(row) = row.filter(|row| self.may_take(row)) {
                let owner = self.owner_of(row.seq, session_id)?;
                return Ok(Some((row.seq, SessionHead { session_id: session_id.to_owned(), owner })));
            }
        }
        Ok(None)
    }

    /// The owner of a session, if its lease has not expired. If that cannot be read, its activity is passed over.
    fn owner_of(&self, seq: i64, session_id: &str) -> rusqlite::Result<Option<String>> {
        self.reads.at(RowPlace::Activity(seq));
        let mut select = self.conn.prepare_cached(OWNER_OF_SESSION)?;
        let owner = select.query_row(params![session_id, self.now_ms], |row| columns::text(row, 0));
        let owner = owner.optional()?;
        self.reads.done();
        Ok(owner.flatten())
    }
}

#[cfg(test)]
mod tests;
