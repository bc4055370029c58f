//! What a batch writes: one statement for each kind of row, all of them sent together.

use everturn_core::ExecutionStatus;
use everturn_provider::encoded::{EventCounts, HistoryDelta, StoredActivity, StoredMessage};
use futures::future::{BoxFuture, try_join_all};
use semver::Version;
use tokio_postgres::Error;

use crate::damaged_activity::NewDeadLetter;
use crate::engine_version::order_of;
use crate::instance_image::InstanceImage;
use crate::session::{Parameter, ServerSession};
use crate::sessions::{SessionLease, UNDO_LEASE};
use crate::totals::TotalsChange;
use crate::unit_of_work::UnitOfWork;

const INSERT_HISTORY: &str = "INSERT INTO {schema}.everturn_history \
     (instance_key, execution_id, first_event_id, last_event_id, events) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])";
const INSERT_MESSAGES: &str = "INSERT INTO {schema}.everturn_orchestrator_queue \
     (seq, instance_key, kind, is_start, arrived_at_ms, visible_at_ms, timer_execution_id, unawaited, work_item, notes) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bool[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::bool[], $9::text[], $10::text[])";
const DELETE_TAGGED: &str = "DELETE FROM {schema}.everturn_orchestrator_queue \
     WHERE instance_key = ANY($1) AND visible_at_ms = 0 AND tagged";
const UNTAG: &str = "UPDATE {schema}.everturn_orchestrator_queue AS q \
     SET tagged = false, attempt_count = greatest(q.attempt_count - n.refund, 0) \
     FROM unnest($1::bigint[], $2::bigint[]) AS n (instance_key, refund) \
     WHERE q.instance_key = n.instance_key AND q.visible_at_ms = 0 AND q.tagged";
const SHOW_MESSAGES: &str = "UPDATE {schema}.everturn_orchestrator_queue SET visible_at_ms = 0 WHERE seq = ANY($1) AND visible_at_ms > 0";
const DELETE_ORPHANS: &str = "DELETE FROM {schema}.everturn_orchestrator_queue \
     WHERE instance_key = ANY($1) AND visible_at_ms <= $2";
const NOTE_UNAWAITED: &str = "UPDATE {schema}.everturn_orchestrator_queue AS q SET unawaited = true \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (instance_key, first, before) \
     WHERE q.instance_key = n.instance_key AND q.visible_at_ms > 0 AND q.timer_execution_id >= n.first \
     AND q.timer_execution_id < n.before AND NOT q.unawaited";
const INSERT_ACTIVITIES: &str = "INSERT INTO {schema}.everturn_worker_queue \
     (seq, instance_id, execution_id, activity_id, session_id, tag, name, work_item, ready, attempt_count, lock_token, \
     locked_until_ms, lock_ms, lock_owner, check_at_ms) \
     SELECT *, coalesce(u.locked_until_ms, 0) FROM (SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], \
     $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bool[], $10::bigint[], $11::text[], $12::bigint[], \
     $13::bigint[], $14::bigint[])) AS u (seq, instance_id, execution_id, activity_id, session_id, tag, name, work_item, \
     ready, attempt_count, lock_token, locked_until_ms, lock_ms, lock_owner)";
const LOCK_ACTIVITIES: &str = "UPDATE {schema}.everturn_worker_queue AS q SET lock_token = n.token, \
     locked_until_ms = n.until_ms, lock_ms = n.lock_ms, lock_owner = $5, ready = false, visible_at_ms = 0, \
     missing_handler = NULL, attempt_count = least(q.attempt_count, 4294967294) + 1, check_at_ms = n.until_ms \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) AS n (seq, token, until_ms, lock_ms) \
     WHERE q.seq = n.seq";
const DELETE_ACTIVITIES: &str = "DELETE FROM {schema}.everturn_worker_queue WHERE seq = ANY($1)";
const CANCEL_ACTIVITIES: &str = "DELETE FROM {schema}.everturn_worker_queue AS q \
     USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (instance_id, execution_id, activity_id) \
     WHERE q.instance_id = n.instance_id AND q.execution_id = n.execution_id AND q.activity_id = n.activity_id";
const UNLOCK_ACTIVITIES: &str = "UPDATE {schema}.everturn_worker_queue AS q SET lock_token = NULL, locked_until_ms = NULL, \
     lock_ms = NULL, visible_at_ms = n.visible_at_ms, missing_handler = n.missing_handler, \
     ready = n.visible_at_ms = 0 OR n.missing_handler IS NOT NULL, check_at_ms = n.visible_at_ms, \
     attempt_count = greatest(q.attempt_count - n.refund, 0) \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS n (seq, visible_at_ms, missing_handler, refund) \
     WHERE q.seq = n.seq";
const RENEW_ACTIVITIES: &str = "UPDATE {schema}.everturn_worker_queue AS q SET locked_until_ms = n.until_ms, \
     lock_ms = n.lock_ms, ready = false, check_at_ms = CASE WHEN q.check_at_ms > 0 THEN q.check_at_ms ELSE n.until_ms END \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (seq, until_ms, lock_ms) WHERE q.seq = n.seq";
const TOUCH_SESSIONS: &str = "UPDATE {schema}.everturn_sessions SET active_at_ms = $2 \
     WHERE session_id = ANY($1) AND lease_until_ms > $2";
const WRITE_EXECUTIONS: &str = "INSERT INTO {schema}.everturn_executions AS e (instance_key, execution_id, status, \
     started_at_ms, event_count, event_bytes, carried_count, start_event_id, outcome_event_id, pinned_engine_version, \
     pinned_order) \
     SELECT n.key, n.execution_id, 'Running', $1::bigint, n.event_count, n.event_bytes, n.carried_count, n.start_event_id, \
     n.outcome_event_id, n.pin, n.pinned_order FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], \
     $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::bigint[]) \
     AS n (key, execution_id, event_count, event_bytes, carried_count, start_event_id, outcome_event_id, pin, pinned_order) \
     ON CONFLICT (instance_key, execution_id) DO UPDATE SET event_count = excluded.event_count, \
     event_bytes = excluded.event_bytes, carried_count = greatest(e.carried_count, excluded.carried_count), \
     start_event_id = coalesce(e.start_event_id, excluded.start_event_id), \
     outcome_event_id = greatest(e.outcome_event_id, excluded.outcome_event_id), \
     pinned_engine_version = coalesce(excluded.pinned_engine_version, e.pinned_engine_version), \
     pinned_order = coalesce(excluded.pinned_order, e.pinned_order)";
const END_EXECUTIONS: &str = "UPDATE {schema}.everturn_executions AS e SET status = n.status, output = n.output, \
     completed_at_ms = CASE WHEN n.status = 'Running' THEN NULL ELSE $1::bigint END, event_count = n.event_count, \
     event_bytes = n.event_bytes, outcome_event_id = greatest(e.outcome_event_id, n.outcome_event_id) \
     FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[]) \
     AS n (key, execution_id, status, output, event_count, event_bytes, outcome_event_id) \
     WHERE e.instance_key = n.key AND e.execution_id = n.execution_id";
// Their events were counted in the rows of their instances until now.
const SUPERSEDE: &str = "UPDATE {schema}.everturn_executions AS e SET event_count = n.event_count, \
     event_bytes = n.event_bytes FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
     AS n (key, execution_id, event_count, event_bytes) WHERE e.instance_key = n.key AND e.execution_id = n.execution_id";
const SET_CUSTOM_STATUSES: &str = "INSERT INTO {schema}.everturn_custom_statuses AS c \
     (instance_key, custom_status, custom_status_version) \
     SELECT n.key, n.text, 1 FROM unnest($1::bigint[], $2::text[]) AS n (key, text) ON CONFLICT (instance_key) \
     DO UPDATE SET custom_status = excluded.custom_status, custom_status_version = c.custom_status_version + 1";
const CLEAR_KV_DELTA: &str = "DELETE FROM {schema}.everturn_kv_delta WHERE instance_key = ANY($1)";
const HIDE_KV_BASE: &str = "INSERT INTO {schema}.everturn_kv_delta (instance_key, key, value, last_updated_at_ms) \
     SELECT b.instance_key, b.key, NULL, n.at_ms FROM unnest($1::bigint[], $2::bigint[]) AS n (key, at_ms) \
     JOIN {schema}.everturn_kv_base AS b ON b.instance_key = n.key";
const SET_KV: &str = "INSERT INTO {schema}.everturn_kv_delta AS d (instance_key, key, value, last_updated_at_ms) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[]) ON CONFLICT (instance_key, key) \
     DO UPDATE SET value = excluded.value, last_updated_at_ms = excluded.last_updated_at_ms";
const MERGE_KV: &str = "WITH written AS (DELETE FROM {schema}.everturn_kv_delta WHERE instance_key = ANY($1) RETURNING *), \
     cleared AS (DELETE FROM {schema}.everturn_kv_base AS b USING written AS w \
         WHERE w.value IS NULL AND b.instance_key = w.instance_key AND b.key = w.key) \
     INSERT INTO {schema}.everturn_kv_base AS b (instance_key, key, value, last_updated_at_ms) \
     SELECT w.instance_key, w.key, w.value, w.last_updated_at_ms FROM written AS w WHERE w.value IS NOT NULL \
     ON CONFLICT (instance_key, key) DO UPDATE SET value = excluded.value, last_updated_at_ms = excluded.last_updated_at_ms";
const UPDATE_INSTANCES: &str = "UPDATE {schema}.everturn_instances AS i SET orchestration_name = n.name, \
     orchestration_version = n.version, current_execution_id = n.current_execution_id, parent_instance_id = n.parent, \
     root_instance_id = CASE WHEN n.is_created_now THEN coalesce((SELECT p.root_instance_id \
         FROM {schema}.everturn_instances AS p WHERE p.instance_id = n.parent), i.instance_id) ELSE i.root_instance_id END, \
     created_at_ms = n.created_at_ms, updated_at_ms = n.updated_at_ms, status = n.status, ended_at_ms = n.ended_at_ms, \
     failure_kind = n.failure_kind, turn_stamp = n.stamp, event_count = n.event_count, event_bytes = n.event_bytes, \
     last_event_id = n.last_event_id, startable = n.startable, ready_seq = n.ready_seq, \
     unstarted_since_ms = n.unstarted_since_ms, orphaned = n.orphaned, lock_token = n.lock_token, \
     locked_until_ms = n.locked_until_ms, lock_ms = n.lock_ms, delayed_until_ms = n.delayed_until_ms, \
     missing_handler = n.missing_handler, missing_version = n.missing_version \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bool[], $7::bigint[], $8::bigint[], \
     $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bool[], \
     $17::bigint[], $18::bigint[], $19::bool[], $20::text[], $21::bigint[], $22::bigint[], $23::bigint[], $24::text[], \
     $25::text[]) AS n (key, name, version, current_execution_id, parent, is_created_now, created_at_ms, updated_at_ms, \
     status, ended_at_ms, failure_kind, stamp, event_count, event_bytes, last_event_id, startable, ready_seq, \
     unstarted_since_ms, orphaned, lock_token, locked_until_ms, lock_ms, delayed_until_ms, missing_handler, \
     missing_version) WHERE i.instance_key = n.key";
const DEAD_LETTER: &str = "INSERT INTO {schema}.everturn_dead_letters \
     (dead_lettered_at_ms, reason, instance_id, execution_id, activity_id, work_item) VALUES ($1, $2, $3, $4, $5, $6)";
const DELETE_EMPTY: &str = "DELETE FROM {schema}.everturn_instances AS i WHERE i.instance_key = ANY($1) \
     AND i.created_at_ms IS NULL \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_executions AS e WHERE e.instance_key = i.instance_key) \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_orchestrator_queue AS q WHERE q.instance_key = i.instance_key)";
pub(crate) const CHANGE_TOTALS: &str = "INSERT INTO {schema}.everturn_totals AS t \
     (totals_key, instances, running, completed, failed, executions, events) VALUES ($1, $2, $3, $4, $5, $6, $7) \
     ON CONFLICT (totals_key) DO UPDATE SET instances = t.instances + excluded.instances, \
     running = t.running + excluded.running, completed = t.completed + excluded.completed, \
     failed = t.failed + excluded.failed, executions = t.executions + excluded.executions, events = t.events + excluded.events";

/// What a batch writes.
#[derive(Default)]
pub(crate) struct Writes {
    pub(crate) history: HistoryRows,
    pub(crate) messages: MessageRows,
    pub(crate) activities: ActivityRows,
    /// Instances whose fetched messages are deleted.
    pub(crate) delete_tagged: Vec<i64>,
    /// Instances whose fetched messages return to the queue, and how many attempts are taken back.
    pub(crate) untag: (Vec<i64>, Vec<i64>),
    /// Messages that have become due.
    pub(crate) show_messages: Vec<i64>,
    /// Instances whose visible messages are deleted.
    pub(crate) delete_orphans: Vec<i64>,
    /// Timers of these executions are awaited no more.
    pub(crate) unawaited: (Vec<i64>, Vec<i64>, Vec<i64>),
    pub(crate) lock_activities: (Vec<i64>, Vec<String>, Vec<i64>, Vec<i64>),
    pub(crate) delete_activities: Vec<i64>,
    pub(crate) cancel_activities: (Vec<String>, Vec<i64>, Vec<i64>),
    pub(crate) unlock_activities: (Vec<i64>, Vec<i64>, Vec<Option<String>>, Vec<i64>),
    pub(crate) renew_activities: (Vec<i64>, Vec<i64>, Vec<i64>),
    pub(crate) touch_sessions: Vec<String>,
    pub(crate) executions: ExecutionRows,
    pub(crate) ended: EndedRows,
    pub(crate) superseded: (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>),
    pub(crate) custom_statuses: (Vec<i64>, Vec<Option<String>>),
    pub(crate) kv_clear: (Vec<i64>, Vec<i64>),
    pub(crate) kv_set: (Vec<i64>, Vec<String>, Vec<Option<String>>, Vec<i64>),
    pub(crate) kv_merge: Vec<i64>,
    /// Leases whose activities were returned unread.
    pub(crate) undo_leases: Vec<SessionLease>,
    pub(crate) dead_letters: Vec<NewDeadLetter>,
    /// Instances whose rows go if nothing is left of them.
    pub(crate) delete_empty: Vec<i64>,
}

#[derive(Default)]
pub(crate) struct HistoryRows {
    keys: Vec<i64>,
    executions: Vec<i64>,
    firsts: Vec<i64>,
    lasts: Vec<i64>,
    events: Vec<String>,
}

impl HistoryRows {
    pub(crate) fn push(&mut self, key: i64, execution_id: i64, delta: &HistoryDelta) {
        for row in delta.rows() {
            self.keys.push(key);
            self.executions.push(execution_id);
            self.firsts.push(row.first);
            self.lasts.push(row.last);
            self.events.push(row.json.clone());
        }
    }
}

#[derive(Default)]
pub(crate) struct MessageRows {
    seqs: Vec<i64>,
    keys: Vec<i64>,
    kinds: Vec<&'static str>,
    are_starts: Vec<bool>,
    arrived: Vec<i64>,
    visible: Vec<i64>,
    timer_executions: Vec<Option<i64>>,
    unawaited: Vec<bool>,
    items: Vec<String>,
    notes: Vec<Option<String>>,
}

impl MessageRows {
    pub(crate) fn push(
        &mut self,
        seq: i64,
        key: i64,
        message: &StoredMessage,
        arrived_at_ms: i64,
        visible_at_ms: i64,
        is_unawaited: bool,
    ) {
        self.seqs.push(seq);
        self.keys.push(key);
        self.kinds.push(message.kind);
        self.are_starts.push(message.is_start);
        self.arrived.push(arrived_at_ms);
        self.visible.push(visible_at_ms);
        self.timer_executions.push(message.timer.map(|timer| timer.execution_id));
        self.unawaited.push(is_unawaited);
        self.items.push(message.work_item.clone());
        self.notes.push(message.notes.clone());
    }
}

#[derive(Default)]
pub(crate) struct ActivityRows {
    seqs: Vec<i64>,
    instances: Vec<String>,
    executions: Vec<i64>,
    ids: Vec<i64>,
    sessions: Vec<Option<String>>,
    tags: Vec<String>,
    names: Vec<String>,
    items: Vec<String>,
    ready: Vec<bool>,
    attempts: Vec<i64>,
    tokens: Vec<Option<String>>,
    until: Vec<Option<i64>>,
    lengths: Vec<Option<i64>>,
    owners: Vec<i64>,
}

/// A tag as its column holds it.
pub(crate) fn stored_tag(tag: Option<&str>) -> String {
    tag.map_or_else(String::new, |tag| format!("t{tag}"))
}

impl ActivityRows {
    /// Adds an activity that is ready.
    pub(crate) fn push(&mut self, seq: i64, activity: &StoredActivity, owner: i64) {
        self.seqs.push(seq);
        self.instances.push(activity.instance_id.clone());
        self.executions.push(activity.execution_id);
        self.ids.push(activity.activity_id);
        self.sessions.push(activity.session_id.clone());
        self.tags.push(stored_tag(activity.tag.as_deref()));
        self.names.push(activity.name.clone());
        self.items.push(activity.work_item.clone());
        self.ready.push(true);
        self.attempts.push(0);
        self.tokens.push(None);
        self.until.push(None);
        self.lengths.push(None);
        self.owners.push(owner);
    }

    /// Locks an activity that this batch inserts.
    pub(crate) fn lock(&mut self, seq: i64, token: &str, until_ms: i64, lock_ms: i64) {
        let Some(row) = self.seqs.iter().rposition(|known| *known == seq) else { return };
        if let Some(ready) = self.ready.get_mut(row) {
            *ready = false;
        }
        if let Some(attempts) = self.attempts.get_mut(row) {
            *attempts = 1;
        }
        if let Some(known) = self.tokens.get_mut(row) {
            *known = Some(token.to_owned());
        }
        if let Some(until) = self.until.get_mut(row) {
            *until = Some(until_ms);
        }
        if let Some(length) = self.lengths.get_mut(row) {
            *length = Some(lock_ms);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }
}

#[derive(Default)]
pub(crate) struct ExecutionRows {
    keys: Vec<i64>,
    ids: Vec<i64>,
    counts: Vec<i64>,
    bytes: Vec<i64>,
    carried: Vec<i64>,
    starts: Vec<Option<i64>>,
    outcomes: Vec<Option<i64>>,
    pins: Vec<Option<String>>,
    pinned_orders: Vec<Option<i64>>,
}

impl ExecutionRows {
    pub(crate) fn push(
        &mut self,
        key: i64,
        execution_id: i64,
        events: EventCounts,
        delta: &HistoryDelta,
        pin: Option<&Version>,
    ) {
        self.keys.push(key);
        self.ids.push(execution_id);
        self.counts.push(events.count);
        self.bytes.push(events.bytes);
        self.carried.push(delta.carried_count());
        self.starts.push(delta.start_event_id());
        self.outcomes.push(delta.outcome_event_id());
        self.pins.push(pin.map(ToString::to_string));
        self.pinned_orders.push(pin.map(order_of));
    }
}

#[derive(Default)]
pub(crate) struct EndedRows {
    keys: Vec<i64>,
    ids: Vec<i64>,
    statuses: Vec<&'static str>,
    outputs: Vec<Option<String>>,
    counts: Vec<i64>,
    bytes: Vec<i64>,
    outcomes: Vec<Option<i64>>,
}

impl EndedRows {
    pub(crate) fn push(
        &mut self,
        key: i64,
        execution_id: i64,
        status: ExecutionStatus,
        output: Option<String>,
        events: EventCounts,
        outcome_event_id: Option<i64>,
    ) {
        self.keys.push(key);
        self.ids.push(execution_id);
        self.statuses.push(status.as_str());
        self.outputs.push(output);
        self.counts.push(events.count);
        self.bytes.push(events.bytes);
        self.outcomes.push(outcome_event_id);
    }
}

/// The statements of a batch, in the order in which they are sent.
struct Statements<'a> {
    session: &'a ServerSession,
    sent: Vec<BoxFuture<'a, Result<u64, Error>>>,
}

impl<'a> Statements<'a> {
    fn add(&mut self, is_needed: bool, sql: &'static str, parameters: Vec<Parameter<'a>>) {
        if is_needed {
            let session = self.session;
            self.sent.push(Box::pin(async move { session.execute(sql, &parameters).await }));
        }
    }
}

/// All statements of a batch.
pub(crate) const STATEMENTS: &[&str] = &[
    INSERT_HISTORY,
    INSERT_MESSAGES,
    DELETE_TAGGED,
    UNTAG,
    SHOW_MESSAGES,
    DELETE_ORPHANS,
    NOTE_UNAWAITED,
    INSERT_ACTIVITIES,
    LOCK_ACTIVITIES,
    DELETE_ACTIVITIES,
    CANCEL_ACTIVITIES,
    UNLOCK_ACTIVITIES,
    RENEW_ACTIVITIES,
    TOUCH_SESSIONS,
    WRITE_EXECUTIONS,
    END_EXECUTIONS,
    SUPERSEDE,
    SET_CUSTOM_STATUSES,
    CLEAR_KV_DELTA,
    HIDE_KV_BASE,
    SET_KV,
    MERGE_KV,
    UPDATE_INSTANCES,
    UNDO_LEASE,
    DEAD_LETTER,
    DELETE_EMPTY,
    CHANGE_TOTALS,
];

/// Writes what a batch has changed, and commits. Fails if any statement fails: then nothing is written, unless the connection
/// was lost while the server committed.
pub(crate) async fn write(session: &ServerSession, unit: &UnitOfWork) -> Result<(), Error> {
    let changed = ChangedInstances::of(
        unit.instances.values().filter(|instance| instance.is_changed && !instance.is_deleted),
    );
    let writes = &unit.writes;
    let (now_ms, owner) = (&unit.now_ms, &unit.owner);
    let mut statements = Statements { session, sent: Vec::new() };
    add_queues(&mut statements, writes, now_ms, owner);
    add_executions(&mut statements, writes, now_ms);
    changed.add_to(&mut statements);
    for lease in &writes.undo_leases {
        statements.add(true, UNDO_LEASE, vec![&lease.session_id, &lease.owner_id]);
    }
    for letter in &writes.dead_letters {
        let NewDeadLetter { reason, instance_id, execution_id, activity_id, work_item } = letter;
        statements.add(
            true,
            DEAD_LETTER,
            vec![now_ms, reason, instance_id, execution_id, activity_id, work_item],
        );
    }
    statements.add(!writes.delete_empty.is_empty(), DELETE_EMPTY, vec![&writes.delete_empty]);
    let totals = &unit.effects.totals;
    let TotalsChange { instances, running, completed, failed, executions, events } = totals;
    let parameters: Vec<Parameter<'_>> =
        vec![owner, instances, running, completed, failed, executions, events];
    statements.add(*totals != TotalsChange::default(), CHANGE_TOTALS, parameters);
    // A commit after a statement that failed is a rollback, and no error: all of them must have succeeded.
    statements.sent.push(Box::pin(async move { session.run("COMMIT").await.map(|()| 0) }));
    try_join_all(statements.sent).await.map(drop)
}

fn add_queues<'a>(statements: &mut Statements<'a>, writes: &'a Writes, now_ms: &'a i64, owner: &'a i64) {
    let Writes { history, messages, activities, .. } = writes;
    statements.add(
        !history.keys.is_empty(),
        INSERT_HISTORY,
        vec![&history.keys, &history.executions, &history.firsts, &history.lasts, &history.events],
    );
    statements.add(!writes.delete_tagged.is_empty(), DELETE_TAGGED, vec![&writes.delete_tagged]);
    statements.add(!writes.untag.0.is_empty(), UNTAG, vec![&writes.untag.0, &writes.untag.1]);
    statements.add(!writes.show_messages.is_empty(), SHOW_MESSAGES, vec![&writes.show_messages]);
    statements.add(!writes.delete_orphans.is_empty(), DELETE_ORPHANS, vec![&writes.delete_orphans, now_ms]);
    statements.add(
        !messages.seqs.is_empty(),
        INSERT_MESSAGES,
        vec![
            &messages.seqs,
            &messages.keys,
            &messages.kinds,
            &messages.are_starts,
            &messages.arrived,
            &messages.visible,
            &messages.timer_executions,
            &messages.unawaited,
            &messages.items,
            &messages.notes,
        ],
    );
    let unawaited = &writes.unawaited;
    statements.add(!unawaited.0.is_empty(), NOTE_UNAWAITED, vec![&unawaited.0, &unawaited.1, &unawaited.2]);
    // Before what ends locks: a lock may be renewed and then used in one batch.
    let renewed = &writes.renew_activities;
    statements.add(!renewed.0.is_empty(), RENEW_ACTIVITIES, vec![&renewed.0, &renewed.1, &renewed.2]);
    statements.add(!writes.delete_activities.is_empty(), DELETE_ACTIVITIES, vec![&writes.delete_activities]);
    let unlocked = &writes.unlock_activities;
    let parameters: Vec<Parameter<'_>> = vec![&unlocked.0, &unlocked.1, &unlocked.2, &unlocked.3];
    statements.add(!unlocked.0.is_empty(), UNLOCK_ACTIVITIES, parameters);
    let locked = &writes.lock_activities;
    let parameters: Vec<Parameter<'_>> = vec![&locked.0, &locked.1, &locked.2, &locked.3, owner];
    statements.add(!locked.0.is_empty(), LOCK_ACTIVITIES, parameters);
    statements.add(
        !activities.is_empty(),
        INSERT_ACTIVITIES,
        vec![
            &activities.seqs,
            &activities.instances,
            &activities.executions,
            &activities.ids,
            &activities.sessions,
            &activities.tags,
            &activities.names,
            &activities.items,
            &activities.ready,
            &activities.attempts,
            &activities.tokens,
            &activities.until,
            &activities.lengths,
            &activities.owners,
        ],
    );
    // After the new ones: a turn may cancel what it has just scheduled.
    let cancelled = &writes.cancel_activities;
    statements.add(
        !cancelled.0.is_empty(),
        CANCEL_ACTIVITIES,
        vec![&cancelled.0, &cancelled.1, &cancelled.2],
    );
    statements.add(!writes.touch_sessions.is_empty(), TOUCH_SESSIONS, vec![&writes.touch_sessions, now_ms]);
}

fn add_executions<'a>(statements: &mut Statements<'a>, writes: &'a Writes, now_ms: &'a i64) {
    let Writes { executions, ended, superseded, custom_statuses, kv_clear, kv_set, kv_merge, .. } = writes;
    statements.add(
        !executions.keys.is_empty(),
        WRITE_EXECUTIONS,
        vec![
            now_ms,
            &executions.keys,
            &executions.ids,
            &executions.counts,
            &executions.bytes,
            &executions.carried,
            &executions.starts,
            &executions.outcomes,
            &executions.pins,
            &executions.pinned_orders,
        ],
    );
    let parameters: Vec<Parameter<'_>> = vec![&superseded.0, &superseded.1, &superseded.2, &superseded.3];
    statements.add(!superseded.0.is_empty(), SUPERSEDE, parameters);
    statements.add(
        !ended.keys.is_empty(),
        END_EXECUTIONS,
        vec![
            now_ms,
            &ended.keys,
            &ended.ids,
            &ended.statuses,
            &ended.outputs,
            &ended.counts,
            &ended.bytes,
            &ended.outcomes,
        ],
    );
    let parameters: Vec<Parameter<'_>> = vec![&custom_statuses.0, &custom_statuses.1];
    statements.add(!custom_statuses.0.is_empty(), SET_CUSTOM_STATUSES, parameters);
    statements.add(!kv_clear.0.is_empty(), CLEAR_KV_DELTA, vec![&kv_clear.0]);
    statements.add(!kv_clear.0.is_empty(), HIDE_KV_BASE, vec![&kv_clear.0, &kv_clear.1]);
    statements.add(!kv_set.0.is_empty(), SET_KV, vec![&kv_set.0, &kv_set.1, &kv_set.2, &kv_set.3]);
    statements.add(!kv_merge.is_empty(), MERGE_KV, vec![kv_merge]);
}

/// The rows of instances as the batch leaves them.
#[derive(Default)]
struct ChangedInstances {
    keys: Vec<i64>,
    names: Vec<Option<String>>,
    versions: Vec<Option<String>>,
    current_execution_ids: Vec<Option<i64>>,
    parents: Vec<Option<String>>,
    are_created_now: Vec<bool>,
    created: Vec<Option<i64>>,
    updated: Vec<Option<i64>>,
    statuses: Vec<Option<String>>,
    ended: Vec<Option<i64>>,
    failures: Vec<Option<String>>,
    stamps: Vec<Option<i64>>,
    counts: Vec<i64>,
    bytes: Vec<i64>,
    last_event_ids: Vec<i64>,
    startable: Vec<bool>,
    ready_seqs: Vec<Option<i64>>,
    unstarted: Vec<Option<i64>>,
    orphaned: Vec<bool>,
    tokens: Vec<Option<String>>,
    until: Vec<Option<i64>>,
    lengths: Vec<Option<i64>>,
    delayed: Vec<Option<i64>>,
    missing_handlers: Vec<Option<String>>,
    missing_versions: Vec<Option<String>>,
}

impl ChangedInstances {
    fn of<'a>(instances: impl Iterator<Item = &'a InstanceImage>) -> Self {
        let mut rows = Self::default();
        for instance in instances {
            rows.keys.push(instance.key);
            rows.names.push(instance.name.clone());
            rows.versions.push(instance.version.clone());
            rows.current_execution_ids.push(instance.current_execution_id);
            rows.parents.push(instance.parent.clone());
            rows.are_created_now.push(instance.is_created_now);
            rows.created.push(instance.created_at_ms);
            rows.updated.push(instance.updated_at_ms);
            rows.statuses.push(instance.status.clone());
            rows.ended.push(instance.ended_at_ms);
            rows.failures.push(instance.failure_kind.clone());
            rows.stamps.push(instance.stamp);
            rows.counts.push(instance.events.count);
            rows.bytes.push(instance.events.bytes);
            rows.last_event_ids.push(instance.events.last_event_id);
            rows.startable.push(instance.startable);
            rows.ready_seqs.push(instance.ready_seq);
            rows.unstarted.push(instance.unstarted_since_ms);
            rows.orphaned.push(instance.orphaned);
            rows.tokens.push(instance.lock.token.clone());
            rows.until.push(instance.lock.until_ms);
            rows.lengths.push(instance.lock.lock_ms);
            rows.delayed.push(instance.delayed_until_ms);
            rows.missing_handlers.push(instance.missing_handler.clone());
            rows.missing_versions.push(instance.missing_version.clone());
        }
        rows
    }

    fn add_to<'a>(&'a self, statements: &mut Statements<'a>) {
        statements.add(
            !self.keys.is_empty(),
            UPDATE_INSTANCES,
            vec![
                &self.keys,
                &self.names,
                &self.versions,
                &self.current_execution_ids,
                &self.parents,
                &self.are_created_now,
                &self.created,
                &self.updated,
                &self.statuses,
                &self.ended,
                &self.failures,
                &self.stamps,
                &self.counts,
                &self.bytes,
                &self.last_event_ids,
                &self.startable,
                &self.ready_seqs,
                &self.unstarted,
                &self.orphaned,
                &self.tokens,
                &self.until,
                &self.lengths,
                &self.delayed,
                &self.missing_handlers,
                &self.missing_versions,
            ],
        );
    }
}
