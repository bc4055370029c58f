//! The verbs of the store, each run on the tables.

use std::collections::HashMap;

use async_trait::async_trait;
use everturn_core::{OrchestrationStatus, SystemStats};

use super::parked::LOOK_AT_LEAST_EVERY;
use super::tables::{Moment, Tables};
use super::{MemoryProvider, locked};
use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::store::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, OrchestrationName, RawWrites, Receipt,
    Renewal, Renewed, Settlement, Store, StoreLimits, StoredExecution, Submission, Sweep, Swept, TurnAbandon,
    TurnCommit, TurnFetch, WorkFetch,
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

    fn supports(&self, feature: Feature) -> bool {
        match feature {
            Feature::WarmInstances => true,
        }
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::new(self.payload_bytes_max)
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let look = |tables: &mut Tables, now: Moment| {
            let turns = tables.fetch_turns(now, fetch, || self.fresh_token());
            // Parked fetches do not know of a lock that ends before they look again.
            tables.changes.orchestrator_queue |=
                !turns.is_empty() && fetch.lock_timeout < LOOK_AT_LEAST_EVERY;
            turns
        };
        let queue = &self.orchestrator_work;
        self.look_until("fetch_turns", fetch.poll_timeout, queue, look, Tables::next_turn_wake).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let stamp = commit.stamp.unwrap_or_else(|| self.fresh_stamp());
        self.write("commit_turn", |tables, now| tables.commit_turn(now, stamp, commit.clone())).await?
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.write("abandon_turn", |tables, now| tables.abandon_turn(now, abandon)).await?
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let lease = fetch.session.as_ref().map(|session| session.lock_timeout);
        let ends_soon = fetch.lock_timeout.min(lease.unwrap_or(fetch.lock_timeout)) < LOOK_AT_LEAST_EVERY;
        let look = |tables: &mut Tables, now: Moment| {
            let work = tables.fetch_work(now, fetch, || self.fresh_token());
            // Parked fetches do not know of a lock or lease that ends before they look again.
            tables.changes.worker_queue |= !work.is_empty() && ends_soon;
            work
        };
        let queue = &self.worker_work;
        self.look_until("fetch_work", fetch.poll_timeout, queue, look, Tables::next_work_wake).await
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        self.write("settle_work", |tables, now| tables.settle_work(now, settlement)).await?
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        self.write("renew", |tables, now| tables.renew(now, renewal)).await
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        self.write("submit", |tables, now| tables.submit(now, submission)).await?
    }

    /// Sessions end with their leases here, however long they were idle.
    async fn sweep(&self, _sweep: &Sweep) -> Result<Swept, ProviderError> {
        self.write("sweep", |tables, now| tables.sweep(now)).await
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.look("read_status", |tables, _| tables.read_status(instance)).await?
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        self.look("read_execution", |tables, _| tables.read_execution(read)).await?
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        self.look("read_custom_status", |tables, _| tables.read_custom_status(instance, last_seen_version))
            .await
    }

    async fn read_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.look("read_kv_value", |tables, _| tables.read_kv_value(instance, key)).await
    }

    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.look("read_kv_values", |tables, _| tables.read_kv_values(instance)).await
    }

    async fn read_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.look("read_stats", |tables, _| tables.read_stats(instance)).await
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError> {
        self.look("read_orchestration_name", |tables, _| tables.read_orchestration_name(instance)).await
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
