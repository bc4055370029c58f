//! Replaying a warm turn from the stored history, to find nondeterministic code before a restart does.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use everturn_core::turn::{Execution, ExecutionIdentity, Turn};
use everturn_core::{ErrorDetails, Event, KvEntry, WorkItem};
use everturn_provider::store::{ExecutionRead, Stamp};
use tokio::sync::SemaphorePermit;

use super::super::node::Node;
use super::super::options::ShadowReplay;
use super::super::warm_cache::WarmEntry;
use super::decision::resolve_handler;
use super::execution_start::ExecutionStart;
use super::run_turn::take_turn;

/// Returns true if the next warm turn is to be compared with its replay.
pub(super) fn is_due(node: &Node) -> bool {
    match node.options.shadow_replay {
        ShadowReplay::Off | ShadowReplay::OneIn(0) => false,
        ShadowReplay::Always => true,
        ShadowReplay::OneIn(turns) => node.clock().random_u128().is_multiple_of(u128::from(turns)),
    }
}

/// What a warm turn was given, to take it again.
pub(super) struct ShadowedTurn {
    execution_id: u64,
    start: Arc<ExecutionStart>,
    kv_at_start: HashMap<String, KvEntry>,
    messages: Vec<WorkItem>,
}

impl ShadowedTurn {
    pub(super) fn new(entry: &WarmEntry, messages: Vec<WorkItem>) -> Self {
        Self {
            execution_id: entry.execution_id,
            start: Arc::clone(&entry.start),
            kv_at_start: entry.kv_at_start.clone().unwrap_or_default(),
            messages,
        }
    }

    /// Takes the same turn on the stored history, with the permit that `permit` brings. A turn without a lock names the `base`
    /// that it builds on.
    pub(super) async fn difference<'a>(
        self,
        node: &'a Node,
        instance: &str,
        base: Option<Stamp>,
        warm: &Turn,
        permit: impl Future<Output = Option<SemaphorePermit<'a>>>,
    ) -> ReplayComparison {
        let read = ExecutionRead::of(instance, self.execution_id).with_stamp(base.is_some());
        let history = match node.store.read_execution(&read).await {
            Ok(execution) if base.is_some() && execution.stamp != base => {
                return ReplayComparison::NotPossible;
            }
            Ok(execution) => execution.history,
            Err(error) => {
                tracing::warn!(target: "everturn::runtime", instance_id = %instance, %error,
                    "reading the history for a shadow replay failed; this turn is not compared");
                return ReplayComparison::Same;
            }
        };
        let version = self.start.version_text();
        let Some((_, handler)) = resolve_handler(&node.orchestrations, &self.start.name, Some(version))
        else {
            return ReplayComparison::Same;
        };
        let identity = ExecutionIdentity {
            instance: instance.to_owned(),
            execution_id: self.execution_id,
            orchestration_name: self.start.name.clone(),
            orchestration_version: version.to_owned(),
        };
        let payload_bytes_max = node.store.limits().payload_bytes_max;
        let mut execution =
            Execution::replay(handler, identity, history, self.kv_at_start, payload_bytes_max);
        let Some(permit) = permit.await else { return ReplayComparison::NotPossible };
        let replayed = take_turn(Some(permit), &mut execution, self.messages, node).await;
        node.deferred_drops.drop_later(Box::new(execution));
        let difference = match replayed {
            Ok(cold) => first_difference(&warm.history_delta, &cold.history_delta),
            // Code that panics is an outcome like any other, so this is a panic of the engine itself.
            Err(_panic) => Some("the replay panicked".to_owned()),
        };
        match difference {
            Some(difference) => ReplayComparison::Different(ErrorDetails::nondeterminism(format!(
                "a turn taken in memory differs from its replay: {difference}"
            ))),
            None => ReplayComparison::Same,
        }
    }
}

/// How a turn in memory compares with its replay.
pub(super) enum ReplayComparison {
    /// Both decide the same, or the turn is not compared.
    Same,
    /// The replay decides otherwise: the failure to record.
    Different(ErrorDetails),
    /// The stored history is not the one that the turn builds on, or no turn may run now.
    NotPossible,
}

impl ReplayComparison {
    /// The failure to record, if the replay decides otherwise.
    pub(super) fn found(self) -> Option<ErrorDetails> {
        match self {
            Self::Different(details) => Some(details),
            Self::Same | Self::NotPossible => None,
        }
    }
}

/// The first place where the events of two turns differ, apart from their times.
fn first_difference(warm: &[Event], cold: &[Event]) -> Option<String> {
    let longest = warm.len().max(cold.len());
    (0..longest).find_map(|position| {
        let [in_memory, replayed] =
            [warm.get(position), cold.get(position)].map(|event| event.map(Event::without_times));
        (in_memory != replayed).then(|| format!("in memory {in_memory:?}, replayed {replayed:?}"))
    })
}

#[cfg(test)]
mod tests {
    use everturn_core::EventKind;

    use super::*;

    fn event(id: u64, timestamp_ms: u64, kind: EventKind) -> Event {
        Event::stamped(id, "i", 1, None, timestamp_ms, kind)
    }

    #[test]
    fn times_are_no_difference() {
        let warm = [event(2, 1, EventKind::TimerCreated { fire_at_ms: 5 })];
        let cold = [event(2, 9, EventKind::TimerCreated { fire_at_ms: 6 })];
        assert_eq!(first_difference(&warm, &cold), None);
    }

    #[test]
    fn another_kind_or_a_missing_event_is_one() {
        let timer = event(2, 1, EventKind::TimerCreated { fire_at_ms: 5 });
        let wait = event(2, 1, EventKind::ExternalSubscribed { name: "x".into() });
        assert!(first_difference(std::slice::from_ref(&timer), &[wait]).is_some());
        assert!(first_difference(std::slice::from_ref(&timer), &[]).is_some());
        assert!(first_difference(&[], &[timer]).is_some());
    }
}
