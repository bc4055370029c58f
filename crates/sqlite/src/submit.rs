//! `submit`: messages from clients enter the orchestrator queue.

use everturn_provider::encoded::StoredMessage;
use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::{Receipt, Submission};

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;

/// Puts messages into the orchestrator queue, all or none.
pub(crate) struct Submit {
    /// Each with how long it stays invisible.
    messages: Vec<(StoredMessage, Option<Duration>)>,
}

impl Submit {
    /// Encodes the messages; refuses an activity.
    pub(crate) fn encode(submission: &Submission) -> Result<Self, ProviderError> {
        let messages = submission.messages.iter();
        let messages = messages
            .map(|message| Ok((StoredMessage::encode(Self::NAME, message)?, message.delay)))
            .collect::<Result<_, ProviderError>>()?;
        Ok(Self { messages })
    }
}

impl Verb for Submit {
    type Answer = Vec<Receipt>;
    const NAME: &'static str = "submit";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn payload_bytes(&self) -> usize {
        self.messages.iter().map(|(message, _)| message.work_item.len()).sum()
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<Vec<Receipt>, VerbFailure> {
        let messages = self.messages.iter();
        let receipts = messages.map(|(message, delay)| {
            let visible_at_ms = delay.map(|delay| scope.now.wall_after(delay));
            orchestrator_queue::insert(scope, message, visible_at_ms)
        });
        receipts.collect()
    }
}
