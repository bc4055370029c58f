//! The verbs of the store, each run on the tables.

use std::collections::HashMap;

use async_trait::async_trait;
use everturn_core::{OrchestrationStatus, SystemStats};

use super::tables::{Moment, Tables};
use super::{MemoryProvider, locked};
use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::store::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, OrchestrationName, RawWrites, Receipt,
    Renewal, Renewed, Settlement, StepAnswer, StepCommit, Store, StoreIdentity, StoreLimits, StoredExecution,
    Submission, Sweep, Swept, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use crate::watch::InstanceWatch;

#[async_trait]
impl Store for MemoryProvider {
    fn name(&self) -> &str {
        "memory"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn identity(&self) -> Option<StoreIdentity> {
        Some(self.identity.clone())
    }

    fn supports(&self, feature: Feature) -> bool {
        match feature {
            Feature::WarmInstances
            | Feature::StartReceipts
            | Feature::MessageNotes
            | Feature::DeadLetters
            | Feature::SessionPlaces
            | Feature::HandlerLookup
            | Feature::FusedSteps => true,
            // Nothing is late here; a wrapper that answers late knows what it promises.
            Feature::LateRenewals => false,
        }
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::new(self.payload_bytes_max)
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let look = |tables: &mut Tables, now: Moment| tables.fetch_turns(now, fetch, || self.fresh_token());
        let queue = &self.orchestrator_work;
        Ok(self.look_until(fetch.poll_timeout, queue, look, Tables::next_turn_wake).await)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let stamp = commit.stamp.unwrap_or_else(|| self.fresh_stamp());
        self.run(|tables, now| tables.commit_turn(now, stamp, commit.clone()))
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let stamp = step.turn.stamp.unwrap_or_else(|| self.fresh_stamp());
        self.run(|tables, now| tables.commit_step(now, stamp, step))
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.run(|tables, now| tables.abandon_turn(now, abandon))
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let look = |tables: &mut Tables, now: Moment| tables.fetch_work(now, fetch, || self.fresh_token());
        Ok(self.look_until(fetch.poll_timeout, &self.worker_work, look, Tables::next_work_wake).await)
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        self.run(|tables, now| tables.settle_work(now, settlement))
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        Ok(self.run(|tables, now| tables.renew(now, renewal)))
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        self.run(|tables, now| tables.submit(now, submission))
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError> {
        Ok(self.run(|tables, now| tables.sweep(now, sweep)))
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.run(|tables, _| tables.read_status(instance))
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        self.run(|tables, _| tables.read_execution(read))
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        Ok(self.run(|tables, _| tables.read_custom_status(instance, last_seen_version)))
    }

    async fn read_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        Ok(self.run(|tables, _| tables.read_kv_value(instance, key)))
    }

    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        Ok(self.run(|tables, _| tables.read_kv_values(instance)))
    }

    async fn read_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        Ok(self.run(|tables, _| tables.read_stats(instance)))
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError> {
        Ok(self.run(|tables, _| tables.read_orchestration_name(instance)))
    }

    fn watch(&self, instance: &str) -> InstanceWatch {
        InstanceWatch::woken(locked(&self.watches).watch(instance))
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        Some(self)
    }
}
