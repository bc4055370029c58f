//! What to do with a fetched turn, in the order of the checks.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::turn::{Execution, ExecutionIdentity};
use everturn_core::{Event, EventKind, OrchestrationHandlerRef, WorkItem};
use everturn_provider::OrchestrationItem;
use everturn_provider::store::{FetchedTurn, HandlerKey};
use semver::Version;

use super::super::options::ShadowReplay;
use super::super::poison::is_poison;
use super::super::registry::OrchestrationRegistry;
use super::super::warm_cache::{LentEntry, WarmEntry};
use super::duplicate_start::{SplitMessages, caller, ignored_start_notices, split_messages};
use super::execution_start::ExecutionStart;
use super::execution_state::{ExecutionState, RecordedEnd, turns_in};
use super::locked_instance::LockedInstance;
use super::poison_events::PoisonedTurn;
use super::run_turn::ReadyTurn;

/// Delay before an instance that this runtime cannot run is offered again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A history that names this version was written without one.
const NO_VERSION: &str = "0.0.0";

/// What is done with a fetched turn.
pub(super) enum Decision {
    /// Run the code on the messages, and commit what it decides.
    Run(ReadyTurn),
    /// Abandon the lock. The messages return to the queue and are offered again after `delay`.
    GiveBack { delay: Option<Duration>, ignore_attempt: bool },
    /// Abandon the lock, because this runtime lacks the handler. Runtimes that lack it too are offered the instance again
    /// after `delay`, others at once.
    LeaveToOthers { delay: Duration, handler: HandlerKey },
    /// Remove the messages from the queue without a turn, and send `notices` to other instances.
    Acknowledge { notices: Vec<WorkItem> },
    /// Record that the instance failed: its messages were tried too often.
    Fail(PoisonedTurn),
}

/// Decides what to do with a fetched turn. Logs why, if it is not run.
pub(super) fn decide(locked: &LockedInstance<'_>, fetched: FetchedTurn) -> Decision {
    let FetchedTurn { mut item, notes, warm: lent, .. } = fetched;
    if let Some(pinned) = unsupported_version(locked, &item.history) {
        return give_back_unsupported_version(locked, &pinned);
    }
    let messages = std::mem::take(&mut item.messages);
    let was_lent = lent.is_some();
    let warm = lent.and_then(|lent| lent.take::<LentEntry>()).and_then(LentEntry::into_entry);
    let has_successor = messages.iter().any(|message| matches!(message, WorkItem::ContinueAsNew { .. }));
    if was_lent && (warm.is_none() || has_successor) {
        // Memory does not have what this turn needs; the next fetch brings the history.
        return Decision::GiveBack { delay: None, ignore_attempt: true };
    }
    let state = match &warm {
        // An execution that is in memory runs.
        Some(entry) => ExecutionState {
            has_history: true,
            start: Some(Arc::clone(&entry.start)),
            last_event_id: entry.execution().map_or(0, Execution::last_event_id),
            end: None,
        },
        None => ExecutionState::of(&item.history),
    };
    if is_poisoned(locked) && state.end != Some(RecordedEnd::Terminal) {
        let turns = warm.as_ref().map_or_else(|| turns_in(&item.history), |entry| entry.turns);
        let (version, history_error) = (item.version, item.history_error);
        return Decision::Fail(PoisonedTurn { state, version, messages, history_error, turns });
    }
    if let Some(error) = item.history_error {
        tracing::warn!(target: "everturn::runtime", instance_id = %locked.instance,
            execution_id = %locked.execution_id, attempt_count = locked.attempt_count, %error,
            "history cannot be read; abandoning the lock, the messages are tried again");
        return Decision::GiveBack { delay: Some(RETRY_DELAY), ignore_attempt: false };
    }
    let split = split_messages(&locked.instance, messages, &notes, &state);
    decide_by_state(locked, item, split, warm, state)
}

/// Decides by the state of the execution and the starts among the messages.
fn decide_by_state(
    locked: &LockedInstance<'_>,
    item: OrchestrationItem,
    split: SplitMessages,
    warm: Option<WarmEntry>,
    state: ExecutionState,
) -> Decision {
    log_ignored(locked, &split);
    let is_successor = split.start.as_ref().is_some_and(ExecutionStart::is_successor);
    match state.end {
        Some(RecordedEnd::Terminal) => {
            let notices = ignored_start_notices(&locked.instance, &split.ignored, true, None);
            return Decision::Acknowledge { notices };
        }
        Some(RecordedEnd::ContinuedAsNew) if !is_successor => {
            tracing::debug!(target: "everturn::runtime", instance_id = %locked.instance,
                execution_id = %locked.execution_id,
                "continue-as-new successor start not visible yet; abandoning the lock");
            let delay = locked.node.options.unregistered_backoff.delay(locked.attempt_count);
            return Decision::GiveBack { delay: Some(delay), ignore_attempt: false };
        }
        Some(RecordedEnd::ContinuedAsNew) | None => {}
    }
    let running_for = caller(split.start.as_ref(), &state);
    let notices = ignored_start_notices(&locked.instance, &split.ignored, false, running_for);
    if let Some(entry) = warm {
        return Decision::Run(ReadyTurn { entry, was_warm: true, messages: split.messages, notices });
    }
    let Some((name, version)) = orchestration_of(split.start.as_ref(), &state, &item) else {
        return acknowledge_unknown_instance(locked, notices);
    };
    let handler = resolve_handler(&locked.node.orchestrations, &name, version.as_deref());
    let Some((version, handler)) = handler else {
        return give_back_unregistered(locked, &name, version.as_deref());
    };
    let execution_id = locked.execution_id.saturating_add(u64::from(is_successor));
    let identity = ExecutionIdentity {
        instance: locked.instance.clone(),
        execution_id,
        orchestration_name: name,
        orchestration_version: version,
    };
    let entry = begin_execution(locked, identity, handler, item, split.start, state.start);
    Decision::Run(ReadyTurn { entry, was_warm: false, messages: split.messages, notices })
}

fn log_ignored(locked: &LockedInstance<'_>, split: &SplitMessages) {
    for start in &split.ignored {
        tracing::warn!(target: "everturn::runtime", instance_id = %locked.instance,
            execution_id = %locked.execution_id, orchestration_name = %start.name,
            "start of an existing instance ignored");
    }
    for call in &split.ignored_cancels {
        tracing::warn!(target: "everturn::runtime", instance_id = %locked.instance,
            execution_id = %locked.execution_id, parent_instance = %call.instance, parent_id = call.schedule_id,
            "cancellation by a parent ignored: its call did not start this instance");
    }
}

fn is_poisoned(locked: &LockedInstance<'_>) -> bool {
    is_poison(locked.attempt_count, locked.node.options.max_attempts)
}

/// The engine version that an execution is pinned to, if this runtime cannot replay it. An execution that no runtime
/// supports ends as poison when its attempts are used up.
fn unsupported_version(locked: &LockedInstance<'_>, history: &[Event]) -> Option<Version> {
    if is_poisoned(locked) {
        return None;
    }
    let start = history.iter().find(|event| matches!(event.kind, EventKind::OrchestrationStarted { .. }))?;
    let pinned = Version::parse(&start.engine_version).ok()?;
    (!locked.node.filter.is_compatible(&pinned)).then_some(pinned)
}

fn give_back_unsupported_version(locked: &LockedInstance<'_>, pinned: &Version) -> Decision {
    tracing::warn!(target: "everturn::runtime", instance_id = %locked.instance, pinned_version = %pinned,
        supported_range = %locked.node.supported_range_text(), attempt_count = locked.attempt_count,
        "execution pinned to an incompatible version; abandoning the lock, a runtime that supports it must run");
    Decision::GiveBack { delay: Some(RETRY_DELAY), ignore_attempt: false }
}

/// Drops messages for an instance that was never started.
fn acknowledge_unknown_instance(locked: &LockedInstance<'_>, notices: Vec<WorkItem>) -> Decision {
    tracing::warn!(target: "everturn::runtime", instance_id = %locked.instance,
        "messages for an instance that was never started are dropped");
    Decision::Acknowledge { notices }
}

/// Leaves an instance without a registered handler to a node that has it.
fn give_back_unregistered(locked: &LockedInstance<'_>, name: &str, version: Option<&str>) -> Decision {
    let options = &locked.node.options;
    let backoff = options.unregistered_backoff.delay(locked.attempt_count);
    tracing::warn!(
        target: "everturn::runtime",
        instance_id = %locked.instance,
        execution_id = %locked.execution_id,
        orchestration_name = %name,
        orchestration_version = %version.unwrap_or("latest"),
        worker_id = %locked.worker_id,
        attempt_count = locked.attempt_count,
        max_attempts = options.max_attempts,
        remaining_attempts = options.max_attempts.saturating_sub(locked.attempt_count),
        backoff_secs = backoff.as_secs_f64(),
        "Orchestration not registered, abandoning its lock"
    );
    let handler = HandlerKey::orchestration(name, version.map(str::to_owned));
    Decision::LeaveToOthers { delay: backoff, handler }
}

/// Name and version of the orchestration to run; `None` if neither a message nor the store names one.
fn orchestration_of(
    start: Option<&ExecutionStart>,
    state: &ExecutionState,
    item: &OrchestrationItem,
) -> Option<(String, Option<String>)> {
    let (name, version) = match (start, &state.start) {
        (Some(start), _) => return Some((start.name.clone(), start.version.clone())),
        (None, Some(recorded)) => (recorded.name.clone(), recorded.version.clone()),
        // A history without its beginning; replay records that as the failure.
        (None, None) if state.has_history && !item.orchestration_name.is_empty() => {
            (item.orchestration_name.clone(), Some(item.version.clone()))
        }
        (None, None) => return None,
    };
    Some((name, version.filter(|version| version != NO_VERSION)))
}

/// The version and handler to run: the exact version if one is named, else the one that the registry's policy chooses.
#[inline]
pub(super) fn resolve_handler(
    registry: &OrchestrationRegistry,
    name: &str,
    version: Option<&str>,
) -> Option<(String, OrchestrationHandlerRef)> {
    match version {
        Some(text) => {
            let version = Version::parse(text).ok()?;
            Some((text.to_owned(), registry.resolve_handler_exact(name, &version)?))
        }
        None => registry.resolve_handler(name).map(|(version, handler)| (version.to_string(), handler)),
    }
}

/// Makes the execution: a new one from its start message, or the stored one from its history.
fn begin_execution(
    locked: &LockedInstance<'_>,
    identity: ExecutionIdentity,
    handler: OrchestrationHandlerRef,
    item: OrchestrationItem,
    start: Option<ExecutionStart>,
    recorded: Option<Arc<ExecutionStart>>,
) -> WarmEntry {
    let node = locked.node;
    let execution_id = identity.execution_id;
    let (name, version) = (identity.orchestration_name.clone(), identity.orchestration_version.clone());
    let payload_bytes_max = node.store.limits().payload_bytes_max;
    let kv = item.kv_snapshot;
    let kv_at_start = (node.options.shadow_replay != ShadowReplay::Off).then(|| kv.clone());
    let (execution, start, turns) = match start {
        Some(start) => {
            let event = start.to_event(&locked.instance, execution_id, &version, node.clock().wall_ms());
            let execution = Execution::begin(handler, identity, event, kv, payload_bytes_max);
            (execution, Arc::new(ExecutionStart::recorded(name, version, start.parent)), 0)
        }
        None => {
            let recorded =
                recorded.unwrap_or_else(|| Arc::new(ExecutionStart::recorded(name, version, None)));
            let turns = turns_in(&item.history);
            (Execution::replay(handler, identity, item.history, kv, payload_bytes_max), recorded, turns)
        }
    };
    let mut entry = WarmEntry::new(
        Box::new(execution),
        execution_id,
        node.new_stamp(),
        start,
        node.deferred_drops.clone(),
    );
    entry.turns = turns;
    entry.kv_at_start = kv_at_start;
    entry
}
