//! A store wrapper that records committed turns, and checks that no expired lock commits.

use std::sync::Arc;

use everturn::providers::store::{
    Feature, FetchedTurn, FetchedWork, Renewal, Renewed, Settlement, SettlementKind, StepAnswer, StepCommit,
    Store, StoreLayer, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn::providers::{Provider, ProviderError, store_of};

use crate::lock_tracker::LockTracker;
use crate::observations::{Observation, ObservationLog};

/// Records every turn whose commit was answered with `Ok`, and every commit or renewal that was sent after its lock had
/// expired by the holder's own clock.
pub(crate) struct ObservedStore {
    inner: Arc<dyn Store>,
    log: Arc<ObservationLog>,
    locks: LockTracker,
}

impl ObservedStore {
    /// Records the calls to `inner`.
    pub(crate) fn new(inner: Arc<dyn Provider>, log: Arc<ObservationLog>) -> Self {
        Self { inner: store_of(inner), locks: LockTracker::new(Arc::clone(&log)), log }
    }
}

impl StoreLayer for ObservedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let fetched = self.inner.fetch_turns(fetch).await?;
        for turn in &fetched {
            self.locks.acquired(&turn.lock_token, fetch.lock_timeout);
        }
        Ok(fetched)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let late = self.locks.release(&commit.lock_token);
        let answer = self.inner.commit_turn(commit).await;
        self.locks.check_answer("the commit of a turn", late, &answer);
        if answer.is_ok() && !commit.history_delta.is_empty() {
            self.log.record(Observation::Turn);
        }
        answer
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let late: Vec<bool> =
            step.ended.iter().map(|ended| self.locks.has_expired(&ended.lock_token)).collect();
        let answer = self.inner.commit_step(step).await?;
        // The outcomes of a declined step are sent again under the same locks.
        let StepAnswer::Committed(next) = &answer else { return Ok(answer) };
        for (late, ended) in late.into_iter().zip(&step.ended) {
            self.locks.release(&ended.lock_token);
            self.locks.check_answer("a step", late, &Ok(()));
        }
        if !step.turn.history_delta.is_empty() {
            self.log.record(Observation::Turn);
        }
        for (work, ended) in next.iter().zip(&step.ended) {
            if let (Some(work), Some(next)) = (work, &ended.next) {
                self.locks.acquired(&work.lock_token, next.fetch.lock_timeout);
            }
        }
        Ok(answer)
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.locks.release(&abandon.lock_token);
        self.inner.abandon_turn(abandon).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let fetched = self.inner.fetch_work(fetch).await?;
        for work in &fetched {
            self.locks.acquired(&work.lock_token, fetch.lock_timeout);
        }
        Ok(fetched)
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        let late = self.locks.release(&settlement.lock_token);
        let answer = self.inner.settle_work(settlement).await;
        if matches!(settlement.kind, SettlementKind::End { .. }) {
            self.locks.check_answer("the outcome of an activity", late, &answer);
        }
        answer
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        let late: Vec<bool> =
            renewal.locks.iter().map(|lock| self.locks.begin_renewal(&lock.token)).collect();
        let renewed = self.inner.renew(renewal).await?;
        for ((lock, late), answer) in renewal.locks.iter().zip(late).zip(&renewed.locks) {
            self.locks.end_renewal(&lock.token, lock.extend_for, late, answer);
        }
        Ok(renewed)
    }
}
