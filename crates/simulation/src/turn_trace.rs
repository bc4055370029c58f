//! All turns of a world: which messages an instance got, and what it wrote.

use std::collections::HashMap;

use everturn::Event;
use everturn::providers::WorkItem;
use everturn::providers::store::{FetchedTurn, MessageNotes, StepCommit, TurnCommit};

/// A turn that was committed.
#[derive(Debug, Clone)]
pub(crate) struct TracedTurn {
    pub(crate) instance: String,
    pub(crate) execution_id: u64,
    pub(crate) messages: Vec<WorkItem>,
    /// The notes of the messages, which tell a parent's cancellation from that of a stranger.
    pub(crate) notes: Vec<MessageNotes>,
    /// Whether the instance was in memory.
    pub(crate) was_warm: bool,
    /// What it wrote.
    pub(crate) events: Vec<Event>,
}

/// All turns in the order of their commits.
#[derive(Debug, Default)]
pub(crate) struct TurnTrace {
    /// Turns that were fetched and are not committed yet, by token.
    fetched: HashMap<String, TracedTurn>,
    pub(crate) turns: Vec<TracedTurn>,
}

impl TurnTrace {
    pub(crate) fn fetched(&mut self, turn: &FetchedTurn) {
        let traced = TracedTurn {
            instance: turn.item.instance.clone(),
            execution_id: turn.item.execution_id,
            messages: turn.item.messages.clone(),
            notes: turn.notes.clone(),
            was_warm: turn.warm.is_some(),
            events: Vec::new(),
        };
        self.fetched.insert(turn.lock_token.clone(), traced);
    }

    /// A fused step was committed: the turn took these messages.
    pub(crate) fn stepped(&mut self, step: &StepCommit, messages: Vec<WorkItem>) {
        self.turns.push(TracedTurn {
            instance: step.instance.clone(),
            execution_id: step.turn.execution_id,
            notes: vec![MessageNotes::default(); messages.len()],
            messages,
            was_warm: true,
            events: step.turn.history_delta.clone(),
        });
    }

    pub(crate) fn committed(&mut self, commit: &TurnCommit) {
        if let Some(fetched) = self.fetched.remove(&commit.lock_token) {
            let (execution_id, events) = (commit.execution_id, commit.history_delta.clone());
            self.turns.push(TracedTurn { execution_id, events, ..fetched });
        }
    }
}
