//! Writes that bypass the engine, for tests and tools: events and activities without a turn.

use async_trait::async_trait;
use everturn_core::{Event, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::encoded::{EventCounts, HistoryDelta, StoredActivity, stored_id};
use everturn_provider::store::RawWrites;
use rusqlite::{OptionalExtension, params};

use crate::garbage::{self, new_instance_key};
use crate::history;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;
use crate::provider::SqliteProvider;
use crate::worker_queue;

#[async_trait]
impl RawWrites for SqliteProvider {
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.call(AppendEvents::encode(instance, execution_id, &new_events)?).await
    }

    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.call(EnqueueWork(StoredActivity::encode(EnqueueWork::NAME, &item)?)).await
    }
}

/// Appends events to an execution.
pub(crate) struct AppendEvents {
    instance_id: String,
    execution_id: i64,
    delta: HistoryDelta,
}

impl AppendEvents {
    fn encode(instance: &str, execution_id: u64, events: &[Event]) -> Result<Self, ProviderError> {
        Ok(Self {
            instance_id: instance.to_owned(),
            execution_id: stored_id(Self::NAME, "execution id", execution_id)?,
            delta: HistoryDelta::encode(Self::NAME, events)?,
        })
    }
}

const SELECT_KEY: &str = "SELECT instance_key FROM everturn_instances WHERE instance_id = ?1";
const INSERT_ROW: &str = concat!(
    "INSERT INTO everturn_instances (instance_key, instance_id) VALUES (",
    new_instance_key!(),
    ", ?1)"
);
const SELECT_EXECUTION: &str = "SELECT e.execution_id IS NOT NULL, i.current_execution_id IS ?2, \
     i.event_count, i.event_bytes, i.last_event_id, e.event_count, e.event_bytes, 0 \
     FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = ?2 WHERE i.instance_key = ?1";
const COUNT_CURRENT: &str = "UPDATE everturn_instances SET event_count = ?2, event_bytes = ?3, last_event_id = ?4 WHERE instance_key = ?1";
// A new stamp: an instance in memory was not built on these events.
const NOTE_APPENDED: &str =
    "UPDATE everturn_instances SET turn_stamp = ?2, startable = startable OR ?3 WHERE instance_key = ?1";

impl Verb for AppendEvents {
    type Answer = ();
    const NAME: &'static str = "append_events";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn payload_bytes(&self) -> usize {
        self.delta.bytes()
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let conn = scope.conn;
        let found: Option<i64> =
            conn.prepare_cached(SELECT_KEY)?.query_row([&self.instance_id], |row| row.get(0)).optional()?;
        let key = match found {
            Some(key) => key,
            None => {
                conn.prepare_cached(INSERT_ROW)?.execute([&self.instance_id])?;
                conn.last_insert_rowid()
            }
        };
        garbage::finish_execution(conn, key, self.execution_id)?;
        let (exists, is_current, counted) =
            conn.prepare_cached(SELECT_EXECUTION)?.query_row([key, self.execution_id], |row| {
                let is_current: bool = row.get(1)?;
                let counted = history::counts_of(row, if is_current { 2 } else { 5 })?;
                Ok((row.get::<_, bool>(0)?, is_current, counted))
            })?;
        let (execution_id, now_ms) = (self.execution_id, scope.now.wall_ms);
        history::check_new(conn, key, execution_id, &self.delta)?;
        let counted = counted.with(&self.delta);
        history::write_execution(conn, key, execution_id, now_ms, counted, &self.delta, None)?;
        history::append(conn, key, execution_id, &self.delta)?;
        if is_current {
            let EventCounts { count, bytes, last_event_id } = counted;
            conn.prepare_cached(COUNT_CURRENT)?.execute([key, count, bytes, last_event_id])?;
        }
        scope.effects.totals.executions += i64::from(!exists);
        scope.effects.totals.events += self.delta.count();
        let stamp = i64::from_le_bytes(first_half(scope.clock.random_u128()));
        let starts = self.delta.has_start() && self.execution_id == 1;
        conn.prepare_cached(NOTE_APPENDED)?.execute(params![key, stamp, starts])?;
        orchestrator_queue::refresh(scope, key)?;
        scope.effects.touched.push(self.instance_id.clone());
        Ok(())
    }
}

fn first_half(random: u128) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = random.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Puts an activity into the worker queue.
pub(crate) struct EnqueueWork(pub(crate) StoredActivity);

impl Verb for EnqueueWork {
    type Answer = ();
    const NAME: &'static str = "enqueue_work";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn payload_bytes(&self) -> usize {
        self.0.bytes()
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        worker_queue::insert(scope, &self.0)
    }
}
