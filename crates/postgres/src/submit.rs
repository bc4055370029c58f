//! `submit`: what clients send is put into the orchestrator queue.

use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::encoded::{StoredMessage, length_ms, stored_ms};
use everturn_provider::store::{Receipt, Submission};

use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::orchestrator_queue;
use crate::text::check_message;
use crate::unit_of_work::UnitOfWork;

/// Puts messages into the queue, all of them or none.
pub(crate) struct Submit {
    messages: Vec<(StoredMessage, Option<Duration>)>,
}

impl Submit {
    pub(crate) fn encode(submission: &Submission) -> Result<Self, ProviderError> {
        let encode = |message| {
            let stored = StoredMessage::encode(Self::NAME, message)?;
            check_message(Self::NAME, &stored)?;
            Ok((stored, message.delay))
        };
        let messages = submission.messages.iter().map(encode).collect::<Result<Vec<_>, ProviderError>>()?;
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

    fn needs(&self, needs: &mut Needs) {
        for (message, _) in &self.messages {
            if message.is_cancel {
                needs.ids.insert(message.instance_id.clone());
            } else {
                needs.receiver(&message.instance_id);
            }
            if let Some(timer) = message.timer {
                needs.executions_by_id.push((message.instance_id.clone(), timer.execution_id));
            }
        }
        needs.new_messages += self.messages.len();
    }

    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<Vec<Receipt>, ProviderError> {
        if run == Run::Again {
            let message = "the connection was lost while the messages were stored; they may be in the queue";
            return Err(ProviderError::retryable("", message));
        }
        let now_ms = unit.now_ms;
        let receipts = self.messages.iter().map(|(message, delay)| {
            let after = |delay: Duration| now_ms.saturating_add(stored_ms(length_ms(delay)));
            orchestrator_queue::insert(unit, message, delay.map(after))
        });
        Ok(receipts.collect())
    }
}
