//! `OrchestrationStatus` in each state of an instance, with its custom status.

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{ErrorDetails, OrchestrationContext, OrchestrationStatus};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    an_instance_that_was_never_started_is_not_found,
    a_running_instance_shows_its_custom_status_and_its_version,
    a_completed_instance_keeps_its_output_and_its_status,
    a_failed_instance_keeps_its_details_and_its_status,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Ends", |ctx: OrchestrationContext, _: String| async move {
            let how = ctx.schedule_wait("end").await;
            if how == "well" { Ok(how) } else { Err(how) }
        })
        .register("SetsStatus", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("first");
            ctx.schedule_wait("next").await;
            ctx.reset_custom_status();
            ctx.schedule_wait("next").await;
            ctx.set_custom_status("last");
            let how = ctx.schedule_wait("end").await;
            if how == "well" { Ok(how) } else { Err(how) }
        })
        .build()
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn status(node: &NodeUnderTest) -> OrchestrationStatus {
    node.client.get_orchestration_status("i").await.unwrap()
}

fn running(custom_status: Option<&str>, custom_status_version: u64) -> OrchestrationStatus {
    OrchestrationStatus::Running { custom_status: custom_status.map(str::to_owned), custom_status_version }
}

async fn an_instance_that_was_never_started_is_not_found(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(status(&node).await, OrchestrationStatus::NotFound);
    node.client.start_orchestration("i", "Ends", "").await.unwrap();
    node.committed("i").await;
    assert_eq!(status(&node).await, running(None, 0));
    node.runtime.shutdown(None).await;
}

async fn a_running_instance_shows_its_custom_status_and_its_version(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "SetsStatus", "").await.unwrap();
    for (seen, expected) in
        [running(Some("first"), 1), running(None, 2), running(Some("last"), 3)].iter().enumerate()
    {
        let seen = seen as u64;
        let interval = std::time::Duration::from_millis(10);
        let patience = crate::node_under_test::PATIENCE;
        let now = node.client.wait_for_status_change("i", seen, interval, patience).await.unwrap();
        assert_eq!(&now, expected);
        node.client.raise_event("i", "next", "").await.unwrap();
    }
    node.runtime.shutdown(None).await;
}

/// Runs `SetsStatus` to its last wait and ends it there.
async fn ended(store: &TestStore, how: &str) -> OrchestrationStatus {
    let node = node_on(store).await;
    node.client.start_orchestration("i", "SetsStatus", "").await.unwrap();
    node.until_status("i", "first").await;
    node.client.raise_event("i", "next", "").await.unwrap();
    crate::node_under_test::until("the custom status is cleared", async || {
        status(&node).await == running(None, 2)
    })
    .await;
    node.client.raise_event("i", "next", "").await.unwrap();
    node.until_status("i", "last").await;
    node.client.raise_event("i", "end", how).await.unwrap();
    let end = node.end_of("i").await;
    assert_eq!(status(&node).await, end);
    node.runtime.shutdown(None).await;
    end
}

async fn a_completed_instance_keeps_its_output_and_its_status(store: TestStore) {
    let expected = OrchestrationStatus::Completed {
        output: "well".to_owned(),
        custom_status: Some("last".to_owned()),
        custom_status_version: 3,
    };
    assert_eq!(ended(&store, "well").await, expected);
}

async fn a_failed_instance_keeps_its_details_and_its_status(store: TestStore) {
    let expected = OrchestrationStatus::Failed {
        details: ErrorDetails::orchestration_failed("badly"),
        custom_status: Some("last".to_owned()),
        custom_status_version: 3,
    };
    assert_eq!(ended(&store, "badly").await, expected);
}

#[test]
fn statuses_can_be_cloned_compared_and_printed() {
    fn has_all<T: std::fmt::Debug + Clone + PartialEq + Eq>(value: &T) -> String {
        assert_eq!(&value.clone(), value);
        format!("{value:?}")
    }
    assert_eq!(has_all(&OrchestrationStatus::NotFound), "NotFound");
    assert_eq!(has_all(&running(None, 0)), "Running { custom_status: None, custom_status_version: 0 }");
    assert_ne!(running(None, 0), running(None, 1));
}
