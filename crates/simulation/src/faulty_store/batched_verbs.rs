//! The verbs of a [`BatchedMemory`], each run on the tables in the open batch.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Event, OrchestrationStatus, SystemStats, WorkItem};
use everturn_provider::store::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, OrchestrationName, RawWrites, Receipt,
    Renewal, Renewed, Settlement, SettlementKind, Stamp, StepAnswer, StepCommit, Store, StoreLayer,
    StoredExecution, Submission, Sweep, Swept, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::testing::{Moment, SessionsBefore, TableAccess as _, Tables};
use everturn_provider::{ProviderAdmin, ProviderError};

use super::batch::{BatchNotes, BatchedMemory, NotedLease, VerbAnswer};
use super::parked::{Look, assigned_by};

impl BatchedMemory {
    fn look_for_turns(
        &self,
        tables: &mut Tables,
        now: Moment,
        fetch: &TurnFetch,
        open: &BatchNotes,
        notes: &mut BatchNotes,
    ) -> Look<FetchedTurn> {
        let (found, passed_over) = tables.fetch_without(now, &open.instances, &BTreeSet::new(), |tables| {
            tables.fetch_turns(now, fetch, || self.memory.fresh_token())
        });
        notes.instances.extend(found.iter().map(|turn| turn.item.instance.clone()));
        let tokens = found.iter().map(|turn| turn.lock_token.clone());
        let is_early = found.iter().all(|turn| turn.warm.is_some());
        if is_early {
            notes.early.extend(tokens);
        } else {
            notes.locks.extend(tokens.map(|token| (token, fetch.lock_timeout)));
        }
        let wait = if found.is_empty() { tables.next_turn_wake(now) } else { None };
        Look { found, is_early, before: None, wait, passed_over }
    }

    fn look_for_work(
        &self,
        tables: &mut Tables,
        now: Moment,
        fetch: &WorkFetch,
        open: &BatchNotes,
        notes: &mut BatchNotes,
    ) -> Look<FetchedWork> {
        let session = fetch.session.as_ref();
        let before = session.map(|session| Arc::new(tables.sessions_before(now, &session.owner_id)));
        let (found, passed_over) = tables.fetch_without(now, &BTreeSet::new(), &open.activities, |tables| {
            tables.fetch_work(now, fetch, || self.memory.fresh_token())
        });
        for work in &found {
            note_work(tables, work, fetch, notes);
        }
        let wait = if found.is_empty() { tables.next_work_wake(now) } else { None };
        Look { found, is_early: false, before, wait, passed_over }
    }

    fn step(
        &self,
        tables: &mut Tables,
        now: Moment,
        stamp: Stamp,
        step: &StepCommit,
        open: &BatchNotes,
        notes: &mut BatchNotes,
    ) -> SteppedAnswer {
        let fetches = step.ended.iter().filter_map(|ended| ended.next.as_ref()).map(|next| &next.fetch);
        let session = fetches.clone().find_map(|fetch| fetch.session.as_ref());
        let before = session.map(|session| Arc::new(tables.sessions_before(now, &session.owner_id)));
        // A repeated call answers what the first one locked, and does not lock it again.
        let tokens = step.ended.iter().filter_map(|ended| ended.next.as_ref());
        let is_repeated = tokens
            .map(|next| format!("{:032x}", next.random))
            .any(|token| tables.activity_of(&token).is_some());
        let (answer, _) = tables.fetch_without(now, &BTreeSet::new(), &open.activities, |tables| {
            tables.commit_step(now, stamp, step)
        });
        if let Ok(StepAnswer::Committed(next)) = &answer
            && !is_repeated
        {
            notes.instances.insert(step.instance.clone());
            for (work, ended) in next.iter().zip(&step.ended) {
                if let (Some(work), Some(next)) = (work, &ended.next) {
                    note_work(tables, work, &next.fetch, notes);
                }
            }
        }
        SteppedAnswer { answer, before, is_repeated }
    }
}

/// What a step did.
struct SteppedAnswer {
    answer: Result<StepAnswer, ProviderError>,
    /// An earlier call did it, and locked what this one answers.
    is_repeated: bool,
    /// The sessions before it, if it may have claimed any.
    before: Option<Arc<SessionsBefore>>,
}

impl VerbAnswer for SteppedAnswer {
    fn has_changed(&self) -> bool {
        matches!(self.answer, Ok(StepAnswer::Committed(_)))
    }
}

/// Notes an activity that was locked.
fn note_work(tables: &Tables, work: &FetchedWork, fetch: &WorkFetch, notes: &mut BatchNotes) {
    notes.activities.extend(tables.activity_of(&work.lock_token));
    notes.locks.push((work.lock_token.clone(), fetch.lock_timeout));
    if let (WorkItem::ActivityExecute { session_id: Some(session_id), .. }, Some(session)) =
        (&work.item, &fetch.session)
    {
        notes.leases.push(NotedLease {
            session_id: session_id.clone(),
            owner_id: session.owner_id.clone(),
            lasts: session.lock_timeout,
        });
    }
}

impl StoreLayer for BatchedMemory {
    fn inner(&self) -> &dyn Store {
        &*self.memory
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        self.look_until(
            "fetch_turns",
            fetch.poll_timeout,
            &self.orchestrator_work,
            |tables, now, open, notes| self.look_for_turns(tables, now, fetch, open, notes),
        )
        .await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let stamp = commit.stamp.unwrap_or_else(|| self.memory.fresh_stamp());
        self.write("commit_turn", |tables, now, notes| {
            let instance = tables.instance_of(&commit.lock_token);
            tables.commit_turn(now, stamp, commit.clone())?;
            notes.instances.extend(instance);
            notes.committed = Some(commit.lock_token.clone());
            Ok(())
        })
        .await?
    }

    fn supports(&self, feature: Feature) -> bool {
        self.memory.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let stamp = step.turn.stamp.unwrap_or_else(|| self.memory.fresh_stamp());
        loop {
            let (SteppedAnswer { answer, before, is_repeated }, batch) =
                self.run(true, |tables, now, open, notes| {
                    self.step(tables, now, stamp, step, open.unwrap_or(&BatchNotes::default()), notes)
                });
            let next = match answer? {
                StepAnswer::Committed(next) => next,
                declined @ StepAnswer::Declined(_) => return Ok(declined),
            };
            // What an earlier call has locked stays locked if this one is dropped.
            let taken_back = if is_repeated { Vec::new() } else { assigned_by(&next, before.as_ref()) };
            if let Some(next) = self.take_next("commit_step", next, taken_back, batch).await? {
                return Ok(StepAnswer::Committed(next));
            }
        }
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.write("abandon_turn", |tables, now, notes| {
            let instance = tables.instance_of(&abandon.lock_token);
            tables.abandon_turn(now, abandon)?;
            notes.instances.extend(instance);
            Ok(())
        })
        .await?
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        self.look_until("fetch_work", fetch.poll_timeout, &self.worker_work, |tables, now, open, notes| {
            self.look_for_work(tables, now, fetch, open, notes)
        })
        .await
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        self.write("settle_work", |tables, now, notes| {
            let row_id = tables.activity_of(&settlement.lock_token);
            tables.settle_work(now, settlement)?;
            if matches!(settlement.kind, SettlementKind::Abandon { .. }) {
                notes.activities.extend(row_id);
            }
            Ok(())
        })
        .await?
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        self.write("renew", |tables, now, notes| {
            let renewed = tables.renew(now, renewal);
            let locks = renewal.locks.iter().zip(&renewed.locks).filter(|(_, answer)| answer.is_ok());
            notes.locks.extend(locks.map(|(lock, _)| (lock.token.clone(), lock.extend_for)));
            if let Some(sessions) = &renewal.sessions {
                let lasts = sessions.extend_for;
                for owner_id in &sessions.owner_ids {
                    let leased = tables.sessions_leased_for(now, owner_id, lasts).into_iter();
                    notes.leases.extend(leased.map(|session_id| NotedLease {
                        session_id,
                        owner_id: owner_id.clone(),
                        lasts,
                    }));
                }
            }
            renewed
        })
        .await
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        self.write("submit", |tables, now, _| tables.submit(now, submission)).await?
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError> {
        self.write("sweep", |tables, now, _| tables.sweep(now, sweep)).await
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.read("read_status", |tables, _| tables.read_status(instance)).await?
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        self.read("read_execution", |tables, _| tables.read_execution(read)).await?
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        self.read("read_custom_status", |tables, _| tables.read_custom_status(instance, last_seen_version))
            .await
    }

    async fn read_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.read("read_kv_value", |tables, _| tables.read_kv_value(instance, key)).await
    }

    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.read("read_kv_values", |tables, _| tables.read_kv_values(instance)).await
    }

    async fn read_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.read("read_stats", |tables, _| tables.read_stats(instance)).await
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError> {
        self.read("read_orchestration_name", |tables, _| tables.read_orchestration_name(instance)).await
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        Some(self)
    }
}

#[async_trait]
impl RawWrites for BatchedMemory {
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let stamp = self.memory.fresh_stamp();
        self.write("append_events", |tables, now, _| {
            tables.append_events(now, stamp, instance, execution_id, new_events.clone())
        })
        .await?
    }

    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.write("enqueue_work", |tables, _, _| tables.enqueue_work(item.clone())).await?
    }
}
