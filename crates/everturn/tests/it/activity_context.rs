//! What an activity knows about itself and about the worker that runs it.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::memory::MemoryProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus, RuntimeOptions,
};

const MINUTE: Duration = Duration::from_secs(60);

async fn describe(ctx: ActivityContext, _input: String) -> Result<String, String> {
    let client_sees = match ctx.get_client().get_orchestration_status(ctx.instance_id()).await {
        Ok(OrchestrationStatus::Running { .. }) => "running",
        _ => "something else",
    };
    Ok(format!(
        "{} {} {} {} {} {} {:?} {:?} {} {client_sees}",
        ctx.instance_id(),
        ctx.execution_id(),
        ctx.orchestration_name(),
        ctx.orchestration_version(),
        ctx.activity_name(),
        ctx.worker_id(),
        ctx.session_id(),
        ctx.tag(),
        ctx.is_cancelled(),
    ))
}

#[tokio::test]
async fn an_activity_knows_its_instance_and_its_worker() {
    let activities = ActivityRegistry::builder().register("describe", describe).build();
    let orchestrations = OrchestrationRegistry::builder()
        .register_versioned("order", "1.2.0", |ctx: OrchestrationContext, _input: String| async move {
            ctx.schedule_activity_on_session("describe", "", "s").await
        })
        .build();
    let store = Arc::new(MemoryProvider::new());
    let options = RuntimeOptions {
        worker_concurrency: 1,
        worker_node_id: Some("node-a".to_owned()),
        ..Default::default()
    };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store);
    client.start_orchestration("i", "order", "").await.unwrap();
    let described = client.wait_for_orchestration_typed::<String>("i", MINUTE).await.unwrap().unwrap();
    assert_eq!(described, "i 1 order 1.2.0 describe work-0-node-a Some(\"s\") None false running");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_engines_own_activities_work_with_an_empty_registry() {
    let orchestrations = OrchestrationRegistry::builder()
        .register("ask", |ctx: OrchestrationContext, _input: String| async move {
            let guid = ctx.new_guid().await?;
            let now = ctx.utc_now().await?;
            let other = ctx.get_kv_value_from_instance("unknown", "key").await?;
            let since_epoch = now.duration_since(std::time::UNIX_EPOCH).map_err(|error| error.to_string())?;
            Ok(format!("{} {} {other:?}", guid.len(), since_epoch > Duration::ZERO))
        })
        .build();
    let store = Arc::new(MemoryProvider::new());
    let runtime = Runtime::start_with_store(store.clone(), ActivityRegistry::default(), orchestrations).await;
    let client = Client::new(store);
    client.start_orchestration("i", "ask", "").await.unwrap();
    let answer = client.wait_for_orchestration_typed::<String>("i", MINUTE).await.unwrap();
    assert_eq!(answer, Ok("36 true None".to_owned()));
    runtime.shutdown(None).await;
}
