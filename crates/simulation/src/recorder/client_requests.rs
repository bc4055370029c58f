//! What committed events ask clients to do.

use everturn::{Event, EventKind, INITIAL_EXECUTION_ID};

use crate::interpreter::Stage;
use crate::names::{self, Wish};
use crate::program::{Combinator, ProgramAction, Racer, Step};

/// Something that clients have to do after a turn was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientRequest {
    /// Send this signal.
    Signal { instance: String, name: String },
    /// Send this many messages.
    Messages { instance: String, queue: String, count: u32 },
    /// Cancel this instance.
    Cancel { instance: String },
}

/// What an event asks clients to do.
pub(super) fn requests_of(event: &Event) -> Vec<ClientRequest> {
    let instance = event.instance_id.clone();
    match &event.kind {
        EventKind::ExternalSubscribed { name } => match names::wish(name) {
            Wish::Signal => vec![ClientRequest::Signal { instance, name: name.clone() }],
            Wish::Cancel { instance } => vec![ClientRequest::Cancel { instance: instance.to_owned() }],
            Wish::Nothing => Vec::new(),
        },
        EventKind::OrchestrationStarted { input, .. } if event.execution_id == INITIAL_EXECUTION_ID => {
            let Ok(stage) = Stage::decode(input) else { return Vec::new() };
            let queues = stage.program.steps.into_iter().filter_map(|Step { key, action }| match action {
                ProgramAction::Queue { messages } => {
                    Some(ClientRequest::Messages { instance: instance.clone(), queue: key, count: messages })
                }
                ProgramAction::OpenRace { against: Racer::Queue, .. }
                | ProgramAction::Combined { by: Combinator::GivenUpRead, .. } => {
                    Some(ClientRequest::Messages { instance: instance.clone(), queue: key, count: 1 })
                }
                _ => None,
            });
            queues.collect()
        }
        _ => Vec::new(),
    }
}
