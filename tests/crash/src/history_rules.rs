//! Rules for the histories of an instance, and for the rows that are derived from them.

use std::collections::BTreeMap;

use everturn::{Event, EventKind};

use crate::tables::ExecutionRow;

/// What is wrong with the history of an execution, and with its row.
pub(crate) fn violations(execution: &ExecutionRow) -> Vec<String> {
    let mut found = Vec::new();
    let events: Vec<&Event> = execution.events.iter().map(|(event, _)| event).collect();
    let bytes: usize = execution.events.iter().map(|(_, data)| data.len()).sum();
    if (execution.event_count, execution.event_bytes) != (events.len() as u64, bytes as u64) {
        found.push(format!("{} events are counted, {} are there", execution.event_count, events.len()));
    }
    found.extend(misnumbered(&events));
    let is_start = |event: &Event| matches!(event.kind, EventKind::OrchestrationStarted { .. });
    let starts = events.iter().filter(|event| is_start(event)).count();
    if starts != 1 || !events.first().is_some_and(|event| is_start(event)) {
        found.push(format!("it has {starts} start events; it must begin with exactly one"));
    }
    let mut ends = events.iter().enumerate().filter(|(_, event)| event.is_terminal());
    let expected = match (ends.next(), ends.next()) {
        (None, _) => "Running",
        (Some(_), Some(_)) => "ended once",
        (Some((at, end)), None) => {
            let after = events.iter().skip(at + 1);
            let mut others =
                after.filter(|event| !matches!(event.kind, EventKind::ActivityCancelRequested { .. }));
            if let Some(other) = others.next() {
                found.push(format!("{:?} follows its end", other.kind));
            }
            match end.kind {
                EventKind::OrchestrationCompleted { .. } => "Completed",
                EventKind::OrchestrationFailed { .. } => "Failed",
                _ => "ContinuedAsNew",
            }
        }
    };
    if execution.status != expected {
        found.push(format!("its status is {}, and should be {expected}", execution.status));
    }
    found
}

/// Events are numbered from 1 without gaps, except for a gap right before a continue-as-new event.
fn misnumbered(events: &[&Event]) -> Option<String> {
    let follows = |pair: &[&Event]| match pair[1].kind {
        EventKind::OrchestrationContinuedAsNew { .. } => pair[0].event_id < pair[1].event_id,
        _ => pair[0].event_id + 1 == pair[1].event_id,
    };
    let is_numbered =
        events.first().is_none_or(|first| first.event_id == 1) && events.windows(2).all(follows);
    let ids = || events.iter().map(|event| event.event_id).collect::<Vec<_>>();
    (!is_numbered).then(|| format!("its events are numbered {:?}", ids()))
}

/// The custom status of an instance, by all its events.
pub(crate) fn status_of<'a>(events: impl Iterator<Item = &'a (Event, String)>) -> Option<String> {
    let mut custom_status = None;
    for (event, _) in events {
        match &event.kind {
            EventKind::CustomStatusUpdated { status } => custom_status.clone_from(status),
            EventKind::OrchestrationStarted { initial_custom_status, .. } => {
                custom_status.clone_from(initial_custom_status);
            }
            _ => {}
        }
    }
    custom_status
}

/// The keys of an instance, by all its events.
pub(crate) fn kv_of<'a>(events: impl Iterator<Item = &'a (Event, String)>) -> BTreeMap<String, String> {
    let mut kv = BTreeMap::new();
    for (event, _) in events {
        match &event.kind {
            EventKind::KeyValueSet { key, value, .. } => drop(kv.insert(key.clone(), value.clone())),
            EventKind::KeyValueCleared { key } => drop(kv.remove(key)),
            EventKind::KeyValuesCleared => kv.clear(),
            _ => {}
        }
    }
    kv
}
