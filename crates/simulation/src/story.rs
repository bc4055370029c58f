//! What a world did, turn by turn: which messages an instance was given, and what it wrote.

use std::collections::HashMap;

use everturn::Event;
use everturn::providers::{FetchedTurn, TurnCommit, WorkItem};

/// A turn that was committed.
#[derive(Debug, Clone)]
pub(crate) struct ToldTurn {
    pub(crate) instance: String,
    pub(crate) execution_id: u64,
    pub(crate) messages: Vec<WorkItem>,
    /// Whether the instance was in memory.
    pub(crate) was_warm: bool,
    /// What it wrote.
    pub(crate) events: Vec<Event>,
}

/// All turns in the order of their commits.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// By token: what was handed out and is not committed yet.
    in_hand: HashMap<String, ToldTurn>,
    pub(crate) turns: Vec<ToldTurn>,
}

impl Story {
    pub(crate) fn fetched(&mut self, turn: &FetchedTurn) {
        let told = ToldTurn {
            instance: turn.item.instance.clone(),
            execution_id: turn.item.execution_id,
            messages: turn.item.messages.clone(),
            was_warm: turn.warm.is_some(),
            events: Vec::new(),
        };
        self.in_hand.insert(turn.lock_token.clone(), told);
    }

    pub(crate) fn committed(&mut self, commit: &TurnCommit) {
        if let Some(told) = self.in_hand.remove(&commit.lock_token) {
            let (execution_id, events) = (commit.execution_id, commit.history_delta.clone());
            self.turns.push(ToldTurn { execution_id, events, ..told });
        }
    }
}
