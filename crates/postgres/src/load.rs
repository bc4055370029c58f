//! Reading and locking the rows of a batch: one round trip.

use std::future::Future;

use futures::future::try_join_all;
use tokio_postgres::{Error, Row};

use everturn_provider::encoded::EventCounts;

use crate::drawn_locks::LOCK_DRAWN;
use crate::engine_version::OWN_ENGINE;
use crate::instance_image::{InstanceImage, QueuedMessages, instance_columns};
use crate::locks::StoredLock;
use crate::needs::{EventRange, InstanceName, Needs};
use crate::session::{Parameter, ServerSession};
use crate::sessions::{LeaseRenewal, RENEW_LEASES};
use crate::shared::{NOW, Shared};
use crate::unit_of_work::{ActivityImage, ExecutionImage, ReadyRow, StoredRange, UnitOfWork};

/// The keys of the instances that `$1` lists by key and `$2` by id.
macro_rules! listed_instances {
    () => {
        "(SELECT unnest($1::bigint[]) UNION SELECT k.instance_key FROM unnest($2::text[]) AS w (id) \
         JOIN {schema}.everturn_instances AS k ON k.instance_id = w.id)"
    };
}

/// The messages of an instance that waits for a start, those that a lock holder has or those that none has.
macro_rules! queued {
    ($which:literal) => {
        concat!(
            "SELECT min(q.seq) FILTER (WHERE q.visible_at_ms <= {schema}.everturn_now_ms($3)) AS oldest, \
             coalesce(bool_or(q.is_start), false) AS has_start, \
             coalesce(bool_or(q.is_start AND q.visible_at_ms <= {schema}.everturn_now_ms($3)), false) AS has_visible_start, \
             coalesce(bool_or(q.visible_at_ms <= {schema}.everturn_now_ms($3) AND q.kind <> 'ExternalRaisedPersistent'), false) \
                 AS has_visible_other, \
             min(q.arrived_at_ms) AS first_arrival_ms FROM {schema}.everturn_orchestrator_queue AS q \
             WHERE NOT i.startable AND q.instance_key = i.instance_key AND ",
            $which
        )
    };
}

// In the order of their ids, as every process does.
const MAKE_RECEIVERS: &str = "INSERT INTO {schema}.everturn_instances (instance_id) \
     SELECT id FROM unnest($1::text[]) AS w (id) \
     WHERE NOT EXISTS (SELECT 1 FROM {schema}.everturn_instances AS i WHERE i.instance_id = w.id) ORDER BY id \
     ON CONFLICT (instance_id) DO NOTHING RETURNING instance_key";
const LOCK_INSTANCES: &str = concat!(
    "SELECT ",
    instance_columns!(),
    " FROM {schema}.everturn_instances AS i WHERE i.instance_key IN ",
    listed_instances!(),
    " ORDER BY i.instance_key FOR UPDATE"
);
// After the locks, with a snapshot of its own: every message that was sent before is seen.
const READ_MESSAGES: &str = concat!(
    "SELECT i.instance_key, greatest(a.at_ms, b.at_ms), \
     coalesce(u.oldest, r.untagged), u.has_start, u.has_visible_start, u.has_visible_other, u.first_arrival_ms, \
     coalesce(t.oldest, r.tagged), t.has_start, t.has_visible_start, t.has_visible_other, t.first_arrival_ms \
     FROM {schema}.everturn_instances AS i \
     LEFT JOIN LATERAL (SELECT max(q.arrived_at_ms) AS at_ms FROM {schema}.everturn_orchestrator_queue AS q \
         WHERE q.instance_key = i.instance_key AND q.visible_at_ms = 0) AS a ON true \
     LEFT JOIN LATERAL (SELECT max(q.arrived_at_ms) AS at_ms FROM {schema}.everturn_orchestrator_queue AS q \
         WHERE q.instance_key = i.instance_key AND q.visible_at_ms > 0 \
         AND q.visible_at_ms <= {schema}.everturn_now_ms($3)) AS b ON true \
     LEFT JOIN LATERAL (SELECT min(q.seq) FILTER (WHERE NOT q.tagged) AS untagged, min(q.seq) FILTER (WHERE q.tagged) AS tagged \
         FROM {schema}.everturn_orchestrator_queue AS q WHERE i.startable AND i.instance_key = ANY($4) \
         AND q.instance_key = i.instance_key AND q.visible_at_ms <= {schema}.everturn_now_ms($3)) AS r ON true \
     LEFT JOIN LATERAL (",
    queued!("NOT q.tagged"),
    ") AS u ON true LEFT JOIN LATERAL (",
    queued!("q.tagged"),
    ") AS t ON true WHERE i.instance_key IN ",
    listed_instances!()
);
const READ_EXECUTIONS: &str = "SELECT e.instance_key, e.execution_id, e.status, e.pinned_engine_version, e.event_count, \
     e.event_bytes, (SELECT h.last_event_id FROM {schema}.everturn_history AS h WHERE h.instance_key = e.instance_key \
         AND h.execution_id = e.execution_id ORDER BY h.first_event_id DESC LIMIT 1) \
     FROM (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS w (instance_key, execution_id) \
         UNION SELECT i.instance_key, w.execution_id FROM unnest($3::text[], $4::bigint[]) AS w (id, execution_id) \
         JOIN {schema}.everturn_instances AS i ON i.instance_id = w.id) AS w \
     JOIN {schema}.everturn_executions AS e ON e.instance_key = w.instance_key AND e.execution_id = w.execution_id";
const READ_EVENTS: &str = "SELECT h.instance_key, h.execution_id, h.events \
     FROM {schema}.everturn_history AS h \
     WHERE h.instance_key = coalesce($1, (SELECT i.instance_key FROM {schema}.everturn_instances AS i WHERE i.instance_id = $2)) \
     AND h.execution_id = $3 AND h.first_event_id <= $5 AND h.first_event_id >= coalesce((SELECT max(b.first_event_id) \
         FROM {schema}.everturn_history AS b WHERE b.instance_key = h.instance_key AND b.execution_id = $3 \
         AND b.first_event_id <= $4), 0)";
const LOCK_ACTIVITIES: &str = "SELECT q.seq, q.lock_token, q.locked_until_ms, q.lock_ms, q.session_id \
     FROM {schema}.everturn_worker_queue AS q WHERE q.seq = ANY($1) ORDER BY q.seq FOR UPDATE";
const LOCK_READY: &str = "SELECT q.seq, q.instance_id, q.execution_id, q.activity_id, q.attempt_count, q.work_item FROM {schema}.everturn_worker_queue AS q \
     WHERE q.ready AND q.session_id IS NULL AND q.missing_handler IS NULL AND q.tag = '' AND q.needs_engine <= $1 \
     ORDER BY q.seq LIMIT $2 FOR UPDATE SKIP LOCKED";
const READ_DUE: &str = "SELECT q.instance_key, q.seq FROM {schema}.everturn_orchestrator_queue AS q \
     WHERE q.instance_key = ANY($2) AND q.visible_at_ms > 0 AND q.visible_at_ms <= {schema}.everturn_now_ms($1)";
const NEXT_MESSAGES: &str = "SELECT nextval('{schema_text}.everturn_orchestrator_queue_seq_seq') \
     FROM generate_series(1, $1::bigint)";
const NEXT_ACTIVITIES: &str =
    "SELECT nextval('{schema_text}.everturn_worker_queue_seq_seq') FROM generate_series(1, $1::bigint)";

/// All statements that load a batch.
pub(crate) const STATEMENTS: &[&str] = &[
    NOW,
    MAKE_RECEIVERS,
    LOCK_INSTANCES,
    READ_MESSAGES,
    READ_EXECUTIONS,
    READ_EVENTS,
    LOCK_ACTIVITIES,
    LOCK_DRAWN,
    LOCK_READY,
    READ_DUE,
    RENEW_LEASES,
    NEXT_MESSAGES,
    NEXT_ACTIVITIES,
];

/// Begins a transaction, and reads and locks the rows that a batch needs.
pub(crate) async fn load(
    session: &ServerSession,
    needs: &Needs,
    shared: &Shared,
) -> Result<UnitOfWork, Error> {
    let began = shared.clock.monotonic();
    let wanted = WantedRows::of(needs);
    let rows = wanted.read(session, needs, shared).await?;
    let mut unit = UnitOfWork { owner: shared.owner, now_ms: rows.now_ms, began, ..UnitOfWork::default() };
    rows.add_instances(&mut unit)?;
    rows.add_others(&mut unit)?;
    Ok(unit)
}

/// What a batch needs, as parameters of statements.
struct WantedRows<'a> {
    keys: Vec<i64>,
    ids: Vec<&'a str>,
    receivers: Vec<&'a str>,
    released: Vec<i64>,
    /// By the keys of their instances, and by ids.
    executions: (Vec<i64>, Vec<i64>),
    executions_by_id: (Vec<&'a str>, Vec<i64>),
    activities: Vec<i64>,
    due: Vec<i64>,
    new_messages: i64,
    new_activities: i64,
    workers: i64,
}

/// What the statements of a batch returned.
struct LoadedRows {
    now_ms: i64,
    made: Vec<Row>,
    instances: Vec<Row>,
    messages: Vec<Row>,
    executions: Vec<Row>,
    events: Vec<Vec<Row>>,
    activities: Vec<Row>,
    drawn: Vec<Row>,
    ready: Vec<Row>,
    due_messages: Vec<Row>,
    renewed_leases: Vec<u64>,
    message_seqs: Vec<Row>,
    activity_seqs: Vec<Row>,
}

impl<'a> WantedRows<'a> {
    fn of(needs: &'a Needs) -> Self {
        let count = |count: usize| i64::try_from(count).unwrap_or(0);
        Self {
            keys: needs.keys.iter().copied().collect(),
            ids: needs.ids.iter().map(String::as_str).collect(),
            receivers: needs.receivers.iter().map(String::as_str).collect(),
            released: needs.released.iter().copied().collect(),
            executions: needs.executions.iter().copied().unzip(),
            executions_by_id: needs
                .executions_by_id
                .iter()
                .map(|(id, execution)| (id.as_str(), *execution))
                .unzip(),
            activities: needs.activities.iter().copied().collect(),
            due: needs.due.iter().copied().collect(),
            new_messages: count(needs.new_messages),
            new_activities: count(needs.new_activities),
            workers: count(needs.workers),
        }
    }

    /// Sends all statements together. In their order on the connection each sees what those before it have locked.
    async fn read(
        &self,
        session: &ServerSession,
        needs: &Needs,
        shared: &Shared,
    ) -> Result<LoadedRows, Error> {
        let (test_now_ms, owner) = (shared.test_now_ms(), shared.owner);
        let receiver_parameters: [Parameter<'_>; 1] = [&self.receivers];
        let instance_parameters: [Parameter<'_>; 2] = [&self.keys, &self.ids];
        let message_parameters: [Parameter<'_>; 4] = [&self.keys, &self.ids, &test_now_ms, &self.released];
        let execution_parameters: [Parameter<'_>; 4] =
            [&self.executions.0, &self.executions.1, &self.executions_by_id.0, &self.executions_by_id.1];
        let activity_parameters: [Parameter<'_>; 1] = [&self.activities];
        let drawn_parameters: [Parameter<'_>; 2] = [&owner, &needs.drawn];
        let ready_parameters: [Parameter<'_>; 2] = [&OWN_ENGINE, &self.workers];
        let due_parameters: [Parameter<'_>; 2] = [&test_now_ms, &self.due];
        let (message_count, activity_count): ([Parameter<'_>; 1], [Parameter<'_>; 1]) =
            ([&self.new_messages], [&self.new_activities]);
        let has_instances = !self.keys.is_empty() || !self.ids.is_empty();
        let has_executions = !self.executions.0.is_empty() || !self.executions_by_id.0.is_empty();
        let (
            (),
            now_ms,
            made,
            instances,
            messages,
            executions,
            events,
            activities,
            drawn,
            ready,
            due_messages,
            renewed_leases,
            message_seqs,
            activity_seqs,
        ) = tokio::try_join!(
            biased;
            session.run("BEGIN ISOLATION LEVEL READ COMMITTED"),
            shared.read_time(session, test_now_ms),
            when(!self.receivers.is_empty(), session.query(MAKE_RECEIVERS, &receiver_parameters)),
            when(has_instances, session.query(LOCK_INSTANCES, &instance_parameters)),
            when(has_instances, session.query(READ_MESSAGES, &message_parameters)),
            when(has_executions, session.query(READ_EXECUTIONS, &execution_parameters)),
            try_join_all(needs.events.iter().map(|range| read_events(session, range))),
            when(!self.activities.is_empty(), session.query(LOCK_ACTIVITIES, &activity_parameters)),
            when(!needs.drawn.is_empty(), session.query(LOCK_DRAWN, &drawn_parameters)),
            when(self.workers > 0, session.query(LOCK_READY, &ready_parameters)),
            when(!self.due.is_empty(), session.query(READ_DUE, &due_parameters)),
            try_join_all(needs.lease_renewals.iter().map(|of| renew_leases(session, of, test_now_ms, owner))),
            when(self.new_messages > 0, session.query(NEXT_MESSAGES, &message_count)),
            when(self.new_activities > 0, session.query(NEXT_ACTIVITIES, &activity_count)),
        )?;
        Ok(LoadedRows {
            now_ms,
            made,
            instances,
            messages,
            executions,
            events,
            activities,
            drawn,
            ready,
            due_messages,
            renewed_leases,
            message_seqs,
            activity_seqs,
        })
    }
}

async fn read_events(session: &ServerSession, range: &EventRange) -> Result<Vec<Row>, Error> {
    let (key, id) = match &range.instance {
        InstanceName::Key(key) => (Some(*key), None),
        InstanceName::Id(id) => (None, Some(id.as_str())),
    };
    session.query(READ_EVENTS, &[&key, &id, &range.execution_id, &range.first, &range.last]).await
}

async fn renew_leases(
    session: &ServerSession,
    of: &LeaseRenewal,
    test_now_ms: Option<i64>,
    owner: i64,
) -> Result<u64, Error> {
    let parameters: [Parameter<'_>; 6] =
        [&of.owner_ids, &of.lease_ms, &of.called_ms, &of.active_since_ms, &test_now_ms, &owner];
    session.execute(RENEW_LEASES, &parameters).await
}

impl LoadedRows {
    fn add_instances(&self, unit: &mut UnitOfWork) -> Result<(), Error> {
        for row in &self.instances {
            let instance = InstanceImage::of(row)?;
            unit.by_id.insert(instance.id.clone(), instance.key);
            unit.instances.insert(instance.key, instance);
        }
        for row in &self.made {
            if let Some(instance) = unit.instances.get_mut(&row.try_get(0)?) {
                instance.is_new = true;
            }
        }
        for row in &self.messages {
            if let Some(instance) = unit.instances.get_mut(&row.try_get(0)?) {
                instance.latest_arrival_ms = row.try_get(1)?;
                instance.untagged = queued_messages(row, 2)?;
                instance.tagged = queued_messages(row, 7)?;
            }
        }
        for row in &self.executions {
            let last_event_id = row.try_get::<_, Option<i64>>(6)?.unwrap_or(0);
            let events = EventCounts { count: row.try_get(4)?, bytes: row.try_get(5)?, last_event_id };
            let execution = ExecutionImage { status: row.try_get(2)?, pin: row.try_get(3)?, events };
            unit.executions.insert((row.try_get(0)?, row.try_get(1)?), execution);
        }
        Ok(())
    }

    fn add_others(self, unit: &mut UnitOfWork) -> Result<(), Error> {
        for row in self.events.iter().flatten() {
            let (key, execution_id, events) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            unit.stored_events.push(StoredRange { key, execution_id, events });
        }
        for row in self.activities.iter().chain(&self.drawn) {
            let lock =
                StoredLock { token: row.try_get(1)?, until_ms: row.try_get(2)?, lock_ms: row.try_get(3)? };
            let activity = ActivityImage { lock, session_id: row.try_get(4)? };
            unit.activities.insert(row.try_get(0)?, activity);
        }
        for row in &self.ready {
            let seq = row.try_get(0)?;
            if unit.activities.contains_key(&seq) {
                // The holder of its expired lock has called: a fetch takes it if it is still there.
                unit.effects.work = true;
                continue;
            }
            let identity = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            let (attempt_count, work_item) = (row.try_get(4)?, row.try_get(5)?);
            unit.ready.push_back(ReadyRow { seq, identity, attempt_count, work_item, is_new: false });
        }
        for row in &self.due_messages {
            unit.due_messages.push((row.try_get(0)?, row.try_get(1)?));
        }
        let renewed = self.renewed_leases.into_iter();
        unit.renewed_leases = renewed.map(|count| usize::try_from(count).unwrap_or(usize::MAX)).collect();
        unit.message_seqs = numbers(&self.message_seqs)?.into();
        unit.activity_seqs = numbers(&self.activity_seqs)?.into();
        Ok(())
    }
}

/// Runs a query if it is needed.
async fn when(
    is_needed: bool,
    query: impl Future<Output = Result<Vec<Row>, Error>>,
) -> Result<Vec<Row>, Error> {
    if is_needed { query.await } else { Ok(Vec::new()) }
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>, Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

fn queued_messages(row: &Row, column: usize) -> Result<QueuedMessages, Error> {
    Ok(QueuedMessages {
        oldest: row.try_get(column)?,
        has_start: row.try_get(column + 1)?,
        has_visible_start: row.try_get(column + 2)?,
        has_visible_other: row.try_get(column + 3)?,
        first_arrival_ms: row.try_get(column + 4)?,
    })
}
