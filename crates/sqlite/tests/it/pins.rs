//! Instances with a pinned version that no parked fetch can replay.

use std::time::Duration;

use everturn_core::SemverRange;
use everturn_provider::{DispatcherCapabilityFilter, ExecutionMetadata, Provider};
use semver::Version;

use crate::store::{LOCK, Store, fetch, named, signal, start, started};

fn filter(min: u64, max: u64) -> DispatcherCapabilityFilter {
    DispatcherCapabilityFilter {
        supported_engine_versions: vec![SemverRange::new(Version::new(min, 0, 0), Version::new(max, 0, 0))],
    }
}

async fn begin_pinned(provider: &impl Provider, instance: &str, major: u64) {
    provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (item, token, _) =
        provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!(item.instance, instance);
    let metadata = ExecutionMetadata { pinned_engine_version: Some(Version::new(major, 0, 0)), ..named() };
    provider
        .ack_orchestration_item(&token, 1, vec![started(instance)], vec![], vec![], metadata, vec![])
        .await
        .unwrap();
}

#[tokio::test]
async fn hundreds_of_skipped_instances_hide_no_other_and_are_found_by_a_fetch_that_can_replay_them() {
    let store = Store::new();
    let provider = store.open().await;
    for number in 0..200 {
        begin_pinned(&provider, &format!("new-{number}"), 9).await;
    }
    for number in 0..200 {
        provider.enqueue_for_orchestrator(signal(&format!("new-{number}")), None).await.unwrap();
    }
    let old = filter(0, 1);
    let look = async |filter: &DispatcherCapabilityFilter| {
        let fetched = provider.fetch_orchestration_item(LOCK, Duration::ZERO, Some(filter)).await.unwrap();
        fetched.map(|(item, token, _)| (item.instance, token))
    };
    assert!(look(&old).await.is_none());
    begin_pinned_behind(&provider, "old", &old).await;
    for _ in 0..3 {
        provider.enqueue_for_orchestrator(signal("old"), None).await.unwrap();
        let (instance, token) = look(&old).await.expect("the one behind");
        assert_eq!(instance, "old");
        provider.abandon_orchestration_item(&token, None, false).await.unwrap();
        let (instance, token) = look(&old).await.expect("again after the abandon");
        assert_eq!(instance, "old");
        provider
            .ack_orchestration_item(&token, 1, vec![], vec![], vec![], ExecutionMetadata::default(), vec![])
            .await
            .unwrap();
        assert!(look(&old).await.is_none());
    }
    let (instance, token) = look(&filter(9, 9)).await.expect("the oldest of the new ones");
    assert_eq!(instance, "new-0");
    provider.abandon_orchestration_item(&token, None, true).await.unwrap();
    assert_eq!(fetch(&provider).await.unwrap().0.instance, "new-0");
}

async fn begin_pinned_behind(provider: &impl Provider, instance: &str, filter: &DispatcherCapabilityFilter) {
    provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let fetched = provider.fetch_orchestration_item(LOCK, Duration::ZERO, Some(filter)).await.unwrap();
    let (item, token, _) = fetched.expect("the start");
    assert_eq!(item.instance, instance);
    let metadata = ExecutionMetadata { pinned_engine_version: Some(Version::new(1, 0, 0)), ..named() };
    provider
        .ack_orchestration_item(&token, 1, vec![started(instance)], vec![], vec![], metadata, vec![])
        .await
        .unwrap();
}
