//! Every verb of the provider on a damaged store. What is reported about the damaged instance is recorded; the others must
//! not be affected.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{
    ErrorDetails, Event, EventKind, OrchestrationStatus, PoisonMessageType, WorkItem, kind_of,
};
use everturn_provider::management::{InstanceFilter, PruneOptions};
use everturn_provider::store::{LockKind, LockRenewal, Renewal, Store as Verbs};
use everturn_provider::{
    ExecutionMetadata, ManualClock, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
};
use everturn_sqlite::SqliteProvider;

use super::columns::{Applied, DAMAGED};
use super::filled_store::{self, DELAY, SOUND, fetch_any_work};
use crate::store::{LOCK, Store, fetch, signal, start};

/// The event that the engine records over a history it cannot read.
const FAILURE_EVENT_ID: u64 = 99_999;
/// More fetches than any drain needs: a store that assigns more repeats itself.
const FETCHES_MAX: usize = 40;

type Fetched<Item> = (Item, String, u32);

/// What is locked while the damage happens.
#[derive(Default)]
pub(crate) struct HeldWork {
    turns: Vec<Fetched<OrchestrationItem>>,
    work: Vec<Fetched<WorkItem>>,
}

/// A store with damaged rows.
pub(crate) struct DamagedStore {
    pub(crate) files: Store,
    provider: SqliteProvider,
    clock: Arc<ManualClock>,
    /// What reads of the sound instances returned before.
    shown_before: BTreeMap<&'static str, String>,
    /// What was reported about the damaged instance.
    pub(crate) noticed: Vec<String>,
    /// Why the damaged instance was parked.
    pub(crate) parked: Option<String>,
    applied: Applied,
    /// What was reported about damaged rows of the damaged instance.
    damage: Vec<String>,
    /// How many messages of each kind the committed turns had, by instance.
    received: BTreeMap<String, BTreeMap<String, usize>>,
    activity_failed: bool,
    abandoned_before: bool,
    /// Not even its failure could be recorded.
    unfailable: bool,
}

impl DamagedStore {
    /// Opens a store; each session is leased, nothing is locked.
    pub(crate) async fn open() -> Self {
        let files = filled_store::filled().await;
        let clock = filled_store::clock();
        let provider = filled_store::open(&files, &clock).await;
        let mut leased = Vec::new();
        while let Some((_, token, _)) = fetch_any_work(&provider).await {
            leased.push(token);
        }
        assert_eq!(leased.len(), 9);
        for token in leased {
            provider.abandon_work_item(&token, None, true).await.unwrap();
        }
        let mut store = Self {
            files,
            provider,
            clock,
            shown_before: BTreeMap::new(),
            noticed: Vec::new(),
            parked: None,
            applied: Applied::Nothing,
            damage: Vec::new(),
            received: BTreeMap::new(),
            activity_failed: false,
            abandoned_before: false,
            unfailable: false,
        };
        for instance in SOUND {
            let shown = store.show(instance).await;
            store.shown_before.insert(instance, shown);
        }
        store
    }

    /// Fetches everything there is.
    pub(crate) async fn hold(&self) -> HeldWork {
        let mut held = HeldWork::default();
        while let Some(turn) = fetch(&self.provider).await {
            held.turns.push(turn);
        }
        while let Some(work) = fetch_any_work(&self.provider).await {
            held.work.push(work);
        }
        assert_eq!((held.turns.len(), held.work.len()), (3, 9));
        held
    }

    /// Uses every verb, the removing ones last.
    pub(crate) async fn use_every_verb(&mut self, held: HeldWork, applied: Applied) {
        self.applied = applied;
        self.read_all().await;
        self.list_all().await;
        self.finish(held).await;
        self.drain().await;
        self.clock.advance(DELAY + LOCK);
        self.drain().await;
        for instance in [DAMAGED, SOUND[0], SOUND[1]] {
            let sent = self.provider.enqueue_for_orchestrator(signal(instance), None).await;
            self.note_of(instance, "enqueue_for_orchestrator", sent);
            let again = Event::with_event_id(500, instance, 2, None, EventKind::KeyValuesCleared);
            let appended = self.provider.append_with_execution(instance, 2, vec![again]).await;
            self.note_of(instance, "append_with_execution", appended);
        }
        self.clock.advance(LOCK);
        self.drain().await;
        self.check_received();
        self.check_visible().await;
        self.renew_sessions().await;
        self.reopen().await;
        self.serves("while it was damaged").await;
        self.prune().await;
        self.delete().await;
        self.serves("at the end").await;
    }

    fn note<T>(&mut self, verb: &str, outcome: Result<T, ProviderError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(!error.is_retryable(), "{verb}: damage must not be retryable: {error}");
                // A damaged old execution affects only reads of that execution.
                if error.is_damaged() && verb != "read_with_execution" {
                    self.damage.push(format!("{verb}: {error}"));
                }
                self.noticed.push(format!("{verb}: {error}"));
                None
            }
        }
    }

    /// No call about a sound instance may fail.
    fn note_of<T: Debug>(
        &mut self,
        instance: &str,
        verb: &str,
        outcome: Result<T, ProviderError>,
    ) -> Option<T> {
        if SOUND.contains(&instance) {
            return Some(outcome.unwrap_or_else(|error| panic!("{verb} of {instance}: {error}")));
        }
        self.note(verb, outcome)
    }

    fn admin(&self) -> &dyn ProviderAdmin {
        self.provider.as_management_capability().unwrap()
    }

    /// All that reads return about an instance.
    async fn show(&mut self, instance: &str) -> String {
        let (provider, admin) = (&self.provider, self.admin());
        let kv = provider.get_kv_all_values(instance).await.map(BTreeMap::from_iter);
        let shown = vec![
            printed("read", provider.read(instance).await),
            printed("read_with_execution", provider.read_with_execution(instance, 1).await),
            printed("read_status", Verbs::read_status(provider, instance).await),
            printed("read_orchestration_name", Verbs::read_orchestration_name(provider, instance).await),
            printed("get_custom_status", provider.get_custom_status(instance, 0).await),
            printed("get_kv_all_values", kv),
            printed("get_kv_value", provider.get_kv_value(instance, "base").await),
            printed("get_instance_stats", provider.get_instance_stats(instance).await),
            printed("list_executions", admin.list_executions(instance).await),
            printed("read_history", admin.read_history(instance).await),
            printed("latest_execution_id", admin.latest_execution_id(instance).await),
            printed("get_instance_info", admin.get_instance_info(instance).await),
            printed("get_execution_info", admin.get_execution_info(instance, 2).await),
            printed("list_children", admin.list_children(instance).await),
            printed("get_parent_id", admin.get_parent_id(instance).await),
            printed("get_instance_tree", admin.get_instance_tree(instance).await),
        ];
        let mut all = String::new();
        for (verb, outcome) in shown {
            if let Some(shown) = self.note_of(instance, verb, outcome) {
                all.push_str(&format!("{verb}: {shown}\n"));
            }
        }
        all
    }

    async fn read_all(&mut self) {
        self.show(DAMAGED).await;
        for instance in SOUND {
            let shown = self.show(instance).await;
            assert_eq!(shown, self.shown_before[instance]);
        }
    }

    async fn list_all(&self) {
        let admin = self.admin();
        let listed = admin.list_instances().await.unwrap();
        let running = admin.list_instances_by_status("Running").await.unwrap();
        for instance in SOUND.map(str::to_owned) {
            assert!(
                listed.contains(&instance) && running.contains(&instance),
                "{instance}: {listed:?} {running:?}"
            );
        }
        admin.get_system_metrics().await.unwrap();
        admin.get_queue_depths().await.unwrap();
    }

    /// Renews and ends what was locked while the damage happened.
    async fn finish(&mut self, held: HeldWork) {
        let mut renewals = Vec::new();
        for (item, token, _) in &held.turns {
            renewals.push((item.instance.clone(), LockKind::Orchestration, token.clone()));
        }
        for (item, token, _) in &held.work {
            renewals.push((item.instance().to_owned(), LockKind::WorkItem, token.clone()));
        }
        let asked: Vec<LockRenewal> = renewals
            .iter()
            .map(|(_, kind, token)| LockRenewal { kind: *kind, token: token.clone(), extend_for: LOCK })
            .collect();
        let answers = self.provider.renew(&Renewal::of_locks(asked)).await.unwrap().locks;
        for ((instance, ..), answer) in renewals.iter().zip(answers) {
            self.note_of(instance, "renew", answer);
        }
        for (nth, fetched) in held.work.into_iter().enumerate() {
            if nth % 3 == 2 {
                let (item, token, _) = fetched;
                let abandoned = self.provider.abandon_work_item(&token, None, true).await;
                self.note_of(item.instance(), "abandon_work_item", abandoned);
            } else {
                self.run_activity(fetched).await;
            }
        }
        for turn in held.turns {
            self.take_turn(turn).await;
        }
    }

    /// Processes everything that is visible.
    async fn drain(&mut self) {
        for _ in 0..FETCHES_MAX {
            if let Some(work) = fetch_any_work(&self.provider).await {
                self.run_activity(work).await;
            } else if let Some(turn) = fetch(&self.provider).await {
                self.take_turn(turn).await;
            } else {
                return;
            }
        }
        panic!("the store assigns the same work again and again: {:?}", self.noticed);
    }

    async fn run_activity(&mut self, (item, token, _): Fetched<WorkItem>) {
        let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else { panic!("{item:?}") };
        let renewed = self.provider.renew_work_item_lock(&token, LOCK).await;
        self.note_of(&instance, "renew_work_item_lock", renewed);
        let completion = WorkItem::ActivityCompleted {
            instance: instance.clone(),
            execution_id,
            id,
            result: "paid".to_owned(),
        };
        let acked = self.provider.ack_work_item(&token, Some(completion)).await;
        if self.note_of(&instance, "ack_work_item", acked).is_none() {
            let abandoned = self.provider.abandon_work_item(&token, Some(LOCK), false).await;
            self.note("abandon_work_item", abandoned);
        }
    }

    /// As the engine does: commits a turn; abandons one whose history is damaged at first, then fails it.
    async fn take_turn(&mut self, (item, token, attempts): Fetched<OrchestrationItem>) {
        let instance = item.instance.clone();
        let renewed = self.provider.renew_orchestration_item_lock(&token, LOCK).await;
        self.note_of(&instance, "renew_orchestration_item_lock", renewed);
        if SOUND.contains(&instance.as_str()) {
            assert_eq!(item.history_error, None);
            assert!(
                attempts >= 1 && item.history.len() >= 6 && item.kv_snapshot.contains_key("base"),
                "{item:?}"
            );
        }
        self.activity_failed |=
            item.messages.iter().any(|message| matches!(message, WorkItem::ActivityFailed { .. }));
        if let Some(reason) = &item.history_error {
            self.noticed.push(format!("fetch_orchestration_item: {reason}"));
            self.damage.push(format!("fetch_orchestration_item: {reason}"));
            if !self.abandoned_before {
                self.abandoned_before = true;
                let abandoned = self
                    .provider
                    .abandon_orchestration_item(&token, Some(Duration::from_secs(1)), false)
                    .await;
                self.note("abandon_orchestration_item", abandoned);
                return;
            }
            return self.fail(&item, &token, reason.clone()).await;
        }
        let last = item.history.last().map_or(0, |event| event.event_id);
        let status = EventKind::CustomStatusUpdated { status: Some("on".to_owned()) };
        let delta = vec![Event::with_event_id(last + 1, &instance, item.execution_id, None, status)];
        let acked = self
            .provider
            .ack_orchestration_item(
                &token,
                item.execution_id,
                delta,
                vec![],
                vec![],
                ExecutionMetadata::default(),
                vec![],
            )
            .await;
        let refusal = acked.as_ref().err().map(ToString::to_string);
        self.note_of(&instance, "ack_orchestration_item", acked);
        if let Some(reason) = refusal {
            return self.fail(&item, &token, reason).await;
        }
        let received = self.received.entry(instance).or_default();
        for message in &item.messages {
            *received.entry(kind_of(message).to_owned()).or_default() += 1;
        }
    }

    async fn fail(&mut self, item: &OrchestrationItem, token: &str, reason: String) {
        let details = ErrorDetails::Poison {
            attempt_count: 2,
            max_attempts: 1,
            message_type: PoisonMessageType::FailedDeserialization {
                instance: item.instance.clone(),
                execution_id: item.execution_id,
                error: reason.clone(),
            },
            message: reason.clone(),
        };
        let metadata = ExecutionMetadata {
            status: Some("Failed".to_owned()),
            output: Some(details.display_message()),
            ..ExecutionMetadata::default()
        };
        let kind = EventKind::OrchestrationFailed { details };
        let event = Event::with_event_id(FAILURE_EVENT_ID, &item.instance, item.execution_id, None, kind);
        // Messages after the failure are dropped.
        let (delta, metadata) = match self.parked {
            Some(_) => (vec![], ExecutionMetadata::default()),
            None => (vec![event], metadata),
        };
        let failed = self
            .provider
            .ack_orchestration_item(token, item.execution_id, delta, vec![], vec![], metadata, vec![])
            .await;
        match failed {
            Ok(()) => drop(self.parked.get_or_insert(reason)),
            Err(error) => {
                self.unfailable |= !error.is_lock_lost();
                self.note("ack_orchestration_item (failure)", Err::<(), _>(error));
                let abandoned = self.provider.abandon_orchestration_item(token, Some(DELAY), false).await;
                self.note("abandon_orchestration_item", abandoned);
            }
        }
    }

    /// Whether the damaged instance can neither go on nor end.
    pub(crate) fn is_stuck(&self) -> bool {
        self.unfailable && self.parked.is_none()
    }

    /// Whether the damaged instance had a turn.
    pub(crate) fn damaged_had_a_turn(&self) -> bool {
        self.received.contains_key(DAMAGED)
    }

    /// Whether a read of the damaged instance reported damage.
    pub(crate) fn damage_is_reported(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Whether the damaged instance received all that was sent to it, at least once.
    pub(crate) fn damaged_received_all(&self) -> bool {
        let Some(received) = self.received.get(DAMAGED) else { return false };
        all_messages().iter().all(|(kind, sent)| received.get(kind).is_some_and(|received| received >= sent))
    }

    /// Whether the damaged instance received a failure of an activity.
    pub(crate) fn activity_failed(&self) -> bool {
        self.activity_failed
    }

    fn check_received(&self) {
        for instance in SOUND {
            assert_eq!(self.received[instance], all_messages(), "{instance}");
        }
    }

    /// Reads of the damaged instance report why it was parked, or what of it is damaged. (Of values that a constraint
    /// refuses, only what parked it.)
    async fn check_visible(&mut self) {
        if self.parked.is_none() {
            // A later turn may have overwritten it.
            self.damage.clear();
            self.show(DAMAGED).await;
            if self.damage.is_empty() || self.applied == Applied::Forced {
                return;
            }
        }
        let admin = self.admin();
        let listed = admin.list_instances().await.unwrap();
        let mut seen = false;
        for instance in listed.iter().filter(|listed| !SOUND.contains(&listed.as_str())) {
            seen = true;
            if instance.contains(char::REPLACEMENT_CHARACTER) {
                // An id that is no UTF-8 is listed, but cannot be read by id.
                continue;
            }
            let says = |text: &str| self.parked.as_ref().is_none_or(|reason| text.contains(reason.as_str()));
            let info = admin.get_instance_info(instance).await;
            let in_info = match &info {
                Ok(info) => info.status == "Failed" && info.output.as_deref().is_some_and(says),
                Err(error) => error.is_damaged(),
            };
            let status = Verbs::read_status(&self.provider, instance).await;
            let in_status = match &status {
                Ok(OrchestrationStatus::Failed { details, .. }) => says(&details.display_message()),
                Ok(_) => false,
                Err(error) => error.is_damaged(),
            };
            let reason = (&self.parked, &self.damage);
            assert!(in_info, "get_instance_info does not say {reason:?}: {info:?}");
            assert!(in_status, "get_orchestration_status does not say {reason:?}: {status:?}");
        }
        assert!(seen, "the damaged instance is not listed: {listed:?}");
    }

    async fn renew_sessions(&mut self) {
        self.provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap();
        self.provider.cleanup_orphaned_sessions(LOCK).await.unwrap();
    }

    async fn reopen(&mut self) {
        self.provider.close().await;
        self.provider = filled_store::open(&self.files, &self.clock).await;
        self.list_all().await;
        for instance in SOUND {
            self.show(instance).await;
        }
        self.drain().await;
    }

    /// The writer works: a new instance runs.
    async fn serves(&mut self, instance: &str) {
        self.provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
        for _ in 0..FETCHES_MAX {
            let (item, token, attempts) = fetch(&self.provider).await.expect("the new instance");
            if item.instance == instance {
                let event = crate::store::started(instance);
                let named = crate::store::named();
                self.provider
                    .ack_orchestration_item(&token, 1, vec![event], vec![], vec![], named, vec![])
                    .await
                    .unwrap();
                return;
            }
            self.take_turn((item, token, attempts)).await;
        }
        panic!("the new instance is never assigned");
    }

    async fn prune(&mut self) {
        for instance in [DAMAGED, SOUND[0]] {
            let pruned = self.admin().prune_executions(instance, PruneOptions::default()).await;
            self.note_of(instance, "prune_executions", pruned.map(|_| ()));
        }
        let pruned =
            self.admin().prune_executions_bulk(InstanceFilter::default(), PruneOptions::default()).await;
        pruned.unwrap();
        assert_eq!(self.admin().list_executions(SOUND[1]).await.unwrap(), [2]);
    }

    async fn delete(&mut self) {
        self.admin().delete_instance_bulk(InstanceFilter::default()).await.unwrap();
        for instance in [DAMAGED, SOUND[0]] {
            let deleted = self.admin().delete_instance(instance, true).await;
            self.note_of(instance, "delete_instance", deleted.map(|_| ()));
        }
        let both = [DAMAGED.to_owned(), SOUND[1].to_owned()];
        let deleted = self.admin().delete_instances_atomic(&both, true).await;
        self.note("delete_instances_atomic", deleted.map(|_| ()));
        let listed = self.admin().list_instances().await.unwrap();
        assert!(
            !listed.iter().any(|listed| listed == DAMAGED),
            "a damaged instance can be removed: {:?}",
            self.noticed
        );
    }
}

/// What is sent to each instance.
fn all_messages() -> BTreeMap<String, usize> {
    let kinds = [("ActivityCompleted", 3), ("ExternalRaised", 2), ("TimerFired", 1)];
    kinds.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect()
}

fn printed<T: Debug>(
    verb: &'static str,
    outcome: Result<T, ProviderError>,
) -> (&'static str, Result<String, ProviderError>) {
    (verb, outcome.map(|value| format!("{value:?}")))
}
