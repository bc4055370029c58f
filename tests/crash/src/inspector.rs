//! Holds what is stored against the promises and against what the outside world was told.

use std::collections::{BTreeMap, BTreeSet};

use everturn::{Event, EventKind, build_child_instance_id};
use everturn_core::WorkItem;

use crate::agreement::{disagreements, kv_of, status_of};
use crate::ledger::{Known, Outcome, Told};
use crate::tables::Tables;

/// Looks at the same store again and again; what was written once must stay.
#[derive(Default)]
pub struct Inspector {
    histories: BTreeMap<(String, u64), Vec<String>>,
    found: Vec<String>,
}

impl Inspector {
    /// Looks at what is stored. Fails with everything that is wrong.
    pub fn inspect(&mut self, tables: &Tables, known: &Known) -> Result<(), String> {
        if tables.integrity != "ok" {
            self.found.push(format!("the file is damaged: {}", tables.integrity));
        }
        self.found.extend(tables.set_aside.iter().map(|reason| format!("a row was set aside: {reason}")));
        self.nothing_written_has_changed(tables);
        self.executions_agree_with_their_histories(tables);
        self.everything_asked_for_is_somewhere_once(tables);
        self.messages_in_hand_are_held(tables);
        self.nothing_is_recorded_twice(tables, known);
        self.what_was_accepted_is_there(tables, known);
        self.activities_ran_for_committed_turns(tables, known);
        self.found.extend(known.refusals.iter().map(|refusal| format!("refused for good: {refusal}")));
        self.found.extend(known.wrong.iter().cloned());
        self.settle()
    }

    /// Looks at what is stored when everything is over.
    pub fn inspect_end(&mut self, tables: &Tables, known: &Known) -> Result<(), String> {
        for (id, told) in &known.instances {
            match &told.outcome {
                Some(Outcome::Failed(reason)) if told.cancelled && reason.contains("enough") => {}
                Some(Outcome::Completed(output)) => {
                    if let Some(wrong) = told.plan.judge(output) {
                        self.found.push(format!("{id} ended with {wrong}"));
                    }
                }
                other => self.found.push(format!("{id} ({:?}) ended with {other:?}", told.plan)),
            }
        }
        self.everybody_has_ended(tables);
        for message in &tables.messages {
            self.found.push(format!("a message is left over: {:?}", message.item));
        }
        for activity in &tables.activities {
            self.found.push(format!("an activity is left over: {:?}", activity.of));
        }
        for (id, _) in tables.instances.iter().filter(|(_, instance)| instance.locked) {
            self.found.push(format!("{id} is locked for ever"));
        }
        self.settle()
    }

    /// Children and detached instances too. Nobody cancels those that nobody waits for.
    fn everybody_has_ended(&mut self, tables: &Tables) {
        for id in tables.instances.keys() {
            if !tables.has_ended(id) {
                self.found.push(format!("{id} has not ended"));
            }
        }
        for instance in tables.executions.values().flat_map(|execution| &execution.events).filter_map(chained)
        {
            if !matches!(ending(tables, instance), Some(Outcome::Completed(output)) if output.starts_with("s0#"))
            {
                self.found.push(format!("{instance}, which lives on its own, did not end well"));
            }
        }
    }

    fn settle(&mut self) -> Result<(), String> {
        let found = std::mem::take(&mut self.found);
        if found.is_empty() { Ok(()) } else { Err(found.join("\n    ")) }
    }

    /// Events are written once and never changed, whatever happens to the machine afterwards.
    fn nothing_written_has_changed(&mut self, tables: &Tables) {
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

    fn executions_agree_with_their_histories(&mut self, tables: &Tables) {
        for ((id, number), execution) in &tables.executions {
            for wrong in disagreements(execution) {
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
                self.found.push(format!("{id} says {:?}, and said {status:?}", instance.custom_status));
            }
            if instance.kv != kv {
                self.found.push(format!("the keys of {id} are {:?}, and were set to {kv:?}", instance.kv));
            }
            let successors =
                tables.messages_to(id).filter(|item| matches!(item, WorkItem::ContinueAsNew { .. }));
            let expected = usize::from(execution.status == "ContinuedAsNew");
            if successors.count() != expected {
                self.found
                    .push(format!("{id} at {number} is {}, and its successor is not", execution.status));
            }
        }
    }

    /// Each activity, timer and child is either under way, or on its way back, or recorded: once.
    fn everything_asked_for_is_somewhere_once(&mut self, tables: &Tables) {
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

    /// What was sent so many times has come at most so many times, whatever was answered.
    fn nothing_is_recorded_twice(&mut self, tables: &Tables, known: &Known) {
        for (id, told) in &known.instances {
            let asked = |message: &str| told.asked.get(message).copied().unwrap_or(0);
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

    fn messages_in_hand_are_held(&mut self, tables: &Tables) {
        for message in tables.messages.iter().filter(|message| message.tagged) {
            let id = message.item.instance();
            if !tables.instances.get(id).is_some_and(|instance| instance.locked) {
                self.found.push(format!("a message of {id} is in the hands of nobody: {:?}", message.item));
            }
        }
    }

    fn what_was_accepted_is_there(&mut self, tables: &Tables, known: &Known) {
        for (id, told) in &known.instances {
            let exists = tables.executions_of(id).next().is_some();
            if told.started && !exists && !tables.messages_to(id).any(WorkItem::is_start) {
                self.found.push(format!("the start of {id} was accepted and is gone"));
            }
            match (&told.outcome, ending(tables, id)) {
                (Some(outcome), ended) if ended.as_ref() != Some(outcome) => {
                    self.found
                        .push(format!("{id} was seen to end with {outcome:?}, and now it is {ended:?}"));
                }
                _ => {}
            }
            if !tables.has_ended(id) {
                self.messages_are_there(tables, id, told);
            }
        }
    }

    fn messages_are_there(&mut self, tables: &Tables, id: &str, told: &Told) {
        let written = |test: &dyn Fn(&EventKind) -> bool| {
            tables
                .executions_of(id)
                .any(|(_, execution)| execution.events.iter().any(|(event, _)| test(&event.kind)))
        };
        let waiting = |test: &dyn Fn(&WorkItem) -> bool| tables.messages_to(id).any(test);
        if told.cancelled
            && !waiting(&|item| matches!(item, WorkItem::CancelInstance { .. }))
            && !written(&|kind| matches!(kind, EventKind::OrchestrationCancelRequested { .. }))
        {
            self.found.push(format!("the cancellation of {id} was accepted and is gone"));
        }
        if told.raised
            && !waiting(&|item| matches!(item, WorkItem::ExternalRaised { .. }))
            && !written(&|kind| matches!(kind, EventKind::ExternalEvent { .. }))
        {
            self.found.push(format!("the signal to {id} was accepted and is gone"));
        }
        for message in &told.messages {
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

    /// An activity runs only for a turn that is stored, and what is recorded of it is what one of its runs returned.
    fn activities_ran_for_committed_turns(&mut self, tables: &Tables, known: &Known) {
        for (id, number, input) in known.runs.keys() {
            let execution = tables.executions.get(&(id.clone(), *number));
            let scheduled = |(event, _): &(Event, String)| matches!(&event.kind, EventKind::ActivityScheduled { input: asked, .. } if asked == input);
            if !execution.is_some_and(|execution| execution.events.iter().any(scheduled)) {
                self.found.push(format!("activity {input} of {id} ({number}) ran, and nobody asked for it"));
            }
        }
        for ((id, number), execution) in &tables.executions {
            for (event, _) in &execution.events {
                let EventKind::ActivityCompleted { result } = &event.kind else { continue };
                let returned = known
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

/// How often each signal and queue message came to an instance, read or not. What a successor was given by its
/// predecessor came only once.
fn arrivals(tables: &Tables, id: &str) -> BTreeMap<String, u64> {
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
fn ending(tables: &Tables, id: &str) -> Option<Outcome> {
    let (_, last) = tables.executions_of(id).last()?;
    last.events.iter().find_map(|(event, _)| match &event.kind {
        EventKind::OrchestrationCompleted { output } => Some(Outcome::Completed(output.clone())),
        EventKind::OrchestrationFailed { details } => Some(Outcome::Failed(details.display_message())),
        _ => None,
    })
}

fn recorded(events: &[&Event], of: u64, test: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| event.source_event_id == Some(of) && test(&event.kind)).count()
}

fn activity_places(tables: &Tables, events: &[&Event], of: (&str, u64, u64)) -> usize {
    let queued = tables.activities.iter().filter(|row| (row.of.0.as_str(), row.of.1, row.of.2) == of).count();
    let returning = tables.messages.iter().filter(|message| match &message.item {
        WorkItem::ActivityCompleted { instance, execution_id, id, .. }
        | WorkItem::ActivityFailed { instance, execution_id, id, .. } => {
            (instance.as_str(), *execution_id, *id) == of
        }
        _ => false,
    });
    let recorded = recorded(events, of.2, |kind| {
        matches!(kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. })
    });
    queued + returning.count() + recorded
}

fn timer_places(tables: &Tables, events: &[&Event], of: (&str, u64, u64)) -> usize {
    let queued = tables.messages.iter().filter(|message| match &message.item {
        WorkItem::TimerFired { instance, execution_id, id, .. } => {
            (instance.as_str(), *execution_id, *id) == of
        }
        _ => false,
    });
    queued.count() + recorded(events, of.2, |kind| matches!(kind, EventKind::TimerFired { .. }))
}

fn child_places(tables: &Tables, events: &[&Event], of: (&str, u64, u64), suffix: &str) -> usize {
    let child = build_child_instance_id(of.0, suffix);
    let under_way = usize::from(
        tables.messages_to(&child).any(WorkItem::is_start)
            || (tables.executions_of(&child).next().is_some() && !tables.has_ended(&child)),
    );
    let returning = tables.messages.iter().filter(|message| match &message.item {
        WorkItem::SubOrchCompleted { parent_instance, parent_execution_id, parent_id, .. }
        | WorkItem::SubOrchFailed { parent_instance, parent_execution_id, parent_id, .. } => {
            (parent_instance.as_str(), *parent_execution_id, *parent_id) == of
        }
        _ => false,
    });
    let recorded = recorded(events, of.2, |kind| {
        matches!(kind, EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. })
    });
    under_way + returning.count() + recorded
}

fn detached_places(tables: &Tables, instance: &str) -> usize {
    let starts = tables.messages_to(instance).filter(|item| item.is_start()).count();
    starts + usize::from(tables.executions_of(instance).next().is_some())
}
