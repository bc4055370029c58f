//! Replaying a warm turn from storage, to find code that is not deterministic before a restart does.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use everturn_core::turn::{Execution, ExecutionIdentity, Turn};
use everturn_core::{ErrorDetails, Event, EventKind, KvEntry, WorkItem};

use super::super::node::Node;
use super::super::options::ShadowReplay;
use super::super::warm_cache::WarmEntry;
use super::claim::Claim;
use super::standing::StartFacts;
use super::turn_run::NodeTime;
use super::unregistered;

/// Whether this warm turn is to be compared.
pub(crate) fn is_due(node: &Node) -> bool {
    match node.options.shadow_replay {
        ShadowReplay::Off | ShadowReplay::OneIn(0) => false,
        ShadowReplay::Always => true,
        ShadowReplay::OneIn(turns) => node.clock().random_u128().is_multiple_of(u128::from(turns)),
    }
}

/// The engine itself panicked in a replay: code that panics is an outcome like any other.
struct Panicked;

/// What a warm turn was given.
pub(crate) struct WarmTurn {
    execution_id: u64,
    facts: Arc<StartFacts>,
    kv_at_start: HashMap<String, KvEntry>,
    messages: Vec<WorkItem>,
}

impl WarmTurn {
    pub(crate) fn new(entry: &WarmEntry, messages: Vec<WorkItem>) -> Self {
        Self {
            execution_id: entry.execution_id,
            facts: Arc::clone(&entry.facts),
            kv_at_start: entry.kv_at_start.clone().unwrap_or_default(),
            messages,
        }
    }

    /// Takes the same turn on the stored history; the failure to record if it decides otherwise.
    pub(crate) async fn differs(self, claim: &Claim<'_>, warm: &Turn) -> Option<ErrorDetails> {
        let store = claim.node.store.as_ref();
        let history = match store.read_with_execution(&claim.instance, self.execution_id).await {
            Ok(history) => history,
            Err(error) => {
                tracing::warn!(target: "everturn::runtime", instance_id = %claim.instance, %error,
                    "history could not be read, the turn is not compared");
                return None;
            }
        };
        let difference = match self.replay(claim, history)? {
            Ok(cold) => difference(&warm.history_delta, &cold.history_delta)?,
            Err(Panicked) => "the replay panicked".to_owned(),
        };
        Some(ErrorDetails::nondeterminism(format!(
            "a turn taken in memory differs from its replay: {difference}"
        )))
    }

    /// The turn as it is replayed; `None` if its code is not here any more.
    fn replay(self, claim: &Claim<'_>, history: Vec<Event>) -> Option<Result<Turn, Panicked>> {
        let node = claim.node;
        let StartFacts { name, version, .. } = &*self.facts;
        let (_, handler) = unregistered::resolve(&node.orchestrations, name, Some(version))?;
        let identity = ExecutionIdentity {
            instance: claim.instance.clone(),
            execution_id: self.execution_id,
            orchestration_name: name.clone(),
            orchestration_version: version.clone(),
        };
        let payload_bytes_max = node.store.payload_bytes_max();
        let mut execution =
            Execution::replay(handler, identity, history, self.kv_at_start, payload_bytes_max);
        let turn = catch_unwind(AssertUnwindSafe(|| execution.take_turn(self.messages, &NodeTime(node))));
        node.graveyard.bury(Box::new(execution));
        Some(turn.map_err(|_| Panicked))
    }
}

/// The first place where two turns' events differ, times apart.
fn difference(warm: &[Event], cold: &[Event]) -> Option<String> {
    let longest = warm.len().max(cold.len());
    (0..longest).find_map(|position| {
        let [in_memory, replayed] =
            [warm.get(position), cold.get(position)].map(|event| event.map(without_times));
        (in_memory != replayed).then(|| format!("in memory {in_memory:?}, replayed {replayed:?}"))
    })
}

fn without_times(event: &Event) -> (u64, Option<u64>, EventKind) {
    let mut kind = event.kind.clone();
    match &mut kind {
        EventKind::TimerCreated { fire_at_ms } => *fire_at_ms = 0,
        EventKind::KeyValueSet { last_updated_at_ms, .. } => *last_updated_at_ms = 0,
        _ => {}
    }
    (event.event_id, event.source_event_id, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, timestamp_ms: u64, kind: EventKind) -> Event {
        Event::stamped(id, "i", 1, None, timestamp_ms, kind)
    }

    #[test]
    fn times_are_no_difference() {
        let warm = [event(2, 1, EventKind::TimerCreated { fire_at_ms: 5 })];
        let cold = [event(2, 9, EventKind::TimerCreated { fire_at_ms: 6 })];
        assert_eq!(difference(&warm, &cold), None);
    }

    #[test]
    fn another_kind_or_a_missing_event_is_one() {
        let timer = event(2, 1, EventKind::TimerCreated { fire_at_ms: 5 });
        let wait = event(2, 1, EventKind::ExternalSubscribed { name: "x".into() });
        assert!(difference(std::slice::from_ref(&timer), &[wait]).is_some());
        assert!(difference(std::slice::from_ref(&timer), &[]).is_some());
        assert!(difference(&[], &[timer]).is_some());
    }
}
