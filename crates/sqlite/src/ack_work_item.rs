//! `ack_work_item`: the activity goes, its completion comes.

use everturn_core::{Bug, WorkItem, planted};
use everturn_provider::ProviderError;

use crate::inbox::{self, Message};
use crate::locks::{self, row_of, unknown_token};
use crate::moment::Moment;
use crate::operation::{Failure, Order, Scope, Verb};
use crate::sessions;

/// Removes an activity and enqueues its completion.
pub(crate) struct AckWorkItem {
    token: String,
    completion: Option<Message>,
    called: Moment,
}

impl AckWorkItem {
    /// Encodes the completion; refuses anything that is none.
    pub(crate) fn encode(
        token: &str,
        completion: Option<&WorkItem>,
        called: Moment,
    ) -> Result<Self, ProviderError> {
        let completion = match completion {
            None => None,
            Some(item @ (WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })) => {
                Some(Message::encode(Self::NAME, item)?)
            }
            Some(other) => {
                return Err(ProviderError::permanent(
                    Self::NAME,
                    format!("a {} is not the completion of an activity", everturn_core::kind_of(other)),
                ));
            }
        };
        Ok(Self { token: token.to_owned(), completion, called })
    }
}

const DELETE_ACTIVITY: &str = "DELETE FROM worker_queue WHERE seq = ?1";

impl Verb for AckWorkItem {
    type Answer = ();
    const NAME: &'static str = "ack_work_item";
    const ORDER: Order = Order::Holder;

    fn payload_bytes(&self) -> usize {
        self.completion.as_ref().map_or(0, |completion| completion.work_item.len())
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), Failure> {
        let token = &self.token;
        let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
        let (stored, session) = locks::work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
        if !planted(Bug::OutcomeUnchecked) {
            locks::check(scope, &stored, token, self.called)?;
        }
        scope.conn.prepare_cached(DELETE_ACTIVITY)?.execute([seq])?;
        if let Some(completion) = &self.completion {
            inbox::insert(scope, completion, None)?;
        }
        sessions::note_activity(scope, session.as_deref())?;
        scope.effects.released.push(token.clone());
        Ok(())
    }
}
