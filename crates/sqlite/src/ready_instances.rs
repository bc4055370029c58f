//! Ready instances: what a fetch of turns may be assigned.

use everturn_provider::store::{HandlerKey, Stamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use semver::Version;

use crate::columns;
use crate::unreadable::{RowPlace, RowReads, is_unreadable};

/// A ready instance.
pub(crate) struct Candidate {
    pub(crate) key: i64,
    pub(crate) ready_seq: i64,
    pub(crate) instance_id: String,
    /// Whether its row has an instance id.
    pub(crate) is_named: bool,
    pub(crate) origin: NameOrigin,
    pub(crate) stamp: Option<Stamp>,
    /// The pinned version of its execution, or why it cannot be read.
    pub(crate) pin: Result<Option<Version>, String>,
    /// The engine version that its messages need.
    pub(crate) needs_engine: i64,
    /// The handler that a fetch must have to be assigned it: another runtime gave it back for the lack of it.
    pub(crate) missing_handler: Option<HandlerKey>,
}

impl Candidate {
    /// The pinned version, if it has a readable one.
    pub(crate) fn pin(&self) -> Option<&Version> {
        self.pin.as_ref().ok().and_then(Option::as_ref)
    }
}

/// Where the name of an instance's orchestration is found.
#[derive(Debug, Clone)]
pub(crate) enum NameOrigin {
    /// In its row.
    Row { name: String, version: String, execution_id: i64 },
    /// In the start event of its first execution.
    History,
    /// In the message that starts it; `fresh` if no turn was ever committed.
    Message { fresh: bool },
}

impl NameOrigin {
    /// Whether no turn of the instance was ever committed.
    pub(crate) fn is_start(&self) -> bool {
        matches!(self, Self::Message { fresh: true })
    }

    pub(crate) fn execution_id(&self) -> i64 {
        match self {
            Self::Row { execution_id, .. } => *execution_id,
            Self::History | Self::Message { .. } => 1,
        }
    }
}

/// Reads candidates from one index of ready instances.
macro_rules! candidates_sql {
    ($index:literal, $condition:literal, $order:literal) => {
        concat!(
            "SELECT i.instance_key, i.ready_seq, i.instance_id, i.orchestration_name, \
             i.orchestration_version, i.current_execution_id, i.turn_stamp, i.startable, e.pinned_engine_version, \
             e.execution_id IS NULL, i.needs_engine FROM everturn_instances AS i ",
            $index,
            " LEFT JOIN everturn_executions AS e \
                 ON e.instance_key = i.instance_key AND e.execution_id = coalesce(i.current_execution_id, 1) \
             WHERE ",
            $condition,
            $order
        )
    };
}
const READY: &str = candidates_sql!(
    "INDEXED BY everturn_instances_ready",
    "i.ready_seq > ?1 AND i.delayed_until_ms IS NULL",
    " ORDER BY i.ready_seq LIMIT ?2"
);
const READY_FOR_HANDLER: &str = candidates_sql!(
    "INDEXED BY everturn_instances_missing_handler",
    "i.ready_seq > ?1 AND i.delayed_until_ms IS NOT NULL AND i.missing_handler = ?3 AND i.missing_version = ?4",
    " ORDER BY i.ready_seq LIMIT ?2"
);
const READY_ROW: &str = candidates_sql!("", "i.instance_key = ?1 AND i.ready_seq IS NOT NULL", "");
/// The first handler of the index that is greater than another one, so that no other row is read.
const NEXT_HANDLER: &str = "SELECT missing_handler, missing_version FROM everturn_instances \
     INDEXED BY everturn_instances_missing_handler WHERE ready_seq IS NOT NULL AND delayed_until_ms IS NOT NULL \
     AND (missing_handler, missing_version) > (?1, ?2) ORDER BY missing_handler, missing_version LIMIT 1";

/// The same in the index alone: its rows need not be readable.
const READY_KEYS: &str = "SELECT ready_seq, instance_key FROM everturn_instances INDEXED BY everturn_instances_ready \
     WHERE ready_seq > ?1 AND ready_seq IS NOT NULL AND delayed_until_ms IS NULL ORDER BY ready_seq LIMIT ?2";
const READY_KEYS_FOR_HANDLER: &str = "SELECT ready_seq, instance_key FROM everturn_instances INDEXED BY everturn_instances_missing_handler \
     WHERE ready_seq > ?1 AND ready_seq IS NOT NULL AND delayed_until_ms IS NOT NULL AND missing_handler = ?3 \
     AND missing_version = ?4 ORDER BY ready_seq LIMIT ?2";

/// Some ready instances.
#[derive(Default)]
pub(crate) struct ReadyPage {
    /// The one with the oldest message first.
    pub(crate) candidates: Vec<Candidate>,
    /// The oldest message of the last one; `None` if there are no more.
    pub(crate) up_to: Option<i64>,
    /// Instances were left out because they cannot be read.
    pub(crate) has_gaps: bool,
}

impl ReadyPage {
    fn of(candidates: Vec<Candidate>, limit: i64) -> Self {
        let is_full = i64::try_from(candidates.len()).is_ok_and(|found| found >= limit);
        let up_to = candidates.last().filter(|_| is_full).map(|last| last.ready_seq);
        Self { candidates, up_to, has_gaps: false }
    }
}

/// The next instances that are ready for every fetch.
pub(crate) fn ready(
    conn: &Connection,
    rows: RowReads<'_>,
    after: i64,
    limit: i64,
) -> rusqlite::Result<ReadyPage> {
    if rows.one_by_one {
        return one_by_one(conn, rows, after, limit);
    }
    let mut select = conn.prepare_cached(READY)?;
    let candidates = select.query_map([after, limit], candidate)?;
    Ok(ReadyPage::of(candidates.collect::<rusqlite::Result<_>>()?, limit))
}

/// The same without instances that cannot be read.
fn one_by_one(conn: &Connection, rows: RowReads<'_>, after: i64, limit: i64) -> rusqlite::Result<ReadyPage> {
    if let Some(beyond) = rows.beyond(after) {
        return Ok(ReadyPage { up_to: Some(beyond), has_gaps: true, ..ReadyPage::default() });
    }
    let mut select = conn.prepare_cached(READY_KEYS)?;
    let mut listed = select.query([after, limit])?;
    let mut page = ReadyPage::default();
    let (mut read, mut last) = (0, after);
    loop {
        rows.at(RowPlace::ReadyBehind(last));
        let Some(row) = listed.next()? else { break };
        let key: i64 = row.get(1)?;
        // A damaged number comes last.
        (read, last) = (read + 1, columns::integer(row, 0)?.unwrap_or(i64::MAX));
        if rows.passes_over(RowPlace::Instance(key)) {
            page.has_gaps = true;
            continue;
        }
        rows.at(RowPlace::Instance(key));
        page.candidates.extend(conn.prepare_cached(READY_ROW)?.query_row([key], candidate).optional()?);
        if rows.beyond(last).is_some() {
            // Behind it the index cannot be read.
            (read, page.has_gaps) = (limit, true);
            break;
        }
    }
    rows.done();
    page.up_to = (read >= limit).then_some(last);
    Ok(page)
}

/// Where the index of ready instances can be read again that cannot be read behind `after`: the greatest place from which
/// it still cannot, found by ever longer steps and then by halving.
pub(crate) fn readable_beyond(conn: &Connection, after: i64) -> i64 {
    let fails_behind = |place: i64| {
        let first = conn
            .prepare_cached(READY_KEYS)
            .and_then(|mut select| select.query_row([place, 1], |row| row.get::<_, i64>(0)).optional());
        first.is_err_and(|error| is_unreadable(&error))
    };
    let from = after.max(0);
    let (mut failed, mut step) = (from, 1_i64);
    let mut readable = loop {
        let place = from.saturating_add(step);
        if place == i64::MAX || !fails_behind(place) {
            break place;
        }
        failed = place;
        step = step.saturating_mul(2);
    };
    while readable.saturating_sub(failed) > 1 {
        let middle = failed + (readable - failed) / 2;
        if fails_behind(middle) { failed = middle } else { readable = middle }
    }
    readable
}

/// The next instances that are ready for fetches with this handler, the one with the oldest message first.
pub(crate) fn ready_for(
    conn: &Connection,
    rows: RowReads<'_>,
    handler: &StoredHandler,
    after: i64,
    limit: i64,
) -> rusqlite::Result<ReadyPage> {
    let handler_key = handler.key();
    let of_row =
        |row: &Row<'_>| Ok(Candidate { missing_handler: Some(handler_key.clone()), ..candidate(row)? });
    let wanted = params![after, limit, handler.name, handler.version];
    if !rows.one_by_one {
        let mut select = conn.prepare_cached(READY_FOR_HANDLER)?;
        let candidates = select.query_map(wanted, of_row)?.collect::<rusqlite::Result<_>>()?;
        return Ok(ReadyPage::of(candidates, limit));
    }
    let mut select = conn.prepare_cached(READY_KEYS_FOR_HANDLER)?;
    let listed = select.query_map(wanted, |row| Ok((columns::integer(row, 0)?, row.get::<_, i64>(1)?)))?;
    let listed = listed.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_full = i64::try_from(listed.len()).is_ok_and(|found| found >= limit);
    let up_to = listed.last().filter(|_| is_full).map(|(seq, _)| seq.unwrap_or(i64::MAX));
    let mut page = ReadyPage { up_to, ..ReadyPage::default() };
    for (_, key) in listed {
        if rows.passes_over(RowPlace::Instance(key)) {
            page.has_gaps = true;
            continue;
        }
        rows.at(RowPlace::Instance(key));
        page.candidates.extend(conn.prepare_cached(READY_ROW)?.query_row([key], of_row).optional()?);
    }
    rows.done();
    Ok(page)
}

/// A missing handler as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredHandler {
    pub(crate) name: String,
    /// `*` for the version that the runtime chooses, or `=` and the exact one.
    pub(crate) version: String,
}

impl StoredHandler {
    pub(crate) fn of(handler: &HandlerKey) -> Self {
        let version =
            handler.version.as_ref().map_or_else(|| "*".to_owned(), |version| format!("={version}"));
        Self { name: handler.name.clone(), version }
    }

    pub(crate) fn key(&self) -> HandlerKey {
        HandlerKey::orchestration(&self.name, self.version.strip_prefix('=').map(str::to_owned))
    }

    /// The next handler that ready instances wait for. It begins with the default.
    pub(crate) fn next(&self, conn: &Connection) -> rusqlite::Result<Option<Self>> {
        let mut select = conn.prepare_cached(NEXT_HANDLER)?;
        let found = select.query_row(params![self.name, self.version], |row| {
            let name = columns::text(row, 0)?.unwrap_or_default();
            Ok(Self { name, version: columns::text(row, 1)?.unwrap_or_default() })
        });
        // A damaged name may read as a smaller one; then the walk ends.
        Ok(found.optional()?.filter(|next| next > self))
    }
}

/// Reads a candidate whatever its columns hold: a damaged instance is fetched as such.
fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    let created = row.get_ref(5)? != ValueRef::Null;
    let (execution_id, startable) = (columns::integer(row, 5)?, columns::flag(row, 7)?);
    let origin = match (execution_id, startable) {
        (Some(execution_id), _) => {
            let name = columns::text(row, 3)?.unwrap_or_default();
            NameOrigin::Row { name, version: columns::text(row, 4)?.unwrap_or_default(), execution_id }
        }
        (None, true) => NameOrigin::History,
        (None, false) => NameOrigin::Message { fresh: row.get_ref(6)? == ValueRef::Null },
    };
    let pin = match columns::text(row, 8)? {
        _ if created && execution_id.is_none() => Err("current execution is damaged".to_owned()),
        // The turn that made it the current execution also inserted its row.
        _ if created && columns::flag(row, 9)? => Err("the current execution is missing".to_owned()),
        None => Ok(None),
        Some(text) => {
            Version::parse(&text).map(Some).map_err(|error| format!("pinned version {text:?}: {error}"))
        }
    };
    // An instance without a history has no stamp to compare.
    let stamp = columns::integer(row, 6)?.filter(|_| !matches!(origin, NameOrigin::Message { .. }));
    Ok(Candidate {
        key: row.get(0)?,
        // A damaged number comes last.
        ready_seq: columns::integer(row, 1)?.unwrap_or(i64::MAX),
        is_named: row.get_ref(2)? != ValueRef::Null,
        instance_id: columns::text(row, 2)?.unwrap_or_default(),
        stamp: stamp.map(|stamp| Stamp(stamp.cast_unsigned())),
        origin,
        pin,
        needs_engine: columns::integer(row, 10)?.unwrap_or(0),
        missing_handler: None,
    })
}

#[cfg(test)]
mod tests;
