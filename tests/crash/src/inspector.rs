//! Checks stored data against the guarantees and against what clients, activities and runtimes observed.

use std::collections::{BTreeMap, BTreeSet};

use everturn::{Event, EventKind};
use everturn_core::WorkItem;

use crate::history_rules::{kv_of, status_of, violations};
use crate::observations::{InstanceObservations, InstanceOutcome, Observations};
use crate::tables::StoredTables;
use crate::work_places::{activity_places, child_places, detached_places, timer_places};

/// Checks one store again and again: events must not change between two checks.
#[derive(Default)]
pub struct Inspector {
    histories: BTreeMap<(String, u64), Vec<String>>,
    found: Vec<String>,
}

impl Inspector {
    /// Checks stored data at any time. Fails with everything that is wrong.
    pub fn inspect(&mut self, tables: &StoredTables, observations: &Observations) -> Result<(), String> {
        if tables.integrity != "ok" {
            self.found.push(format!("the file is damaged: {}", tables.integrity));
        }
        self.found
            .extend(tables.dead_letters.iter().map(|reason| format!("a row was dead-lettered: {reason}")));
        self.events_are_unchanged(tables);
        self.rows_match_histories(tables);
        self.scheduled_work_exists_once(tables);
        self.fetched_messages_are_locked(tables);
        self.nothing_is_recorded_twice(tables, observations);
        self.accepted_calls_are_stored(tables, observations);
        self.activities_ran_for_committed_turns(tables, observations);
        self.found.extend(
            observations.refusals.iter().map(|refusal| format!("refused with a permanent error: {refusal}")),
        );
        self.found.extend(observations.wrong.iter().cloned());
        self.report()
    }

    /// Checks stored data after all instances have ended.
    pub fn inspect_end(&mut self, tables: &StoredTables, observations: &Observations) -> Result<(), String> {
        for (id, observed) in &observations.instances {
            match &observed.outcome {
                Some(InstanceOutcome::Failed(reason)) if observed.cancelled && reason.contains("enough") => {}
                Some(InstanceOutcome::Completed(output)) => {
                    if let Some(wrong) = observed.script.judge(output) {
                        self.found.push(format!("{id} ended with {wrong}"));
                    }
                }
                other => self.found.push(format!("{id} ({:?}) ended with {other:?}", observed.script)),
            }
        }
        self.all_instances_ended(tables);
        for message in &tables.messages {
            self.found.push(format!("a message is left over: {:?}", message.item));
        }
        for activity in &tables.activities {
            self.found.push(format!("an activity is left over: {:?}", activity.of));
        }
        for (id, _) in tables.instances.iter().filter(|(_, instance)| instance.locked) {
            self.found.push(format!("{id} is locked for ever"));
        }
        self.report()
    }

    /// Children and detached instances have ended too. Detached instances complete: no client cancels them.
    fn all_instances_ended(&mut self, tables: &StoredTables) {
        for id in tables.instances.keys() {
            if !tables.has_ended(id) {
                self.found.push(format!("{id} has not ended"));
            }
        }
        for instance in tables.executions.values().flat_map(|execution| &execution.events).filter_map(chained)
        {
            if !matches!(ending(tables, instance), Some(InstanceOutcome::Completed(output)) if output.starts_with("s0#"))
            {
                self.found.push(format!("detached instance {instance} did not complete"));
            }
        }
    }

    fn report(&mut self) -> Result<(), String> {
        let found = std::mem::take(&mut self.found);
        if found.is_empty() { Ok(()) } else { Err(found.join("\n    ")) }
    }

    /// Events are written once and never changed.
    fn events_are_unchanged(&mut self, tables: &StoredTables) {
        for (key, before) in &self.histories {
            let now =
                tables.executions.get(key).map(|execution| execution.events.as_slice()).unwrap_or_default();
            let kept = before.iter().zip(now).take_while(|(before, (_, now))| *before == now).count();
            if kept < before.len() {
                self.found.push(format!("event {} of {key:?} has changed or is gone", kept + 1));
            }
        }
        for (key, execution) in &tables.executions {
            let events = execution.events.iter().map(|(_, data)| data.clone()).collect();
            self.histories.insert(key.clone(), events);
        }
    }

    fn rows_match_histories(&mut self, tables: &StoredTables) {
        for ((id, number), execution) in &tables.executions {
            for wrong in violations(execution) {
                self.found.push(format!("execution {number} of {id}: {wrong}"));
            }
        }
        for (id, instance) in &tables.instances {
            let last = tables.executions_of(id).last().map(|(number, _)| number);
            if instance.current_execution_id != last {
                self.found.push(format!("{id} is at {:?}, and has {last:?}", instance.current_execution_id));
            }
            let Some((number, execution)) = tables.executions_of(id).last() else { continue };
            let histories = || tables.executions_of(id).flat_map(|(_, execution)| &execution.events);
            let (status, kv) = (status_of(histories()), kv_of(histories()));
            if instance.custom_status != status {
                self.found.push(format!(
                    "the custom status of {id} is {:?}, and was set to {status:?}",
                    instance.custom_status
                ));
            }
            if instance.kv != kv {
                self.found.push(format!("the keys of {id} are {:?}, and were set to {kv:?}", instance.kv));
            }
            let successors =
                tables.messages_to(id).filter(|item| matches!(item, WorkItem::ContinueAsNew { .. }));
            let expected = usize::from(execution.status == "ContinuedAsNew");
            if successors.count() != expected {
                self.found.push(format!(
                    "execution {number} of {id} is {}, and the start of the next is missing",
                    execution.status
                ));
            }
        }
    }

    /// Each activity, timer and child is in exactly one place: running or queued, its completion queued, or recorded.
    fn scheduled_work_exists_once(&mut self, tables: &StoredTables) {
        for ((id, number), execution) in &tables.executions {
            let events: Vec<&Event> = execution.events.iter().map(|(event, _)| event).collect();
            let cancelled: BTreeSet<u64> = events
                .iter()
                .filter(|event| matches!(event.kind, EventKind::ActivityCancelRequested { .. }))
                .filter_map(|event| event.source_event_id)
                .collect();
            let running = execution.status == "Running";
            for event in &events {
                let of = (id.as_str(), *number, event.event_id);
                let (what, places) = match &event.kind {
                    EventKind::ActivityScheduled { .. } => ("activity", activity_places(tables, &events, of)),
                    EventKind::TimerCreated { .. } => ("timer", timer_places(tables, &events, of)),
                    EventKind::SubOrchestrationScheduled { instance, .. } => {
                        ("child", child_places(tables, &events, of, instance))
                    }
                    EventKind::OrchestrationChained { instance, .. } => {
                        let places = detached_places(tables, instance);
                        if places != 1 {
                            self.found.push(format!("{instance} of {id} is in {places} places"));
                        }
                        continue;
                    }
                    _ => continue,
                };
                let due = running && !cancelled.contains(&event.event_id);
                if places > 1 || (due && places == 0) {
                    self.found
                        .push(format!("{what} {} of {id} ({number}) is in {places} places", event.event_id));
                }
            }
        }
    }

    /// A message arrives at most as often as clients sent it, whatever the answers were.
    fn nothing_is_recorded_twice(&mut self, tables: &StoredTables, observations: &Observations) {
        for (id, observed) in &observations.instances {
            let asked = |message: &str| observed.asked.get(message).copied().unwrap_or(0);
            for (message, came) in arrivals(tables, id) {
                if came > asked(&message) {
                    let sent = asked(&message);
                    self.found.push(format!("{message} was sent to {id} {sent} times and came {came} times"));
                }
            }
        }
        for ((id, number), execution) in &tables.executions {
            let mut cancelled = BTreeSet::new();
            for (event, _) in &execution.events {
                let once = match &event.kind {
                    EventKind::ActivityCancelRequested { .. }
                    | EventKind::SubOrchestrationCancelRequested { .. }
                    | EventKind::ExternalSubscribedCancelled { .. }
                    | EventKind::QueueSubscriptionCancelled { .. } => cancelled.insert(event.source_event_id),
                    EventKind::OrchestrationCancelRequested { .. } => cancelled.insert(None),
                    _ => true,
                };
                if !once {
                    self.found.push(format!("{:?} of {id} ({number}) is recorded twice", event.kind));
                }
            }
        }
    }

    fn fetched_messages_are_locked(&mut self, tables: &StoredTables) {
        for message in tables.messages.iter().filter(|message| message.tagged) {
            let id = message.item.instance();
            if !tables.instances.get(id).is_some_and(|instance| instance.locked) {
                self.found.push(format!(
                    "a message of {id} is fetched, and {id} is not locked: {:?}",
                    message.item
                ));
            }
        }
    }

    fn accepted_calls_are_stored(&mut self, tables: &StoredTables, observations: &Observations) {
        for (id, observed) in &observations.instances {
            let exists = tables.executions_of(id).next().is_some();
            if observed.started && !exists && !tables.messages_to(id).any(WorkItem::is_start) {
                self.found.push(format!("the start of {id} was accepted and is gone"));
            }
            match (&observed.outcome, ending(tables, id)) {
                (Some(outcome), ended) if ended.as_ref() != Some(outcome) => {
                    self.found
                        .push(format!("{id} was seen to end with {outcome:?}, and now it is {ended:?}"));
                }
                _ => {}
            }
            if !tables.has_ended(id) {
                self.accepted_messages_are_stored(tables, id, observed);
            }
        }
    }

    fn accepted_messages_are_stored(
        &mut self,
        tables: &StoredTables,
        id: &str,
        observed: &InstanceObservations,
    ) {
        let written = |test: &dyn Fn(&EventKind) -> bool| {
            tables
                .executions_of(id)
                .any(|(_, execution)| execution.events.iter().any(|(event, _)| test(&event.kind)))
        };
        let waiting = |test: &dyn Fn(&WorkItem) -> bool| tables.messages_to(id).any(test);
        if observed.cancelled
            && !waiting(&|item| matches!(item, WorkItem::CancelInstance { .. }))
            && !written(&|kind| matches!(kind, EventKind::OrchestrationCancelRequested { .. }))
        {
            self.found.push(format!("the cancellation of {id} was accepted and is gone"));
        }
        if observed.raised
            && !waiting(&|item| matches!(item, WorkItem::ExternalRaised { .. }))
            && !written(&|kind| matches!(kind, EventKind::ExternalEvent { .. }))
        {
            self.found.push(format!("the signal to {id} was accepted and is gone"));
        }
        for message in &observed.messages {
            let queued = waiting(&|item| match item {
                WorkItem::QueueMessage { data, .. } => data == message,
                WorkItem::ContinueAsNew { carry_forward_events, .. } => {
                    carry_forward_events.iter().any(|(_, data)| data == message)
                }
                _ => false,
            });
            let delivered = written(&|kind| match kind {
                EventKind::QueueEventDelivered { data, .. } => data == message,
                EventKind::OrchestrationStarted { carry_forward_events: Some(carried), .. } => {
                    carried.iter().any(|(_, data)| data == message)
                }
                _ => false,
            });
            if !queued && !delivered {
                self.found.push(format!("message {message} to {id} was accepted and is gone"));
            }
        }
    }

    /// An activity runs only for a stored turn, and its recorded result is one that a run returned.
    fn activities_ran_for_committed_turns(&mut self, tables: &StoredTables, observations: &Observations) {
        for (id, number, input) in observations.runs.keys() {
            let execution = tables.executions.get(&(id.clone(), *number));
            let scheduled = |(event, _): &(Event, String)| matches!(&event.kind, EventKind::ActivityScheduled { input: asked, .. } if asked == input);
            if !execution.is_some_and(|execution| execution.events.iter().any(scheduled)) {
                self.found.push(format!(
                    "activity {input} of {id} ({number}) ran, and no committed turn scheduled it"
                ));
            }
        }
        for ((id, number), execution) in &tables.executions {
            for (event, _) in &execution.events {
                let EventKind::ActivityCompleted { result } = &event.kind else { continue };
                let returned = observations
                    .runs
                    .iter()
                    .any(|((of, at, _), results)| of == id && at == number && results.contains(result));
                if !returned {
                    self.found
                        .push(format!("{result} of {id} ({number}) is recorded, and no run returned it"));
                }
            }
        }
    }
}

/// How often each signal and queue message arrived at an instance, read or not. A message that was carried to the next
/// execution counts once.
fn arrivals(tables: &StoredTables, id: &str) -> BTreeMap<String, u64> {
    let mut came = BTreeMap::<String, u64>::new();
    let mut carried = BTreeMap::<String, u64>::new();
    for (event, _) in tables.executions_of(id).flat_map(|(_, execution)| &execution.events) {
        match &event.kind {
            EventKind::ExternalEvent { data, .. } | EventKind::QueueEventDelivered { data, .. } => {
                *came.entry(data.clone()).or_default() += 1;
            }
            EventKind::OrchestrationStarted { carry_forward_events: Some(events), .. } => {
                events.iter().for_each(|(_, data)| *carried.entry(data.clone()).or_default() += 1);
            }
            _ => {}
        }
    }
    for item in tables.messages_to(id) {
        if let WorkItem::ExternalRaised { data, .. } | WorkItem::QueueMessage { data, .. } = item {
            *came.entry(data.clone()).or_default() += 1;
        }
    }
    for (message, count) in carried {
        let came = came.entry(message).or_default();
        *came = came.saturating_sub(count);
    }
    came
}

fn chained((event, _): &(Event, String)) -> Option<&str> {
    match &event.kind {
        EventKind::OrchestrationChained { instance, .. } => Some(instance),
        _ => None,
    }
}

/// How an instance ended, by its history.
fn ending(tables: &StoredTables, id: &str) -> Option<InstanceOutcome> {
    let (_, last) = tables.executions_of(id).last()?;
    last.events.iter().find_map(|(event, _)| match &event.kind {
        EventKind::OrchestrationCompleted { output } => Some(InstanceOutcome::Completed(output.clone())),
        EventKind::OrchestrationFailed { details } => {
            Some(InstanceOutcome::Failed(details.display_message()))
        }
        _ => None,
    })
}
