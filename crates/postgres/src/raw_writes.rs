//! Writes that bypass the engine, for tests and tools: events and activities without a turn.

use async_trait::async_trait;
use everturn_core::{Event, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::encoded::{EventCounts, HistoryDelta, StoredActivity, stored_id};
use everturn_provider::store::{RawWrites, Stamp};

use crate::commit_turn::{check_new, drawn_stamp};
use crate::needs::{EventRange, InstanceName, Needs};
use crate::operation::{BatchOrder, Run, Verb};
use crate::provider::PostgresProvider;
use crate::text::{check_activity, check_texts};
use crate::unit_of_work::{ExecutionImage, UnitOfWork};

#[async_trait]
impl RawWrites for PostgresProvider {
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        check_texts(AppendEvents::NAME, [("the id of an instance", Some(instance))])?;
        self.call(AppendEvents {
            instance_id: instance.to_owned(),
            execution_id: stored_id(AppendEvents::NAME, "execution id", execution_id)?,
            delta: HistoryDelta::encode(AppendEvents::NAME, &new_events)?,
            stamp: drawn_stamp(self.clock()),
        })
        .await
    }

    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        let activity = StoredActivity::encode(EnqueueWork::NAME, &item)?;
        check_activity(EnqueueWork::NAME, &activity)?;
        self.call(EnqueueWork(activity)).await
    }
}

/// Appends events to an execution.
struct AppendEvents {
    instance_id: String,
    execution_id: i64,
    delta: HistoryDelta,
    /// A new stamp: an instance in memory was not built on these events.
    stamp: Stamp,
}

impl Verb for AppendEvents {
    type Answer = ();
    const NAME: &'static str = "append_events";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn payload_bytes(&self) -> usize {
        self.delta.bytes()
    }

    fn needs(&self, needs: &mut Needs) {
        needs.receiver(&self.instance_id);
        needs.executions_by_id.push((self.instance_id.clone(), self.execution_id));
        if let (Some(first), Some(last)) = (self.delta.first_event_id(), self.delta.last_event_id()) {
            let instance = InstanceName::Id(self.instance_id.clone());
            needs.events.push(EventRange { instance, execution_id: self.execution_id, first, last });
        }
    }

    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<(), ProviderError> {
        let id = self.execution_id;
        let Some(key) = unit.key_of(&self.instance_id) else { return Ok(()) };
        let stamp = Some(self.stamp.0.cast_signed());
        if run == Run::Again && unit.instances.get(&key).is_some_and(|instance| instance.stamp == stamp) {
            return Ok(());
        }
        check_new(unit, key, id, &self.delta)?;
        let stored = unit.executions.get(&(key, id)).cloned();
        unit.effects.totals.executions += i64::from(stored.is_none());
        unit.effects.totals.events += self.delta.count();
        let Some(instance) = unit.instances.get_mut(&key) else { return Ok(()) };
        let is_current = instance.current_execution_id == Some(id);
        let before = match &stored {
            _ if is_current => instance.events,
            Some(stored) => stored.events,
            None => EventCounts::default(),
        };
        let events = before.with(&self.delta);
        if is_current {
            instance.events = events;
        }
        instance.stamp = stamp;
        instance.is_changed = true;
        if !instance.startable {
            instance.startable = self.delta.has_start() && id == 1;
            instance.refresh();
        }
        unit.effects.turns |= instance.ready_seq.is_some();
        unit.effects.touched.push(self.instance_id.clone());
        unit.writes.executions.push(key, id, events, &self.delta, None);
        unit.writes.history.push(key, id, &self.delta);
        let status = stored.as_ref().map_or_else(|| "Running".to_owned(), |stored| stored.status.clone());
        unit.executions
            .insert((key, id), ExecutionImage { status, pin: stored.and_then(|stored| stored.pin), events });
        Ok(())
    }
}

/// Puts an activity into the worker queue.
struct EnqueueWork(StoredActivity);

impl Verb for EnqueueWork {
    type Answer = ();
    const NAME: &'static str = "enqueue_work";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn payload_bytes(&self) -> usize {
        self.0.bytes()
    }

    fn needs(&self, needs: &mut Needs) {
        needs.new_activities += 1;
    }

    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<(), ProviderError> {
        if run == Run::Again {
            let message = "the connection was lost while the activity was stored; it may be in the queue";
            return Err(ProviderError::retryable("", message));
        }
        if let Some(seq) = unit.next_activity() {
            let owner = unit.owner;
            unit.writes.activities.push(seq, &self.0, owner);
            unit.note_new_activity(seq, &self.0);
        }
        Ok(())
    }
}
