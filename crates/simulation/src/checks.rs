//! What must be true when everything is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everturn::providers::{ProviderAdmin, ProviderError, WorkItem};
use everturn::{Event, EventKind, OrchestrationStatus};
use tokio::time::sleep;

use crate::model::{Expectation, Expectations};
use crate::names;
use crate::observer::{ActivityKey, Histories, Observer};
use crate::outside::{Promise, Told};
use crate::plan::root_of;
use crate::scene::Scene;

/// How long after a failed read the next is tried.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Checks everything.
pub(crate) async fn check(scene: &Scene, expectations: &Expectations, told: &Told) {
    let provider = scene.clients_provider();
    let Some(admin) = provider.as_management_capability() else {
        return scene.violated("the histories cannot be read: the store has no management".to_owned());
    };
    let histories = match read_all(admin).await {
        Ok(histories) => histories,
        Err(error) => {
            return scene.violated(format!("the histories cannot be read: {error}"));
        }
    };
    let mut broken = Vec::new();
    for (instance, executions) in &histories {
        check_executions(instance, executions, &mut broken);
        let rows = scene.store.rows_left(instance);
        if rows > 0 {
            broken.push(format!("{instance} has ended, and {rows} rows of it are left in the queues"));
        }
    }
    for instance in scene.store.locked_instances() {
        broken.push(format!("{instance} is locked, and nobody is left to hold it"));
    }
    {
        let books = scene.books();
        check_as_committed(&histories, &books.observer.histories, &mut broken);
        check_outcomes_recorded(&histories, &books.observer, &mut broken);
        broken.extend(books.observer.deliveries.lost());
        // What a cancelled instance had no use for any more may have been dropped, so nothing is said of that.
        let is_said_of = |promise: &Promise| match promise {
            Promise::Started { .. } | Promise::Cancelled { .. } => true,
            Promise::Signalled { .. } | Promise::Enqueued { .. } => {
                expectations.contains_key(root_of(promise.instance()))
            }
        };
        for promise in told.promises.iter().filter(|promise| is_said_of(promise)) {
            check_promise(promise, &histories, &books.observer, &mut broken);
        }
    }
    for (instance, expectation) in expectations {
        check_expectation(scene, instance, expectation, &mut broken).await;
    }
    for (instance, before) in &told.outcomes {
        check_told(scene, instance, before, &mut broken).await;
    }
    broken.extend(scene.store.flaws());
    for what in broken {
        scene.violated(what);
    }
}

/// Checks what is stored after a power cut, before anybody goes on: everything that was committed, and of what was under
/// way what the observer is told of here.
pub(crate) async fn check_after_power_cut(scene: &Scene) {
    let provider = scene.clients_provider();
    let Some(admin) = provider.as_management_capability() else {
        return scene.violated("after a power cut the histories cannot be read: no management".to_owned());
    };
    let histories = loop {
        match read_all(admin).await {
            Ok(histories) => break histories,
            Err(error) if error.is_retryable() => sleep(RETRY_AFTER).await,
            Err(error) => {
                return scene.violated(format!("after a power cut the histories cannot be read: {error}"));
            }
        }
    };
    scene.power_failed(&histories);
    let mut broken = Vec::new();
    check_as_committed(&histories, &scene.books().observer.histories, &mut broken);
    broken.extend(scene.store.flaws());
    for what in broken {
        scene.violated(format!("after a power cut: {what}"));
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
            return broken.push(format!("{what}: event {event_id} stands where {expected} should"));
        }
        expected = event_id + 1;
    }
}

/// Whether these events end an execution: what it gave up, and then that it ended.
fn is_end(events: &[Event]) -> bool {
    let given_up = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::ActivityCancelRequested { .. }
                | EventKind::SubOrchestrationCancelRequested { .. }
                | EventKind::ExternalSubscribedCancelled { .. }
                | EventKind::QueueSubscriptionCancelled { .. }
        )
    };
    events.iter().find(|event| !given_up(event)).is_some_and(Event::is_terminal)
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

/// The recorded outcome of an activity is the one its worker was told is committed; if no worker was told, one that was
/// sent.
fn check_outcomes_recorded(histories: &Histories, observer: &Observer, broken: &mut Vec<String>) {
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
        let (told, sent) = (observer.outcomes.get(&key), observer.outcomes_sent.get(&key));
        let is_same = match told {
            Some(outcome) => is_recorded(outcome),
            None => sent.is_some_and(|sent| sent.iter().any(is_recorded)),
        };
        if !is_same {
            broken.push(format!("G3: {event:?} is recorded, its worker sent {sent:?} and was told {told:?}"));
        }
    }
}

/// What a client was told is done has left its mark.
fn check_promise(promise: &Promise, histories: &Histories, observer: &Observer, broken: &mut Vec<String>) {
    let recorded = |instance: &str, is_it: &dyn Fn(&EventKind) -> bool| {
        let executions = histories.get(instance);
        executions.is_some_and(|all| all.values().flatten().any(|event| is_it(&event.kind)))
    };
    let kept = match promise {
        Promise::Started { instance } => {
            recorded(instance, &|kind| matches!(kind, EventKind::OrchestrationStarted { .. }))
        }
        Promise::Signalled { instance, name } => {
            let sent = names::signal_data(name);
            recorded(
                instance,
                &|kind| matches!(kind, EventKind::ExternalEvent { name: n, data } if n == name && *data == sent),
            )
        }
        Promise::Enqueued { instance, queue, data: sent } => recorded(
            instance,
            &|kind| matches!(kind, EventKind::QueueEventDelivered { name, data } if name == queue && data == sent),
        ),
        Promise::Cancelled { instance, at } => {
            // Who was about to end without it, or had ended, is not to be cancelled.
            let came_too_late = observer.last_handed_out.get(instance).is_some_and(|handed| handed <= at);
            came_too_late
                || recorded(instance, &|kind| matches!(kind, EventKind::OrchestrationCancelRequested { .. }))
        }
    };
    if !kept {
        broken.push(format!("G1: a client was told {promise:?}, and nothing of it is recorded"));
    }
}

/// What a client was told about the end of an instance is still so.
async fn check_told(scene: &Scene, instance: &str, before: &OrchestrationStatus, broken: &mut Vec<String>) {
    match scene.clients_provider().read_status(instance).await {
        Ok(now) if now == *before => {}
        now => broken.push(format!("G1: a client was told that {instance} is {before:?}, now it is {now:?}")),
    }
}

/// An instance came to what the model says.
async fn check_expectation(
    scene: &Scene,
    instance: &str,
    expectation: &Expectation,
    broken: &mut Vec<String>,
) {
    let (status, kv) = match (
        scene.clients_provider().read_status(instance).await,
        scene.clients_provider().get_kv_all_values(instance).await,
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
