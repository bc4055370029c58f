//! The orchestrator queue: messages are inserted, and their instances become ready.

use everturn_provider::encoded::StoredMessage;
use everturn_provider::store::Receipt;

use crate::unit_of_work::UnitOfWork;

/// Puts a message into the queue, visible now or from `visible_at_ms` on. A timer arrives at its fire time, or when it becomes
/// visible if that is before; any other message now, but not before one of the instance's messages that is visible. A
/// cancellation is kept only if its instance exists or is about to start.
pub(crate) fn insert(unit: &mut UnitOfWork, message: &StoredMessage, visible_at_ms: Option<i64>) -> Receipt {
    let now_ms = unit.now_ms;
    let visible_at_ms = visible_at_ms.filter(|at_ms| *at_ms > now_ms).unwrap_or(0);
    let Some(key) = unit.key_of(&message.instance_id) else {
        // Only a cancellation makes no row.
        return Receipt::Dropped;
    };
    let is_unawaited = message.timer.is_some_and(|timer| unit.is_unawaited(key, timer.execution_id));
    let Some(seq) = unit.next_message() else { return Receipt::Dropped };
    let Some(instance) = unit.instances.get_mut(&key) else { return Receipt::Dropped };
    let receipt = match (message.is_start, message.is_cancel, instance.is_taken()) {
        (true, _, true) => Receipt::Existing,
        (true, _, false) => Receipt::Created,
        (false, true, false) => return Receipt::Dropped,
        (false, ..) => Receipt::Queued,
    };
    let is_visible = visible_at_ms == 0;
    let arrived_at_ms = match message.timer {
        Some(timer) => visible_at_ms.max(now_ms).min(timer.fire_at_ms),
        None => instance.latest_arrival_ms.map_or(now_ms, |latest| latest.max(now_ms)),
    };
    if !instance.startable && !message.is_start {
        instance.note_unstarted(arrived_at_ms);
    }
    let was_orphaned = instance.orphaned;
    let queued = &mut instance.untagged;
    if is_visible {
        queued.oldest = Some(queued.oldest.map_or(seq, |oldest| oldest.min(seq)));
        queued.has_visible_start |= message.is_start;
        queued.has_visible_other |= !message.is_queue_message;
        let latest = instance.latest_arrival_ms.map_or(arrived_at_ms, |latest| latest.max(arrived_at_ms));
        instance.latest_arrival_ms = Some(latest);
    }
    let queued = &mut instance.untagged;
    queued.has_start |= message.is_start;
    queued.first_arrival_ms =
        Some(queued.first_arrival_ms.map_or(arrived_at_ms, |first| first.min(arrived_at_ms)));
    let is_locked = instance.lock.token.is_some() && instance.ready_seq.is_none();
    if is_visible || message.is_start {
        if !instance.startable {
            instance.refresh();
        } else if instance.ready_seq.is_none() && !is_locked && is_visible {
            let waits = instance.delayed_until_ms.is_some() && instance.missing_handler.is_none();
            if !waits {
                instance.ready_seq = Some(seq);
                instance.is_changed = true;
            }
        }
        // A ready instance may have been passed over because a step of it was under way.
        unit.effects.turns |= instance.ready_seq.is_some();
        unit.effects.orphans |= instance.orphaned || was_orphaned;
    } else {
        unit.effects.due_at(visible_at_ms);
    }
    unit.writes.messages.push(seq, key, message, arrived_at_ms, visible_at_ms, is_unawaited);
    receipt
}
