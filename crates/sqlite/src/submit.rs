//! `enqueue_for_orchestrator`: a message from a client.

use std::time::Duration;

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue::{self, StoredMessage};

/// Puts a message into the orchestrator queue.
pub(crate) struct Submit {
    pub(crate) message: StoredMessage,
    pub(crate) delay: Option<Duration>,
}

impl Verb for Submit {
    type Answer = ();
    const NAME: &'static str = "enqueue_for_orchestrator";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn payload_bytes(&self) -> usize {
        self.message.work_item.len()
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let visible_at_ms = self.delay.map(|delay| scope.now.wall_after(delay));
        orchestrator_queue::insert(scope, &self.message, visible_at_ms)
    }
}
