//! The way of a fetched instance to its turn, in the order that the contract gives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::turn::{Execution, ExecutionIdentity};
use everturn_core::{Event, EventKind, KvEntry, OrchestrationHandlerRef, WorkItem};
use everturn_provider::{FetchedTurn, OrchestrationItem};
use semver::Version;

use super::super::node::Node;
use super::super::options::ShadowReplay;
use super::super::warm_cache::{Lent, WarmEntry};
use super::batch::{self, SplitBatch, StartItem};
use super::claim::{self, Claim};
use super::standing::{End, Standing, StartFacts, start_facts, turns_in};
use super::start_event::start_event;
use super::turn_run::{self, PreparedTurn};
use super::{collision, refusal, unregistered};

/// How long an instance waits that this runtime can do nothing with for now.
const SET_ASIDE: Duration = Duration::from_secs(1);
/// History that names this version was written without one.
const NO_VERSION: &str = "0.0.0";

/// What was fetched beside the claim.
struct Material {
    orchestration_name: String,
    version: String,
    history: Vec<Event>,
    kv_snapshot: HashMap<String, KvEntry>,
    warm: Option<WarmEntry>,
    standing: Standing,
}

/// Takes a fetched instance to its end: a committed turn, or given back.
pub(crate) async fn process(node: &Node, worker_id: &str, fetched: FetchedTurn) {
    let FetchedTurn { item, lock_token, attempt_count, warm, stamp } = fetched;
    // An execution that no runtime supports ends as poison when its attempts are used up, further below.
    if attempt_count <= node.options.max_attempts
        && let Some(pinned) = unsupported_version(node, &item.history)
    {
        tracing::warn!(target: "everturn::runtime", instance = %item.instance, pinned_version = %pinned,
            supported_range = %node.supported_range_text(), attempt_count,
            "execution pinned to an incompatible version, giving it back");
        claim::abandon(node, &lock_token, Some(SET_ASIDE), false).await;
        return;
    }
    let was_lent = warm.is_some();
    let warm = warm.and_then(|lent| lent.take::<Lent>()).and_then(Lent::into_entry);
    let OrchestrationItem {
        instance,
        orchestration_name,
        execution_id,
        version,
        history,
        messages,
        history_error,
        kv_snapshot,
    } = item;
    let claim = Claim::new(node, worker_id, (instance, execution_id), (lock_token, attempt_count), stamp);
    let has_successor = messages.iter().any(|message| matches!(message, WorkItem::ContinueAsNew { .. }));
    if was_lent && (warm.is_none() || has_successor) {
        // Memory does not have what this turn needs; the next fetch brings the history.
        drop(warm);
        claim.abandon(None, true).await;
        return;
    }
    let standing = match &warm {
        Some(entry) => Standing::warm(&entry.facts, entry.execution().map_or(0, Execution::last_event_id)),
        None => Standing::of(&history),
    };
    let material = Material { orchestration_name, version, history, kv_snapshot, warm, standing };
    if attempt_count > node.options.max_attempts && material.standing.end != Some(End::Terminal) {
        refusal::poison(
            claim,
            &material.standing,
            &material.version,
            messages,
            history_error.as_deref(),
            material.warm.as_ref().map_or_else(|| turns_in(&material.history), |entry| entry.turns),
        )
        .await;
        return;
    }
    if let Some(error) = history_error {
        tracing::warn!(target: "everturn::runtime", instance_id = %claim.instance,
            execution_id = %claim.execution_id, attempt_count, %error,
            "history cannot be read, giving the instance back");
        claim.abandon(Some(SET_ASIDE), false).await;
        return;
    }
    let split = batch::split(&claim.instance, messages, material.standing.has_history);
    advance(claim, material, split).await;
}

/// The version in the start event, if this runtime cannot replay it.
fn unsupported_version(node: &Node, history: &[Event]) -> Option<Version> {
    let start = history.iter().find(|event| matches!(event.kind, EventKind::OrchestrationStarted { .. }))?;
    let pinned = Version::parse(&start.engine_version).ok()?;
    (!node.filter.is_compatible(&pinned)).then_some(pinned)
}

/// Decides by where the instance stands and what came for it.
async fn advance(claim: Claim<'_>, material: Material, split: SplitBatch) {
    for ignored in &split.ignored {
        tracing::warn!(target: "everturn::runtime", instance_id = %claim.instance,
            execution_id = %claim.execution_id, orchestration_name = %ignored.orchestration,
            "start of an existing instance ignored");
    }
    let is_successor = split.start.as_ref().is_some_and(StartItem::is_successor);
    match material.standing.end {
        Some(End::Terminal) => {
            let notices = collision::notices(&claim.instance, &split.ignored, true, None);
            claim.acknowledge(notices).await;
            return;
        }
        Some(End::ContinuedAsNew) if !is_successor => {
            let delay = claim.node.options.unregistered_backoff.delay(claim.attempt_count);
            tracing::debug!(target: "everturn::runtime", instance_id = %claim.instance,
                execution_id = %claim.execution_id, "CAN successor start not visible, giving the batch back");
            claim.abandon(Some(delay), false).await;
            return;
        }
        _ => {}
    }
    let running_for = match &split.start {
        Some(start) => start.parent.as_ref(),
        None => material.standing.parent(),
    };
    let notices = collision::notices(&claim.instance, &split.ignored, false, running_for);
    let execution_id = if is_successor { claim.execution_id.saturating_add(1) } else { claim.execution_id };
    let (entry, was_warm) = match material.warm {
        Some(entry) => (entry, true),
        None => match begin(&claim, execution_id, material, split.start.as_ref()) {
            Begun::Entry(entry) => (entry, false),
            Begun::NothingToRun => {
                tracing::warn!(target: "everturn::runtime", instance_id = %claim.instance,
                    "messages for an instance that was never started are dropped");
                claim.acknowledge(notices).await;
                return;
            }
            Begun::Unregistered { name, version } => {
                unregistered::give_back(claim, &name, version.as_deref()).await;
                return;
            }
        },
    };
    let prepared = PreparedTurn { entry, was_warm, messages: split.messages, notices };
    turn_run::run(claim, prepared).await;
}

/// What became of an execution that is not in memory.
enum Begun {
    Entry(WarmEntry),
    NothingToRun,
    Unregistered { name: String, version: Option<String> },
}

/// Makes the execution: a new one from its start message, or the stored one from its history.
fn begin(claim: &Claim<'_>, execution_id: u64, material: Material, start: Option<&StartItem>) -> Begun {
    let (name, version) = match (start, &material.standing.started) {
        (Some(start), _) => (start.orchestration.clone(), start.version.clone()),
        (None, Some(facts)) => (facts.name.clone(), Some(facts.version.clone())),
        // A history without its beginning; replay says so.
        (None, None) if material.standing.has_history && !material.orchestration_name.is_empty() => {
            (material.orchestration_name.clone(), Some(material.version.clone()))
        }
        (None, None) => return Begun::NothingToRun,
    };
    let version = if start.is_some() { version } else { version.filter(|version| version != NO_VERSION) };
    let Some((resolved, handler)) =
        unregistered::resolve(&claim.node.orchestrations, &name, version.as_deref())
    else {
        return Begun::Unregistered { name, version };
    };
    Begun::Entry(make(claim, execution_id, material, start, (name, resolved, handler)))
}

fn make(
    claim: &Claim<'_>,
    execution_id: u64,
    material: Material,
    start: Option<&StartItem>,
    (name, version, handler): (String, String, OrchestrationHandlerRef),
) -> WarmEntry {
    let node = claim.node;
    let identity = ExecutionIdentity {
        instance: claim.instance.clone(),
        execution_id,
        orchestration_name: name.clone(),
        orchestration_version: version.clone(),
    };
    let payload_bytes_max = node.store.payload_bytes_max();
    let kv = material.kv_snapshot;
    let kv_at_start = (node.options.shadow_replay != ShadowReplay::Off).then(|| kv.clone());
    let unknown_start = || StartFacts { name: name.clone(), version: version.clone(), parent: None };
    let (execution, facts, turns) = match start {
        Some(start) => {
            let event = start_event(&claim.instance, execution_id, &version, node.clock().wall_ms(), start);
            let facts = start_facts(&event).unwrap_or_else(unknown_start);
            (Execution::begin(handler, identity, event, kv, payload_bytes_max), facts, 0)
        }
        None => {
            let facts = material.standing.started.unwrap_or_else(unknown_start);
            let turns = turns_in(&material.history);
            (Execution::replay(handler, identity, material.history, kv, payload_bytes_max), facts, turns)
        }
    };
    let mut entry = WarmEntry::new(
        Box::new(execution),
        execution_id,
        node.new_stamp(),
        Arc::new(facts),
        node.graveyard.clone(),
    );
    entry.turns = turns;
    entry.kv_at_start = kv_at_start;
    entry
}
