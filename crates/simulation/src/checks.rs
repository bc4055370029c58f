//! What must be true when the world has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everturn::providers::{ProviderAdmin, ProviderError, WorkItem};
use everturn::{Event, EventKind, OrchestrationStatus};
use tokio::time::sleep;

use crate::clients::{Acknowledged, ClientAnswers};
use crate::model::{Expectation, Expectations};
use crate::names;
use crate::plan::root_of;
use crate::recorder::{ActivityKey, Histories, Recorder};
use crate::scenario::Scenario;

/// How long after a failed read the next is tried.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Checks everything.
pub(crate) async fn check(scenario: &Scenario, expectations: &Expectations, answers: &ClientAnswers) {
    let store = scenario.clients_store();
    let Some(admin) = store.admin() else {
        return scenario.violated("the histories cannot be read: the store has no management".to_owned());
    };
    let histories = match read_all(admin).await {
        Ok(histories) => histories,
        Err(error) => {
            return scenario.violated(format!("the histories cannot be read: {error}"));
        }
    };
    let mut broken = Vec::new();
    let unpredicted = unpredicted_roots(scenario, expectations);
    for (instance, executions) in &histories {
        check_executions(instance, executions, &mut broken);
        let rows = scenario.store.rows_left(instance);
        if rows > 0 {
            broken.push(format!("{instance} has ended, and {rows} rows of it are left in the queues"));
        }
    }
    for instance in scenario.store.locked_instances() {
        broken.push(format!("{instance} is locked, and no worker is left to hold it"));
    }
    {
        let records = scenario.records();
        check_as_committed(&histories, &records.recorder.histories, &mut broken);
        check_outcomes_recorded(&histories, &records.recorder, &mut broken);
        broken.extend(records.recorder.deliveries.lost());
        // Messages that a cancelled instance no longer waited for may have been dropped: they are not checked.
        let is_checked = |acknowledged: &Acknowledged| match acknowledged {
            Acknowledged::Started { .. } | Acknowledged::Cancelled { .. } => true,
            Acknowledged::Signalled { .. } | Acknowledged::Enqueued { .. } => {
                let root = root_of(acknowledged.instance());
                expectations.contains_key(root) && !unpredicted.contains(root)
            }
        };
        for acknowledged in answers.acknowledged.iter().filter(|acknowledged| is_checked(acknowledged)) {
            check_acknowledged(acknowledged, &histories, &records.recorder, &mut broken);
        }
    }
    for (instance, expectation) in expectations.iter().filter(|(id, _)| !unpredicted.contains(root_of(id))) {
        check_expectation(scenario, instance, expectation, &mut broken).await;
    }
    for (instance, before) in &answers.outcomes {
        check_outcome(scenario, instance, before, &mut broken).await;
    }
    broken.extend(scenario.store.flaws());
    for what in broken {
        scenario.violated(what);
    }
}

/// Roots of which something is poisoned because it was taken over as often as it may be tried. Where poison is predicted, the
/// outcome is checked all the same.
fn unpredicted_roots(scenario: &Scenario, expectations: &Expectations) -> BTreeSet<String> {
    let is_poison = |expectation: &Expectation| {
        expectation.outcome.as_ref().unwrap_or_else(|error| error).contains("poison")
    };
    let predicted = expectations.iter().filter(|(_, expectation)| is_poison(expectation));
    let predicted: BTreeSet<&str> = predicted.map(|(instance, _)| root_of(instance)).collect();
    let worn_out = scenario.records().recorder.worn_out.clone();
    worn_out.into_iter().filter(|root| !predicted.contains(root.as_str())).collect()
}

/// Checks what is stored after a power cut, before any process goes on: everything that was committed, and of the turns
/// under way those that the recorder finds here.
pub(crate) async fn check_after_power_cut(scenario: &Scenario) {
    let store = scenario.clients_store();
    let Some(admin) = store.admin() else {
        return scenario.violated("after a power cut the histories cannot be read: no management".to_owned());
    };
    let histories = loop {
        match read_all(admin).await {
            Ok(histories) => break histories,
            Err(error) if error.is_retryable() => sleep(RETRY_AFTER).await,
            Err(error) => {
                return scenario.violated(format!("after a power cut the histories cannot be read: {error}"));
            }
        }
    };
    scenario.recovered(&histories);
    let mut broken = Vec::new();
    check_as_committed(&histories, &scenario.records().recorder.histories, &mut broken);
    broken.extend(scenario.store.flaws());
    for what in broken {
        scenario.violated(format!("after a power cut: {what}"));
    }
}

async fn read_all(admin: &dyn ProviderAdmin) -> Result<Histories, ProviderError> {
    let mut histories = Histories::new();
    for instance in admin.list_instances().await? {
        let mut executions = BTreeMap::new();
        for execution_id in admin.list_executions(&instance).await? {
            let history = admin.read_history_with_execution_id(&instance, execution_id).await?;
            executions.insert(execution_id, history);
        }
        histories.insert(instance, executions);
    }
    Ok(histories)
}

/// Executions follow each other without gaps, each continued but the last.
fn check_executions(instance: &str, executions: &BTreeMap<u64, Vec<Event>>, broken: &mut Vec<String>) {
    let last = executions.len() as u64;
    for (expected, (execution_id, history)) in (1_u64..).zip(executions) {
        let what = format!("{instance}, execution {execution_id}");
        if *execution_id != expected {
            broken.push(format!("{what}: it should have been execution {expected}"));
        }
        check_history(&what, history, *execution_id < last, broken);
    }
}

fn check_history(what: &str, history: &[Event], is_continued: bool, broken: &mut Vec<String>) {
    if !matches!(history.first().map(|event| &event.kind), Some(EventKind::OrchestrationStarted { .. })) {
        broken.push(format!("{what}: it does not begin with its start"));
    }
    check_ids(what, history, is_continued, broken);
    match history.iter().position(Event::is_terminal) {
        None => broken.push(format!("{what}: it has not ended")),
        Some(position) => {
            let (end, rest) = (history.get(position), history.get(position + 1..).unwrap_or_default());
            let continued =
                end.is_some_and(|event| matches!(event.kind, EventKind::OrchestrationContinuedAsNew { .. }));
            if continued != is_continued {
                broken.push(format!("{what}: it ends with {end:?}, continued: {is_continued}"));
            }
            if let Some(late) =
                rest.iter().find(|event| !matches!(event.kind, EventKind::ActivityCancelRequested { .. }))
            {
                broken.push(format!("{what}: {late:?} follows its end"));
            }
        }
    }
    check_completions(what, history, broken);
}

/// Ids rise by one from 1. Only continuing as new takes an id without an event, right before its end, also where
/// a cancellation came first.
fn check_ids(what: &str, history: &[Event], is_continued: bool, broken: &mut Vec<String>) {
    let is_cancelled =
        history.iter().any(|event| matches!(event.kind, EventKind::OrchestrationCancelRequested { .. }));
    let mut gaps_left = u64::from(is_continued || is_cancelled);
    let mut expected = 1;
    for (position, Event { event_id, .. }) in history.iter().enumerate() {
        let is_gap = *event_id == expected + 1 && gaps_left > 0;
        if is_gap && history.get(position..).is_some_and(is_end) {
            gaps_left -= 1;
        } else if *event_id != expected {
            return broken.push(format!("{what}: event {event_id} is at the place of {expected}"));
        }
        expected = event_id + 1;
    }
}

/// Whether these events end an execution: what it withdrew, and then its end.
fn is_end(events: &[Event]) -> bool {
    let is_withdrawal = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::ActivityCancelRequested { .. }
                | EventKind::SubOrchestrationCancelRequested { .. }
                | EventKind::ExternalSubscribedCancelled { .. }
                | EventKind::QueueSubscriptionCancelled { .. }
        )
    };
    events.iter().find(|event| !is_withdrawal(event)).is_some_and(Event::is_terminal)
}

/// Each schedule is answered at most once, by an answer of its kind; activities are answered or withdrawn.
fn check_completions(what: &str, history: &[Event], broken: &mut Vec<String>) {
    let mut answered = BTreeSet::new();
    let mut withdrawn = BTreeSet::new();
    for event in history {
        let source = event.source_event_id.unwrap_or_default();
        let scheduled = history.iter().find(|other| other.event_id == source).map(|other| &other.kind);
        let fits = match &event.kind {
            EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. } => {
                matches!(scheduled, Some(EventKind::ActivityScheduled { .. }))
            }
            EventKind::TimerFired { fire_at_ms } => {
                matches!(scheduled, Some(EventKind::TimerCreated { fire_at_ms: due }) if due == fire_at_ms)
            }
            EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
                matches!(scheduled, Some(EventKind::SubOrchestrationScheduled { .. }))
            }
            EventKind::ActivityCancelRequested { .. } => {
                withdrawn.insert(source);
                continue;
            }
            _ => continue,
        };
        if !fits {
            broken.push(format!("{what}: {event:?} answers {scheduled:?}"));
        }
        if !answered.insert(source) {
            broken.push(format!("G3: {what}: event {source} is answered twice"));
        }
    }
    for event in history {
        let is_activity = matches!(event.kind, EventKind::ActivityScheduled { .. });
        if is_activity && !answered.contains(&event.event_id) && !withdrawn.contains(&event.event_id) {
            broken.push(format!("{what}: {event:?} was neither answered nor withdrawn"));
        }
    }
}

/// What is stored is what was committed: nothing lost, nothing changed, nothing added.
fn check_as_committed(
    stored: &Histories,
    committed: &BTreeMap<(String, u64), Vec<Event>>,
    broken: &mut Vec<String>,
) {
    let in_store: usize = stored.values().flat_map(BTreeMap::values).map(Vec::len).sum();
    let in_commits: usize = committed.values().map(Vec::len).sum();
    if in_store != in_commits {
        broken.push(format!("G2: {in_commits} events were committed, {in_store} are stored"));
    }
    for ((instance, execution_id), events) in committed {
        if stored.get(instance).and_then(|executions| executions.get(execution_id)) != Some(events) {
            broken
                .push(format!("G2: {instance}, execution {execution_id} is not stored as it was committed"));
        }
    }
}

/// The recorded outcome of an activity is the one that was acknowledged to its worker; if none was, one that was sent.
fn check_outcomes_recorded(histories: &Histories, recorder: &Recorder, broken: &mut Vec<String>) {
    for event in histories.values().flat_map(BTreeMap::values).flatten() {
        let is_recorded = |outcome: &WorkItem| match (&event.kind, outcome) {
            (
                EventKind::ActivityCompleted { result: recorded },
                WorkItem::ActivityCompleted { result, .. },
            ) => result == recorded,
            (EventKind::ActivityFailed { details: recorded }, WorkItem::ActivityFailed { details, .. }) => {
                details == recorded
            }
            _ => false,
        };
        if !matches!(event.kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. }) {
            continue;
        }
        let key: ActivityKey =
            (event.instance_id.clone(), event.execution_id, event.source_event_id.unwrap_or_default());
        let (acknowledged, sent) = (recorder.outcomes.get(&key), recorder.outcomes_sent.get(&key));
        let is_same = match acknowledged {
            Some(outcome) => is_recorded(outcome),
            None => sent.is_some_and(|sent| sent.iter().any(is_recorded)),
        };
        if !is_same {
            broken.push(format!(
                "G3: {event:?} is recorded, its worker sent {sent:?}, acknowledged was {acknowledged:?}"
            ));
        }
    }
}

/// What was acknowledged to a client is recorded.
fn check_acknowledged(
    acknowledged: &Acknowledged,
    histories: &Histories,
    recorder: &Recorder,
    broken: &mut Vec<String>,
) {
    let recorded = |instance: &str, is_it: &dyn Fn(&EventKind) -> bool| {
        let executions = histories.get(instance);
        executions.is_some_and(|all| all.values().flatten().any(|event| is_it(&event.kind)))
    };
    let is_recorded = match acknowledged {
        Acknowledged::Started { instance } => {
            recorded(instance, &|kind| matches!(kind, EventKind::OrchestrationStarted { .. }))
        }
        Acknowledged::Signalled { instance, name } => {
            let sent = names::signal_data(name);
            recorded(
                instance,
                &|kind| matches!(kind, EventKind::ExternalEvent { name: n, data } if n == name && *data == sent),
            )
        }
        Acknowledged::Enqueued { instance, queue, data: sent } => recorded(
            instance,
            &|kind| matches!(kind, EventKind::QueueEventDelivered { name, data } if name == queue && data == sent),
        ),
        Acknowledged::Cancelled { instance, at } => {
            // An instance that was in its last turn, or had ended, is not cancelled.
            let came_too_late = recorder.last_fetched.get(instance).is_some_and(|fetched| fetched <= at);
            came_too_late
                || recorded(instance, &|kind| matches!(kind, EventKind::OrchestrationCancelRequested { .. }))
        }
    };
    if !is_recorded {
        broken.push(format!("G1: {acknowledged:?} was acknowledged to a client, and is not recorded"));
    }
}

/// The outcome that a client got is still the stored one.
async fn check_outcome(
    scenario: &Scenario,
    instance: &str,
    before: &OrchestrationStatus,
    broken: &mut Vec<String>,
) {
    match scenario.clients_store().read_status(instance).await {
        Ok(now) if now == *before => {}
        now => broken.push(format!("G1: a client got {before:?} for {instance}, now it is {now:?}")),
    }
}

/// An instance ended as the model predicts.
async fn check_expectation(
    scenario: &Scenario,
    instance: &str,
    expectation: &Expectation,
    broken: &mut Vec<String>,
) {
    let (status, kv) = match (
        scenario.clients_store().read_status(instance).await,
        scenario.clients_store().read_kv_values(instance).await,
    ) {
        (Ok(status), Ok(kv)) => (status, kv),
        (Err(error), _) | (_, Err(error)) => {
            return broken.push(format!("{instance} cannot be read: {error}"));
        }
    };
    let (outcome, custom_status) = match status {
        OrchestrationStatus::Completed { output, custom_status, .. } => (Ok(output), custom_status),
        OrchestrationStatus::Failed { details, custom_status, .. } => {
            (Err(details.display_message()), custom_status)
        }
        OrchestrationStatus::NotFound | OrchestrationStatus::Running { .. } => {
            return broken.push(format!("G5: {instance} has not ended: {status:?}"));
        }
    };
    let reached = Expectation { outcome, custom_status, kv: kv.into_iter().collect() };
    if reached != *expectation {
        broken.push(format!(
            "{instance} should have come to\n      {expectation:?}, it came to\n      {reached:?}"
        ));
    }
}
