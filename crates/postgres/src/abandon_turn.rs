//! `abandon_turn`: the lock is released, the messages are delivered again.

use everturn_provider::ProviderError;
use everturn_provider::encoded::{length_ms, stored_ms};
use everturn_provider::store::{HandlerKey, TurnAbandon};

use crate::instance_image::QueuedMessages;
use crate::locks::{row_of, unknown_token};
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::text::check_handler;
use crate::unit_of_work::UnitOfWork;

/// Releases an instance whose turn was not committed.
pub(crate) struct AbandonTurn {
    abandon: TurnAbandon,
    called_ms: i64,
}

impl AbandonTurn {
    /// Refuses a handler that no row can name.
    pub(crate) fn new(abandon: &TurnAbandon, called_ms: i64) -> Result<Self, ProviderError> {
        check_handler(Self::NAME, abandon.missing_handler.as_ref())?;
        Ok(Self { abandon: abandon.clone(), called_ms })
    }
}

impl Verb for AbandonTurn {
    type Answer = ();
    const NAME: &'static str = "abandon_turn";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn needs(&self, needs: &mut Needs) {
        if let Some(key) = row_of(&self.abandon.lock_token) {
            needs.keys.insert(key);
            needs.released.insert(key);
        }
    }

    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<(), ProviderError> {
        let token = &self.abandon.lock_token;
        let key = row_of(token).ok_or_else(|| unknown_token(token))?;
        let Some(instance) = unit.instances.get(&key) else {
            return if run == Run::Again { Ok(()) } else { Err(unknown_token(token)) };
        };
        if run == Run::Again && instance.lock.token.is_none() {
            return Ok(());
        }
        instance.lock.check(token, self.called_ms)?;
        let delay = self.abandon.delay.filter(|delay| !delay.is_zero());
        let delayed_until_ms = delay.map(|delay| unit.now_ms.saturating_add(stored_ms(length_ms(delay))));
        let missing = self.abandon.missing_handler.as_ref().filter(|_| delayed_until_ms.is_some());
        release(unit, key, delayed_until_ms, missing, self.abandon.ignore_attempt);
        Ok(())
    }
}

/// Clears the lock of an instance; it can be fetched again, now or after the delay.
pub(crate) fn release(
    unit: &mut UnitOfWork,
    key: i64,
    delayed_until_ms: Option<i64>,
    missing_handler: Option<&HandlerKey>,
    ignore_attempt: bool,
) {
    unit.writes.untag.0.push(key);
    unit.writes.untag.1.push(i64::from(ignore_attempt));
    let Some(instance) = unit.instances.get_mut(&key) else { return };
    let QueuedMessages { oldest, has_start, has_visible_start, has_visible_other, first_arrival_ms } =
        std::mem::take(&mut instance.tagged);
    let queued = &mut instance.untagged;
    queued.oldest = [queued.oldest, oldest].into_iter().flatten().min();
    queued.has_start |= has_start;
    queued.has_visible_start |= has_visible_start;
    queued.has_visible_other |= has_visible_other;
    queued.first_arrival_ms = [queued.first_arrival_ms, first_arrival_ms].into_iter().flatten().min();
    instance.unlock();
    instance.ready_seq = None;
    instance.delayed_until_ms = delayed_until_ms;
    instance.missing_handler = missing_handler.map(|handler| handler.name.clone());
    // `*` for the version that the runtime chooses, or `=` and the exact one.
    instance.missing_version = missing_handler.map(|handler| {
        handler.version.as_ref().map_or_else(|| "*".to_owned(), |version| format!("={version}"))
    });
    instance.refresh();
    unit.effects.turns |= instance.ready_seq.is_some();
    unit.effects.orphans |= instance.orphaned;
    if let Some(at_ms) = delayed_until_ms {
        unit.effects.due_at(at_ms);
    }
}
