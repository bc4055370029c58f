//! Actions: what orchestration code asks the engine for.

use std::panic::Location;

/// One request of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Activity { name: String, input: String, session_id: Option<String>, tag: Option<String> },
    Timer { fire_at_ms: u64 },
    Wait { name: String },
    Dequeue { name: String },
    SubOrchestration { name: String, version: Option<String>, instance: Option<String>, input: String },
    StartDetached { name: String, version: Option<String>, instance: String, input: String },
    SetCustomStatus { status: Option<String> },
    SetKv { key: String, value: String, last_updated_at_ms: u64 },
    ClearKv { key: String },
    ClearAllKv,
    ContinueAsNew { input: String, version: Option<String> },
}

/// An action with the token of its future and the source location of the call.
#[derive(Debug, Clone)]
pub(crate) struct EmittedAction {
    pub(crate) token: u64,
    pub(crate) action: Action,
    pub(crate) location: &'static Location<'static>,
}
