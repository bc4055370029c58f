//! `as_store` of a wrapper is the wrapper: no call of the engine goes past it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use everturn_core::{EventKind, WorkItem};
use everturn_provider::store::{
    ExecutionRead, Feature, Receipt, Renewal, Settlement, Store, StoreLayer, Submission, Sweep, TurnAbandon,
    TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::{ExecutionMetadata, Provider, ProviderError, TagFilter, store_of};

use crate::events;
use crate::harness::{CaseHarness, LOCK, StoreHandle, expect_lock_lost, secs};
use crate::items::{signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ as_store as as_store_cases:
    the_store_of_a_wrapper_is_the_wrapper,
    every_verb_goes_through_the_wrapper,
    every_plain_verb_goes_through_the_wrapper,
    a_wrapper_that_changes_payloads_is_not_bypassed,
    a_provider_without_a_store_has_no_feature,
}

/// A wrapper that changes nothing and records which verbs were called.
struct RecordingLayer {
    inner: Arc<dyn Store>,
    verbs: Mutex<BTreeSet<&'static str>>,
}

impl RecordingLayer {
    fn around(h: &CaseHarness) -> Arc<Self> {
        Arc::new(Self { inner: h.inner(), verbs: Mutex::default() })
    }

    /// The verbs that were called since the last time.
    fn take_verbs(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.verbs.lock().unwrap()).into_iter().collect()
    }
}

impl StoreLayer for RecordingLayer {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        self.verbs.lock().unwrap().insert(verb);
        call.await
    }
}

fn address<T: ?Sized>(shared: &Arc<T>) -> *const () {
    Arc::as_ptr(shared).cast()
}

async fn the_store_of_a_wrapper_is_the_wrapper(h: CaseHarness) {
    let layer = RecordingLayer::around(&h);
    let provider: Arc<dyn Provider> = layer.clone();
    let own = Arc::clone(&provider).as_store().expect("a wrapper made with StoreLayer is a store");
    assert_eq!(address(&own), address(&layer));
    let store = store_of(provider);
    assert_eq!(address(&store), address(&layer));
    assert_eq!(store.submit(&Submission::of(start("i"))).await.unwrap().len(), 1);
    assert_eq!(layer.take_verbs(), ["submit"]);
    assert_eq!(h.fetched_turn().await.item.messages, [start("i")], "it arrived in the wrapped store");
    assert_eq!((store.name(), store.version(), store.now_ms()), (h.name(), h.version(), h.now_ms()));
    assert_eq!(store.limits(), h.limits());
    for feature in Feature::ALL {
        // A wrapper that does not know of fused steps would be bypassed by them.
        let is_forwarded = *feature != Feature::FusedSteps;
        assert_eq!(store.supports(*feature), is_forwarded && h.supports(*feature), "{feature:?}");
    }
}

/// The verbs that a layer is called for.
const VERBS: [&str; 15] = [
    "abandon_turn",
    "commit_turn",
    "fetch_turns",
    "fetch_work",
    "read_custom_status",
    "read_execution",
    "read_kv_value",
    "read_kv_values",
    "read_orchestration_name",
    "read_stats",
    "read_status",
    "renew",
    "settle_work",
    "submit",
    "sweep",
];

async fn every_verb_goes_through_the_wrapper(h: CaseHarness) {
    let layer = RecordingLayer::around(&h);
    let store = store_of(layer.clone());
    store.submit(&Submission::of(start("i"))).await.unwrap();
    assert_eq!(store.fetch_turns(&TurnFetch::new(LOCK, secs(1))).await.unwrap().len(), 1);
    assert!(store.fetch_work(&WorkFetch::new(LOCK, secs(0))).await.unwrap().is_empty());
    expect_lock_lost(store.commit_turn(&TurnCommit::new("no such token", 1)).await);
    expect_lock_lost(store.abandon_turn(&TurnAbandon::new("no such token")).await);
    expect_lock_lost(store.settle_work(&Settlement::end("no such token", None)).await);
    store.renew(&Renewal::default()).await.unwrap();
    store.sweep(&Sweep::new(LOCK)).await.unwrap();
    store.read_status("i").await.unwrap();
    store.read_execution(&ExecutionRead::latest("i")).await.unwrap();
    store.read_custom_status("i", 0).await.unwrap();
    store.read_kv_value("i", "k").await.unwrap();
    store.read_kv_values("i").await.unwrap();
    store.read_stats("i").await.unwrap();
    store.read_orchestration_name("i").await.unwrap();
    assert_eq!(layer.take_verbs(), VERBS);
}

async fn every_plain_verb_goes_through_the_wrapper(h: CaseHarness) {
    let layer = RecordingLayer::around(&h);
    let plain: &dyn Provider = &*layer;
    plain.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    plain.fetch_orchestration_item(LOCK, secs(1), None).await.unwrap().expect("the start");
    assert!(plain.fetch_work_item(LOCK, secs(0), None, &TagFilter::Any).await.unwrap().is_none());
    assert_eq!(layer.take_verbs(), ["fetch_turns", "fetch_work", "submit"]);
    let metadata = ExecutionMetadata::default();
    let ack = plain.ack_orchestration_item("none", 1, vec![], vec![], vec![], metadata, vec![]);
    expect_lock_lost(ack.await);
    expect_lock_lost(plain.abandon_orchestration_item("none", None, false).await);
    assert_eq!(layer.take_verbs(), ["abandon_turn", "commit_turn"]);
    expect_lock_lost(plain.ack_work_item("none", None).await);
    assert_eq!(layer.take_verbs(), ["settle_work"]);
    expect_lock_lost(plain.abandon_work_item("none", None, false).await);
    assert_eq!(layer.take_verbs(), ["settle_work"]);
    expect_lock_lost(plain.renew_orchestration_item_lock("none", LOCK).await);
    assert_eq!(layer.take_verbs(), ["renew"]);
    expect_lock_lost(plain.renew_work_item_lock("none", LOCK).await);
    assert_eq!(layer.take_verbs(), ["renew"]);
    plain.renew_session_lock(&[], LOCK, LOCK).await.unwrap();
    plain.cleanup_orphaned_sessions(LOCK).await.unwrap();
    assert_eq!(layer.take_verbs(), ["renew", "sweep"]);
    plain.read("i").await.unwrap();
    assert_eq!(layer.take_verbs(), ["read_execution"]);
    plain.read_with_execution("i", 1).await.unwrap();
    assert_eq!(layer.take_verbs(), ["read_execution"]);
    plain.get_custom_status("i", 0).await.unwrap();
    plain.get_kv_value("i", "k").await.unwrap();
    plain.get_kv_all_values("i").await.unwrap();
    plain.get_instance_stats("i").await.unwrap();
    let reads = ["read_custom_status", "read_kv_value", "read_kv_values", "read_stats"];
    assert_eq!(layer.take_verbs(), reads);
}

/// A wrapper that stores every output in a changed form, as one that encrypts would.
struct SealingLayer(Arc<dyn Store>);

impl StoreLayer for SealingLayer {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let mut commit = commit.clone();
        for event in &mut commit.history_delta {
            if let EventKind::OrchestrationCompleted { output } = &mut event.kind {
                *output = format!("sealed {output}");
            }
        }
        self.inner().commit_turn(&commit).await
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        let mut submission = submission.clone();
        for message in &mut submission.messages {
            if let WorkItem::ExternalRaised { data, .. } = &mut message.item {
                *data = format!("sealed {data}");
            }
        }
        self.inner().submit(&submission).await
    }
}

async fn a_wrapper_that_changes_payloads_is_not_bypassed(h: CaseHarness) {
    h.create("i").await;
    let provider: Arc<dyn Provider> = Arc::new(SealingLayer(h.inner()));
    let store = StoreHandle::new(store_of(Arc::clone(&provider)));
    store.send(signal("i", "through the store")).await;
    provider.enqueue_for_orchestrator(signal("i", "through the plain verb"), None).await.unwrap();
    let fetched = store.fetched_turn().await;
    for message in &fetched.item.messages {
        let WorkItem::ExternalRaised { data, .. } = message else { panic!("only signals were sent") };
        assert_eq!(data, "sealed data");
    }
    assert_eq!(fetched.item.messages.len(), 2);
    SampleTurn::of("i", 1).completing(2, "secret").commit(&store, &fetched.lock_token).await.unwrap();
    assert_eq!(h.history("i").await.unwrap()[1].kind, events::completed("sealed secret"));
}

async fn a_provider_without_a_store_has_no_feature(h: CaseHarness) {
    let own = h.provider_to_own().as_store();
    match own {
        Some(own) => assert_eq!(address(&own), address(&h.inner()), "the harness tests this store"),
        None => {
            assert!(!Feature::ALL.iter().any(|feature| h.supports(*feature)), "the adapter has no feature");
        }
    }
}
