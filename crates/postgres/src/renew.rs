//! `renew`: locks and session leases are extended.

use everturn_provider::ProviderError;
use everturn_provider::encoded::{length_ms, stored_ms};
use everturn_provider::store::{LockKind, LockRenewal, Renewal, Renewed, SessionRenewal};

use crate::locks::{row_of, unknown_token};
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::sessions::LeaseRenewal;
use crate::text::check_texts;
use crate::unit_of_work::UnitOfWork;

/// Extends locks, with one answer for each, and live session leases.
pub(crate) struct Renew {
    renewal: Renewal,
    called_ms: i64,
}

impl Verb for Renew {
    type Answer = Renewed;
    const NAME: &'static str = "renew";
    const ORDER: BatchOrder = BatchOrder::Renewal;

    fn needs(&self, needs: &mut Needs) {
        for lock in &self.renewal.locks {
            match (lock.kind, row_of(&lock.token)) {
                (LockKind::Orchestration, Some(key)) => drop(needs.keys.insert(key)),
                (LockKind::WorkItem, Some(seq)) => drop(needs.activities.insert(seq)),
                (_, None) => {}
            }
        }
        needs.lease_renewals.extend(self.renewal.sessions.as_ref().map(|of| self.lease_renewal(of)));
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<Renewed, ProviderError> {
        let renew = |lock: &LockRenewal| {
            let renewed = match lock.kind {
                LockKind::Orchestration => self.renew_instance(unit, lock),
                LockKind::WorkItem => self.renew_work(unit, lock),
            };
            renewed.map_err(|mut error| {
                error.operation = Self::NAME.to_owned();
                error
            })
        };
        let locks = self.renewal.locks.iter().map(renew).collect();
        let sessions =
            if self.renewal.sessions.is_some() { unit.renewed_leases.pop_front().unwrap_or(0) } else { 0 };
        Ok(Renewed::new(locks, sessions))
    }
}

impl Renew {
    /// Refuses owners that no row can name.
    pub(crate) fn new(renewal: &Renewal, called_ms: i64) -> Result<Self, ProviderError> {
        let owner_ids = renewal.sessions.iter().flat_map(|sessions| &sessions.owner_ids);
        check_texts(Self::NAME, owner_ids.map(|owner_id| ("the id of an owner", Some(owner_id.as_str()))))?;
        Ok(Self { renewal: renewal.clone(), called_ms })
    }

    fn lease_renewal(&self, of: &SessionRenewal) -> LeaseRenewal {
        LeaseRenewal {
            owner_ids: of.owner_ids.clone(),
            lease_ms: stored_ms(length_ms(of.extend_for)),
            called_ms: self.called_ms,
            active_since_ms: self.called_ms.saturating_sub(stored_ms(length_ms(of.idle_timeout))),
        }
    }

    fn renew_instance(&self, unit: &mut UnitOfWork, lock: &LockRenewal) -> Result<(), ProviderError> {
        let token = &lock.token;
        let instance = row_of(token).and_then(|key| unit.instances.get_mut(&key));
        let instance = instance.ok_or_else(|| unknown_token(token))?;
        instance.lock.check(token, self.called_ms)?;
        let lock_ms = stored_ms(length_ms(lock.extend_for));
        let until_ms = unit.now_ms.saturating_add(lock_ms);
        (instance.lock.until_ms, instance.lock.lock_ms) = (Some(until_ms), Some(lock_ms));
        // It was ready if the lock had expired.
        instance.ready_seq = None;
        instance.is_changed = true;
        unit.effects.due_at(until_ms);
        Ok(())
    }

    fn renew_work(&self, unit: &mut UnitOfWork, lock: &LockRenewal) -> Result<(), ProviderError> {
        let token = &lock.token;
        let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
        let activity = unit.activities.get_mut(&seq).ok_or_else(|| unknown_token(token))?;
        activity.lock.check(token, self.called_ms)?;
        let lock_ms = stored_ms(length_ms(lock.extend_for));
        let until_ms = unit.now_ms.saturating_add(lock_ms);
        (activity.lock.until_ms, activity.lock.lock_ms) = (Some(until_ms), Some(lock_ms));
        let (seqs, untils, lengths) = &mut unit.writes.renew_activities;
        seqs.push(seq);
        untils.push(until_ms);
        lengths.push(lock_ms);
        unit.writes.touch_sessions.extend(activity.session_id.clone());
        unit.effects.due_at(until_ms);
        Ok(())
    }
}
