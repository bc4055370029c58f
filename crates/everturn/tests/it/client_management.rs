//! Listing, describing, deleting and pruning instances.

use std::sync::Arc;

use everturn::providers::memory::MemoryProvider;
use everturn::providers::{Provider, ProviderError};
use everturn::{Client, ClientError, InstanceFilter, OrchestrationStatus, PruneOptions};

use tracing::Level;

use crate::log_lines::LogLines;
use crate::recording_store::RecordingStore;
use crate::stores::{TestStore, on_every_store_in_paused_time};
use crate::turn_by_hand::{child_start, commit, completed, continued, kv_set};

on_every_store_in_paused_time!(each_deletion_and_pruning_is_logged_in_one_line);

fn client() -> (Arc<MemoryProvider>, Client) {
    let store = Arc::new(MemoryProvider::new());
    (store.clone(), Client::new(store))
}

/// A client on a store with a completed root `root`, its completed child `root::sub::2`, and a running `other`.
async fn family() -> (Arc<MemoryProvider>, Client) {
    let (store, client) = client();
    client.start_orchestration("root", "order", "").await.unwrap();
    let mut turn = vec![kv_set("k", "v")];
    turn.extend(completed("42"));
    commit(&*store, turn).await;
    store.enqueue_for_orchestrator(child_start("root", "root::sub::2"), None).await.unwrap();
    commit(&*store, completed("child")).await;
    client.start_orchestration("other", "order", "").await.unwrap();
    commit(&*store, vec![]).await;
    (store, client)
}

#[tokio::test]
async fn a_store_without_management_says_so() {
    let client = Client::new(Arc::new(RecordingStore::default()));
    assert!(!client.has_management_capability());
    let results = [
        client.list_all_instances().await.map(drop),
        client.list_instances_by_status("Running").await.map(drop),
        client.get_instance_info("i").await.map(drop),
        client.get_execution_info("i", 1).await.map(drop),
        client.list_executions("i").await.map(drop),
        client.read_execution_history("i", 1).await.map(drop),
        client.get_system_metrics().await.map(drop),
        client.get_queue_depths().await.map(drop),
        client.get_instance_tree("i").await.map(drop),
        client.delete_instance("i", false).await.map(drop),
        client.delete_instance_bulk(InstanceFilter::default()).await.map(drop),
        client.prune_executions("i", PruneOptions::default()).await.map(drop),
        client.prune_executions_bulk(InstanceFilter::default(), PruneOptions::default()).await.map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(ClientError::ManagementNotAvailable)), "{result:?}");
    }
}

#[tokio::test]
async fn instances_are_listed_with_their_children() {
    let (_store, client) = family().await;
    assert!(client.has_management_capability());
    let mut all = client.list_all_instances().await.unwrap();
    all.sort();
    assert_eq!(all, ["other", "root", "root::sub::2"]);
    assert_eq!(client.list_instances_by_status("Running").await.unwrap(), ["other"]);
    let tree = client.get_instance_tree("root").await.unwrap();
    assert_eq!((tree.root_id.as_str(), tree.size()), ("root", 2));
    assert!(client.get_instance_tree("unknown").await.unwrap().is_root_only());
}

#[tokio::test]
async fn instances_and_executions_are_described() {
    let (store, client) = family().await;
    let info = client.get_instance_info("root::sub::2").await.unwrap();
    assert_eq!(info.parent_instance_id.as_deref(), Some("root"));
    assert_eq!((info.status.as_str(), info.output.as_deref()), ("Completed", Some("child")));
    let execution = client.get_execution_info("root", 1).await.unwrap();
    assert_eq!((execution.status.as_str(), execution.event_count), ("Completed", 3));
    assert_eq!(client.list_executions("root").await.unwrap(), [1]);
    assert_eq!(client.read_execution_history("root", 1).await.unwrap(), store.read("root").await.unwrap());
    assert!(client.list_executions("unknown").await.unwrap().is_empty());
    assert!(client.read_execution_history("unknown", 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_unknown_instance_has_no_description() {
    let (_store, client) = family().await;
    let errors = [
        client.get_instance_info("unknown").await.map(drop).unwrap_err(),
        client.get_execution_info("root", 9).await.map(drop).unwrap_err(),
        client.prune_executions("unknown", PruneOptions::default()).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(&error, ClientError::Provider(e) if e.to_string().contains("not found")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn totals_and_queue_depths_are_counted() {
    let (_store, client) = family().await;
    let metrics = client.get_system_metrics().await.unwrap();
    assert_eq!((metrics.total_instances, metrics.running_instances, metrics.completed_instances), (3, 1, 2));
    client.raise_event("other", "go", "").await.unwrap();
    assert_eq!(client.get_queue_depths().await.unwrap().orchestrator_queue, 1);
}

#[tokio::test]
async fn deleting_a_root_deletes_its_descendants_and_data() {
    let (_store, client) = family().await;
    let deleted = client.delete_instance("root", false).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted), (2, 2));
    assert_eq!(client.get_orchestration_status("root").await.unwrap(), OrchestrationStatus::NotFound);
    assert_eq!(client.get_kv_value("root", "k").await.unwrap(), None);
    assert_eq!(client.list_all_instances().await.unwrap(), ["other"]);
}

#[tokio::test]
async fn a_refused_deletion_says_why() {
    let (_store, client) = family().await;
    let refused = async |id: &str, force| client.delete_instance(id, force).await.unwrap_err();
    assert!(matches!(refused("other", false).await,
        ClientError::InstanceStillRunning { instance_id } if instance_id == "other"));
    for force in [false, true] {
        assert!(matches!(refused("root::sub::2", force).await,
            ClientError::CannotDeleteSubOrchestration { instance_id } if instance_id == "root::sub::2"));
        assert!(matches!(refused("unknown", force).await,
            ClientError::InstanceNotFound { instance_id } if instance_id == "unknown"));
    }
    assert_eq!(client.delete_instance("other", true).await.unwrap().instances_deleted, 1);
}

#[tokio::test]
async fn an_error_of_another_provider_is_classified_by_its_text() {
    let delete = async |text: &str| {
        let error = ProviderError::permanent("delete_instance", text);
        let store = RecordingStore { managed: true, ..RecordingStore::failing(error) };
        Client::new(Arc::new(store)).delete_instance("i", false).await.unwrap_err()
    };
    assert!(matches!(delete("Instance Not Found").await, ClientError::InstanceNotFound { .. }));
    assert!(matches!(delete("i is STILL RUNNING").await, ClientError::InstanceStillRunning { .. }));
    assert!(matches!(delete("a Sub-Orchestration").await, ClientError::CannotDeleteSubOrchestration { .. }));
    assert!(matches!(delete("Delete the root").await, ClientError::CannotDeleteSubOrchestration { .. }));
    assert!(matches!(delete("still running, root not found").await, ClientError::InstanceNotFound { .. }));
    assert!(matches!(delete("disk on fire").await, ClientError::Provider(_)));
}

#[tokio::test]
async fn bulk_deletion_skips_running_instances() {
    let (_store, client) = family().await;
    let ids = ["root", "other", "root::sub::2", "unknown"].map(str::to_owned).to_vec();
    let filter = InstanceFilter { instance_ids: Some(ids), ..Default::default() };
    assert_eq!(client.delete_instance_bulk(filter).await.unwrap().instances_deleted, 2);
    assert_eq!(client.list_all_instances().await.unwrap(), ["other"]);
    let none = InstanceFilter { instance_ids: Some(vec![]), ..Default::default() };
    assert_eq!(client.delete_instance_bulk(none).await.unwrap().instances_deleted, 0);
}

#[tokio::test]
async fn pruning_leaves_the_current_execution() {
    let (store, client) = client();
    client.start_orchestration("i", "order", "").await.unwrap();
    commit(&*store, continued("2")).await;
    commit(&*store, continued("3")).await;
    commit(&*store, vec![]).await;
    assert_eq!(client.list_executions("i").await.unwrap(), [1, 2, 3]);
    let keep_two = PruneOptions { keep_last: Some(2), ..Default::default() };
    assert_eq!(client.prune_executions("i", keep_two).await.unwrap().executions_deleted, 1);
    let pruned =
        client.prune_executions_bulk(InstanceFilter::default(), PruneOptions::default()).await.unwrap();
    assert_eq!((pruned.instances_processed, pruned.executions_deleted), (1, 1));
    assert_eq!(client.list_executions("i").await.unwrap(), [3]);
}

/// The store runs on this thread as well, so a log line of its own would be captured.
async fn each_deletion_and_pruning_is_logged_in_one_line(store: TestStore) {
    let store = store.provider();
    let client = Client::new(Arc::clone(&store));
    for instance in ["one", "two"] {
        client.start_orchestration(instance, "order", "").await.unwrap();
        commit(&*store, continued("2")).await;
        commit(&*store, completed("42")).await;
    }
    let (lines, _guard) = LogLines::capture();
    let mut lines_before = 0;
    let mut only_new_line = |counts: &[(&str, &str)]| {
        let new_lines: Vec<_> =
            lines.all().into_iter().filter(|line| line.level <= Level::INFO).skip(lines_before).collect();
        assert_eq!(new_lines.len(), 1, "{new_lines:#?}");
        assert_eq!((new_lines[0].level, new_lines[0].target.as_str()), (Level::INFO, "everturn::runtime"));
        for (name, count) in counts {
            assert_eq!(new_lines[0].field(name), *count, "{name} of {new_lines:?}");
        }
        lines_before += 1;
    };
    let one = || InstanceFilter { instance_ids: Some(vec!["one".to_owned()]), ..Default::default() };
    client.prune_executions("two", PruneOptions::default()).await.unwrap();
    let pruned = [("instances_processed", "1"), ("executions_deleted", "1"), ("events_deleted", "2")];
    only_new_line(&pruned);
    client.prune_executions_bulk(one(), PruneOptions::default()).await.unwrap();
    only_new_line(&pruned);
    let deleted = [("instances_deleted", "1"), ("executions_deleted", "1"), ("events_deleted", "2")];
    client.delete_instance_bulk(one()).await.unwrap();
    only_new_line(&deleted);
    client.delete_instance("two", false).await.unwrap();
    only_new_line(&deleted);
}
