//! `settle_work`: a fetched activity ends, or returns to the queue.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::ProviderError;
use everturn_provider::encoded::{StoredMessage, length_ms, stored_ms};
use everturn_provider::store::{Settlement, SettlementKind};

use crate::locks::{row_of, unknown_token};
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::orchestrator_queue;
use crate::text::{check_message, check_texts};
use crate::unit_of_work::UnitOfWork;

/// Ends the lock of a fetched activity.
pub(crate) struct SettleWork {
    token: String,
    kind: StoredSettlement,
    called_ms: i64,
}

enum StoredSettlement {
    /// The activity is deleted; its completion becomes visible after the delay.
    End { completion: Option<(StoredMessage, Option<Duration>)> },
    /// The activity becomes visible again after the delay, to workers with the missing handler at once.
    Abandon { delay: Option<Duration>, ignore_attempt: bool, missing_handler: Option<String> },
}

impl SettleWork {
    /// Encodes the completion; refuses any other item.
    pub(crate) fn encode(settlement: &Settlement, called_ms: i64) -> Result<Self, ProviderError> {
        let kind = match &settlement.kind {
            SettlementKind::End { completion: None } => StoredSettlement::End { completion: None },
            SettlementKind::End { completion: Some(message) } => {
                let (WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }) = &message.item
                else {
                    let kind = everturn_core::kind_of(&message.item);
                    let refused = format!("a {kind} is not the completion of an activity");
                    return Err(ProviderError::permanent(Self::NAME, refused));
                };
                let stored = StoredMessage::encode(Self::NAME, message)?;
                check_message(Self::NAME, &stored)?;
                StoredSettlement::End { completion: Some((stored, message.delay)) }
            }
            SettlementKind::Abandon { delay, ignore_attempt, missing_handler } => {
                let missing_handler = missing_handler.as_ref().map(|handler| handler.name.clone());
                check_texts(Self::NAME, [("the name of a handler", missing_handler.as_deref())])?;
                StoredSettlement::Abandon { delay: *delay, ignore_attempt: *ignore_attempt, missing_handler }
            }
            other => {
                let refused = format!("this store cannot do {other:?}");
                return Err(ProviderError::unsupported(Self::NAME, refused));
            }
        };
        Ok(Self { token: settlement.lock_token.clone(), kind, called_ms })
    }

    fn is_abandon(&self) -> bool {
        matches!(self.kind, StoredSettlement::Abandon { .. })
    }
}

impl Verb for SettleWork {
    type Answer = ();
    const NAME: &'static str = "settle_work";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        match &self.kind {
            StoredSettlement::End { completion: Some((completion, _)) } => completion.work_item.len(),
            StoredSettlement::End { completion: None } | StoredSettlement::Abandon { .. } => 0,
        }
    }

    fn needs(&self, needs: &mut Needs) {
        needs.activities.extend(row_of(&self.token));
        if let StoredSettlement::End { completion: Some((completion, _)) } = &self.kind {
            needs.receiver(&completion.instance_id);
            needs.new_messages += 1;
        }
    }

    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<(), ProviderError> {
        let token = &self.token;
        let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
        let Some(activity) = unit.activities.get_mut(&seq) else {
            // Gone since a call that may have been committed: it was, or its result is dropped in any case.
            return if run == Run::Again { Ok(()) } else { Err(unknown_token(token)) };
        };
        if run == Run::Again && activity.lock.token.is_none() && self.is_abandon() {
            return Ok(());
        }
        activity.lock.check(token, self.called_ms)?;
        match &self.kind {
            StoredSettlement::End { completion } => {
                unit.writes.touch_sessions.extend(activity.session_id.take());
                unit.activities.remove(&seq);
                unit.writes.delete_activities.push(seq);
                if let Some((completion, delay)) = completion {
                    let after = |delay: Duration| unit.now_ms.saturating_add(stored_ms(length_ms(delay)));
                    orchestrator_queue::insert(unit, completion, delay.map(after));
                }
            }
            StoredSettlement::Abandon { delay, ignore_attempt, missing_handler } => {
                let delay = delay.filter(|delay| !delay.is_zero());
                let visible_at_ms =
                    delay.map_or(0, |delay| unit.now_ms.saturating_add(stored_ms(length_ms(delay))));
                let missing_handler = missing_handler.clone().filter(|_| visible_at_ms > 0);
                release(unit, seq, visible_at_ms, missing_handler, *ignore_attempt);
            }
        }
        Ok(())
    }
}

/// Clears the lock of an activity; it becomes visible at once or later.
pub(crate) fn release(
    unit: &mut UnitOfWork,
    seq: i64,
    visible_at_ms: i64,
    missing_handler: Option<String>,
    ignore_attempt: bool,
) {
    let Some(activity) = unit.activities.get_mut(&seq) else { return };
    activity.lock = Default::default();
    let (seqs, visible, handlers, refunds) = &mut unit.writes.unlock_activities;
    seqs.push(seq);
    visible.push(visible_at_ms);
    handlers.push(missing_handler);
    refunds.push(i64::from(ignore_attempt));
    unit.effects.work = true;
    if visible_at_ms > 0 {
        unit.effects.due_at(visible_at_ms);
    }
}

#[cfg(test)]
mod tests {
    use everturn_provider::store::Settlement;

    use super::*;
    use crate::locks::StoredLock;
    use crate::unit_of_work::ActivityImage;

    const OWN: &str = "7-own";

    /// The answer to a settlement whose first call may have been committed, with the activity locked like this by now.
    fn again(settlement: &Settlement, token: Option<&str>) -> Result<(), ProviderError> {
        let lock = StoredLock {
            token: token.map(str::to_owned),
            until_ms: token.map(|_| 100),
            lock_ms: token.map(|_| 50),
        };
        let mut unit = UnitOfWork::default();
        unit.activities.insert(7, ActivityImage { lock, session_id: None });
        SettleWork::encode(settlement, 60).unwrap().run(&mut unit, Run::Again)
    }

    #[test]
    fn a_repeated_end_of_an_activity_that_another_worker_has_lost_its_lock() {
        assert!(again(&Settlement::end(OWN, None), Some("7-other")).unwrap_err().is_lock_lost());
        assert!(again(&Settlement::end(OWN, None), None).unwrap_err().is_lock_lost());
        again(&Settlement::end(OWN, None), Some(OWN)).unwrap();
    }

    #[test]
    fn a_repeated_end_of_an_activity_that_is_gone_has_happened() {
        let end = SettleWork::encode(&Settlement::end(OWN, None), 60).unwrap();
        end.run(&mut UnitOfWork::default(), Run::Again).unwrap();
        assert!(end.run(&mut UnitOfWork::default(), Run::First).unwrap_err().is_lock_lost());
    }

    #[test]
    fn a_repeated_release_has_happened_unless_another_worker_has_the_activity() {
        let release = Settlement::abandon(OWN, None, false);
        again(&release, None).unwrap();
        assert!(again(&release, Some("7-other")).unwrap_err().is_lock_lost());
    }
}
