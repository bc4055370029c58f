//! 03 §13: what a runtime counts, once per occurrence.

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext};

use crate::node_under_test::{NodeUnderTest, memory, quick, until};

#[tokio::test]
async fn every_start_end_and_activity_is_counted_once() {
    let activities = ActivityRegistry::builder()
        .register("Echo", |_ctx: ActivityContext, input: String| async move { Ok(input) })
        .register("Fails", |_ctx: ActivityContext, _: String| async move { Err("no".to_owned()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Works", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Echo", "a").await?;
            ctx.schedule_activity("Echo", "b").await
        })
        .register("Fails", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Fails", "").await
        })
        .register("Again", |ctx: OrchestrationContext, input: String| async move {
            if input == "once" { ctx.continue_as_new("twice").await } else { Ok(input) }
        })
        .build();
    let node = NodeUnderTest::start(memory(), activities, orchestrations, quick()).await;
    for name in ["Works", "Fails", "Again"] {
        node.client.start_orchestration(name, name, "once").await.unwrap();
        node.end_of(name).await;
    }
    // Counting follows the commit that the client saw.
    until("everything is counted", async || {
        let snapshot = node.runtime.metrics_snapshot().unwrap();
        snapshot.orch_completions == 4 && snapshot.activity_success == 2 && snapshot.activity_app_errors == 1
    })
    .await;
    let metrics = node.runtime.observability_handle().unwrap().metrics_provider();
    assert_eq!(metrics.get_active_orchestrations(), 0);
    node.runtime.clone().shutdown(None).await;
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!(snapshot.orch_starts, 4);
    assert_eq!(snapshot.orch_completions, 4);
    assert_eq!(snapshot.orch_failures, 1);
    assert_eq!(snapshot.orch_application_errors, 1);
    assert_eq!(snapshot.orch_continue_as_new, 1);
    assert_eq!(snapshot.activity_success, 2);
    assert_eq!(snapshot.activity_app_errors, 1);
    assert_eq!(snapshot.provider_errors, 0);
}
