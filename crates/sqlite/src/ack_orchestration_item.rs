//! `ack_orchestration_item` and `commit_turn`: everything a turn decided, whole or not at all.

use everturn_core::{Bug, Event, EventKind, WorkItem, planted};
use everturn_provider::{
    CheckIn, ExecutionMetadata, ProviderError, ScheduledActivityIdentifier, Stamp, TurnCommit,
};
use rusqlite::{OptionalExtension, params};

use crate::columns;
use crate::enqueue::Activity;
use crate::history::{self, Delta};
use crate::inbox::{self, Message};
use crate::kv::{self, KvChange};
use crate::locks::{self, StoredLock, row_of, unknown_token};
use crate::moment::Moment;
use crate::operation::{Failure, Order, Scope, Verb};

/// A turn, encoded.
pub(crate) struct CommitTurn {
    lock_token: String,
    execution_id: i64,
    delta: Delta,
    kv_changes: Vec<KvChange>,
    custom_status: Option<Option<String>>,
    activities: Vec<Activity>,
    messages: Vec<Message>,
    metadata: ExecutionMetadata,
    cancelled: Vec<(String, i64, i64)>,
    base: Option<Stamp>,
    stamp: Stamp,
    check_in: Option<CheckIn>,
    payload_bytes: usize,
    called: Moment,
}

impl CommitTurn {
    /// Encodes a turn; refuses what does not belong where it was put.
    pub(crate) fn encode(commit: &TurnCommit, called: Moment) -> Result<Self, ProviderError> {
        let operation = <Self as Verb>::NAME;
        let delta = Delta::encode(operation, &commit.history_delta)?;
        check_status(operation, commit.metadata.status.as_deref())?;
        let activities: Vec<Activity> = commit
            .worker_items
            .iter()
            .map(|item| Activity::encode(operation, item))
            .collect::<Result<_, _>>()?;
        let messages = encode_messages(operation, &commit.orchestrator_items)?;
        let payload_bytes = delta.bytes()
            + activities.iter().map(Activity::bytes).sum::<usize>()
            + messages.iter().map(|message| message.work_item.len()).sum::<usize>();
        Ok(Self {
            lock_token: commit.lock_token.clone(),
            execution_id: history::stored_id(operation, "execution id", commit.execution_id)?,
            kv_changes: commit.history_delta.iter().filter_map(KvChange::of).collect(),
            custom_status: last_custom_status(&commit.history_delta),
            delta,
            activities,
            messages,
            metadata: commit.metadata.clone(),
            cancelled: commit.cancelled_activities.iter().filter_map(stored_identity).collect(),
            base: commit.base,
            stamp: commit.stamp,
            check_in: commit.check_in.clone(),
            payload_bytes,
            called,
        })
    }
}

fn check_status(operation: &str, status: Option<&str>) -> Result<(), ProviderError> {
    match status {
        None | Some("Running" | "Completed" | "Failed" | "ContinuedAsNew") => Ok(()),
        Some(other) => Err(ProviderError::permanent(operation, format!("{other} is not a status"))),
    }
}

fn encode_messages(operation: &str, items: &[WorkItem]) -> Result<Vec<Message>, ProviderError> {
    items.iter().map(|item| Message::encode(operation, item)).collect()
}

fn last_custom_status(events: &[Event]) -> Option<Option<String>> {
    events.iter().rev().find_map(|event| match &event.kind {
        EventKind::CustomStatusUpdated { status } => Some(status.clone()),
        _ => None,
    })
}

/// An identity that does not fit into the table names no row.
fn stored_identity(activity: &ScheduledActivityIdentifier) -> Option<(String, i64, i64)> {
    let execution_id = i64::try_from(activity.execution_id).ok()?;
    let activity_id = i64::try_from(activity.activity_id).ok()?;
    Some((activity.instance.clone(), execution_id, activity_id))
}

const SELECT_INSTANCE: &str = "SELECT instance_id, lock_token, locked_until_ms, turn_stamp, created_at_ms IS NOT NULL, \
     startable FROM instances WHERE instance_key = ?1";
const DELETE_TAGGED: &str =
    "DELETE FROM orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const NAME_INSTANCE: &str = "UPDATE instances SET orchestration_name = ?2, orchestration_version = ?3 \
     WHERE instance_key = ?1 AND (orchestration_name <> ?2 OR orchestration_version <> ?3)";
const END_EXECUTION: &str = "UPDATE executions SET status = ?3, output = ?4, \
     completed_at_ms = CASE WHEN ?3 = 'Running' THEN NULL ELSE ?5 END WHERE instance_key = ?1 AND execution_id = ?2";
const SET_CUSTOM_STATUS: &str = "UPDATE instances SET custom_status = ?2, \
     custom_status_version = min(custom_status_version, 4611686018427387903) + 1 WHERE instance_key = ?1";
const CANCEL_ACTIVITY: &str =
    "DELETE FROM worker_queue WHERE instance_id = ?1 AND execution_id = ?2 AND activity_id = ?3";
const OLDEST_MESSAGE: &str =
    "SELECT min(seq) FROM orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms = 0";
const RELEASE: &str = "UPDATE instances SET turn_stamp = ?2, updated_at_ms = ?3, startable = ?4, \
     current_execution_id = CASE WHEN created_at_ms IS NOT NULL THEN max(current_execution_id, ?5) END, \
     lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = ?6 WHERE instance_key = ?1";
const CREATE_AND_RELEASE: &str = "UPDATE instances SET orchestration_name = ?6, orchestration_version = ?7, \
     parent_instance_id = ?8, created_at_ms = ?3, current_execution_id = ?4, startable = 1, \
     turn_stamp = ?2, updated_at_ms = ?3, \
     lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = ?5 WHERE instance_key = ?1";

struct Instance {
    id: String,
    lock: StoredLock,
    stamp: Option<i64>,
    created: bool,
    startable: bool,
}

impl Verb for CommitTurn {
    type Answer = ();
    const NAME: &'static str = "ack_orchestration_item";
    const ORDER: Order = Order::Holder;

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), Failure> {
        let token = &self.lock_token;
        let key = row_of(token).ok_or_else(|| unknown_token(token))?;
        let instance = find(scope, key)?.ok_or_else(|| unknown_token(token))?;
        locks::check(scope, &instance.lock, token, self.called)?;
        if let Some(base) = self.base
            && instance.stamp != Some(base.0.cast_signed())
        {
            let message = format!(
                "committing turn of {}: its history is not the one the turn was built on",
                instance.id
            );
            return Err(ProviderError::history_moved("", message).into());
        }
        history::check_new(scope.conn, key, self.execution_id, &self.delta)?;
        scope.conn.prepare_cached(DELETE_TAGGED)?.execute([key])?;
        self.write_execution(scope, key)?;
        if planted(Bug::SplitCommit) {
            scope.conn.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
        }
        self.write_queues(scope)?;
        let names = self.names();
        // From the first event of the first execution on, messages need no start among them.
        let startable =
            instance.startable || names.is_some() || (self.delta.has_start() && self.execution_id == 1);
        let oldest: Option<i64> = if startable {
            scope.conn.prepare_cached(OLDEST_MESSAGE)?.query_row([key], |row| row.get(0))?
        } else {
            None
        };
        let stamp = self.stamp.0.cast_signed();
        let now_ms = scope.now.wall_ms;
        match names {
            Some((name, version)) if !instance.created => {
                let parent = &self.metadata.parent_instance_id;
                scope.conn.prepare_cached(CREATE_AND_RELEASE)?.execute(params![
                    key,
                    stamp,
                    now_ms,
                    self.execution_id,
                    oldest,
                    name,
                    version,
                    parent
                ])?;
            }
            _ => {
                if let Some((name, version)) = names {
                    scope.conn.prepare_cached(NAME_INSTANCE)?.execute(params![key, name, version])?;
                }
                scope.conn.prepare_cached(RELEASE)?.execute(params![
                    key,
                    stamp,
                    now_ms,
                    startable,
                    self.execution_id,
                    oldest
                ])?;
            }
        }
        scope.effects.turns |= oldest.is_some();
        if !startable {
            inbox::refresh(scope, key)?;
        }
        scope.effects.ended_turns.insert(key);
        scope.effects.released.push(token.clone());
        if self.is_visible() {
            scope.effects.touched.push(instance.id);
        }
        Ok(())
    }

    fn committed(&self) {
        if let Some(check_in) = &self.check_in {
            check_in();
        }
    }
}

impl CommitTurn {
    /// Whether somebody who watches the instance could see a difference: most turns only go on.
    fn is_visible(&self) -> bool {
        self.metadata.status.is_some()
            || self.delta.has_outcome()
            || self.custom_status.is_some()
            || !self.kv_changes.is_empty()
    }

    /// The name and version it gives the instance.
    fn names(&self) -> Option<(&str, &str)> {
        self.metadata.orchestration_name.as_deref().zip(self.metadata.orchestration_version.as_deref())
    }

    fn write_execution(&self, scope: &Scope<'_>, key: i64) -> Result<(), Failure> {
        let conn = scope.conn;
        let pin = self.metadata.pinned_engine_version.as_ref().map(ToString::to_string);
        history::append(conn, key, self.execution_id, scope.now.wall_ms, &self.delta, pin)?;
        if let Some(status) = &self.custom_status {
            conn.prepare_cached(SET_CUSTOM_STATUS)?.execute(params![key, status])?;
        }
        kv::apply(conn, key, &self.kv_changes)?;
        if let Some(status) = self.metadata.status.as_deref() {
            conn.prepare_cached(END_EXECUTION)?.execute(params![
                key,
                self.execution_id,
                status,
                self.metadata.output,
                scope.now.wall_ms
            ])?;
            if status != "Running" {
                kv::merge(conn, key)?;
            }
        }
        Ok(())
    }

    fn write_queues(&self, scope: &mut Scope<'_>) -> Result<(), Failure> {
        for activity in &self.activities {
            activity.insert(scope)?;
        }
        let mut cancel = scope.conn.prepare_cached(CANCEL_ACTIVITY)?;
        for (instance_id, execution_id, activity_id) in &self.cancelled {
            let removed = cancel.execute(params![instance_id, execution_id, activity_id])?;
            scope.effects.removed |= removed > 0;
        }
        for message in &self.messages {
            inbox::insert(scope, message, message.fire_at_ms)?;
        }
        Ok(())
    }
}

fn find(scope: &Scope<'_>, key: i64) -> Result<Option<Instance>, Failure> {
    Ok(scope
        .conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([key], |row| {
            Ok(Instance {
                id: columns::text(row, 0)?.unwrap_or_default(),
                lock: StoredLock::of(row, 1)?,
                stamp: row.get(3)?,
                created: row.get(4)?,
                startable: row.get(5)?,
            })
        })
        .optional()?)
}
