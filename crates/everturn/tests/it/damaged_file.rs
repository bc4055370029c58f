//! The engine on a damaged SQLite file: the damaged instance is reported, all other instances complete.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Client, OrchestrationContext, OrchestrationStatus, RuntimeOptions};
use everturn_provider::TagFilter;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::node_under_test::{NodeUnderTest, echo, quick, until};

const UNDAMAGED: [&str; 2] = ["undamaged-1", "undamaged-2"];

/// The first execution sets a key. The second waits for an activity with a tag that is not served yet, and for a signal.
fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Order", |ctx: OrchestrationContext, input: String| async move {
            if input == "first" {
                ctx.set_kv_value("key", "value");
                return ctx.continue_as_new("second").await;
            }
            let paid = ctx.schedule_activity("Echo", "paid").with_tag("later");
            ctx.set_custom_status("waiting");
            let signal = ctx.schedule_wait("go").await;
            Ok(format!("{} {signal} {}", paid.await?, ctx.get_kv_value("key").unwrap_or_default()))
        })
        .build()
}

struct DamagedFile {
    _folder: TempDir,
    url: String,
    path: std::path::PathBuf,
}

impl DamagedFile {
    /// Three instances that wait, each with an activity and a signal queued; then the damage.
    async fn new(sql: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let url = format!("sqlite:{}", path.display());
        let store = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
        let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), quick()).await;
        for instance in ["damaged", UNDAMAGED[0], UNDAMAGED[1]] {
            node.client.start_orchestration(instance, "Order", "first").await.unwrap();
            node.until_status(instance, "waiting").await;
        }
        node.runtime.shutdown(None).await;
        for instance in ["damaged", UNDAMAGED[0], UNDAMAGED[1]] {
            node.client.raise_event(instance, "go", "gone").await.unwrap();
        }
        store.close().await;
        let conn = Connection::open(&path).unwrap();
        let key = "(SELECT instance_key FROM everturn_instances WHERE instance_id = 'damaged')";
        assert!(conn.execute(&sql.replace("{key}", key), []).unwrap() > 0, "{sql}");
        Self { _folder: folder, url, path }
    }

    /// Starts the engine again, with the tag served. What cannot be read fails at the second fetch.
    async fn opened(&self) -> NodeUnderTest {
        let store = Arc::new(SqliteProvider::new(&self.url, None).await.unwrap());
        let options = RuntimeOptions {
            max_attempts: 1,
            orchestrator_lock_timeout: Duration::from_millis(500),
            worker_tag_filter: TagFilter::default_and(["later"]),
            ..quick()
        };
        NodeUnderTest::start(store, echo(), orchestrations(), options).await
    }
}

/// The failures that a client reads for an instance: from its status, and from its record.
async fn reported(client: &Client, instance: &str) -> (String, String) {
    let status = match client.get_orchestration_status(instance).await {
        Ok(OrchestrationStatus::Failed { details, .. }) => details.display_message(),
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let info = match client.get_instance_info(instance).await {
        Ok(info) if info.status == "Failed" => info.output.unwrap_or_default(),
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    (status, info)
}

async fn stops_only_the_damaged_instance(sql: &str, reason: &str) {
    let file = DamagedFile::new(sql).await;
    let node = file.opened().await;
    for instance in UNDAMAGED {
        assert_eq!(node.output_of(instance).await, "paid gone value");
    }
    until(&format!("{sql} is reported as {reason}"), async || {
        let (status, info) = reported(&node.client, "damaged").await;
        status.contains(reason) && info.contains(reason)
    })
    .await;
    node.client.start_orchestration("new", "Order", "first").await.unwrap();
    node.client.raise_event("new", "go", "gone").await.unwrap();
    node.completes_when_signalled("new").await;
    node.client.delete_instance("damaged", true).await.unwrap();
    node.runtime.shutdown(None).await;
}

impl NodeUnderTest {
    async fn completes_when_signalled(&self, instance: &str) {
        // A signal that arrives before its wait is not delivered; a later one is.
        until("the new instance completes", async || {
            self.client.raise_event(instance, "go", "gone").await.unwrap();
            self.client.get_orchestration_status(instance).await.unwrap().is_terminal()
        })
        .await;
    }
}

macro_rules! damage_cases {
    ($($name:ident: $sql:literal => $reason:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                stops_only_the_damaged_instance($sql, $reason).await;
            }
        )*
    };
}

damage_cases! {
    an_event_cut_short_stops_only_its_instance:
        "UPDATE everturn_history SET events = substr(events, 1, 20) WHERE instance_key = {key} \
         AND execution_id = 2 AND first_event_id = 1" => "of execution 2 are damaged";
    an_event_that_is_not_text_stops_only_its_instance:
        "UPDATE everturn_history SET events = CAST(x'5b7bfffe' AS TEXT) WHERE instance_key = {key} \
         AND execution_id = 2 AND first_event_id = 1" => "of execution 2 are damaged";
    an_event_of_an_unknown_kind_stops_only_its_instance:
        "UPDATE everturn_history SET events = replace(events, 'ActivityScheduled', 'Nonsense') \
         WHERE instance_key = {key} AND execution_id = 2 AND first_event_id = 1" => "of execution 2 are damaged";
    a_lost_event_stops_only_its_instance:
        "DELETE FROM everturn_history WHERE instance_key = {key} AND execution_id = 2 AND first_event_id = 1" => "missing";
    a_message_that_cannot_be_read_stops_only_its_instance:
        "UPDATE everturn_orchestrator_queue SET work_item = '{' WHERE instance_key = {key}" => "orchestrator queue row";
    a_damaged_key_stops_only_its_instance:
        "UPDATE everturn_kv_base SET value = CAST(x'ff' AS TEXT) WHERE instance_key = {key}" => "key-value store";
    a_damaged_pin_stops_only_its_instance:
        "UPDATE everturn_executions SET pinned_engine_version = 'x' WHERE instance_key = {key} AND execution_id = 2"
            => "pinned version";
    a_current_execution_that_is_missing_stops_only_its_instance:
        "UPDATE everturn_instances SET current_execution_id = 77 WHERE instance_id = 'damaged'" => "missing";
    an_activity_that_cannot_be_read_fails_only_its_instance:
        "UPDATE everturn_worker_queue SET work_item = '{' WHERE instance_id = 'damaged'" => "worker queue row";
    an_activity_of_an_unknown_kind_fails_only_its_instance:
        "UPDATE everturn_worker_queue SET work_item = replace(work_item, 'ActivityExecute', 'Nonsense') \
         WHERE instance_id = 'damaged'" => "worker queue row";
}

/// Counters and hints may be damaged: the instance completes as usual.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_figures_do_not_stop_an_instance() {
    let file = DamagedFile::new(
        "UPDATE everturn_executions SET event_bytes = 9223372036854775807, carried_count = 9223372036854775807, \
         start_event_id = 12345 WHERE instance_key = {key} AND execution_id = 2",
    )
    .await;
    let conn = Connection::open(&file.path).unwrap();
    conn.execute(
        "UPDATE everturn_instances SET turn_stamp = 3, updated_at_ms = -1, event_bytes = 9223372036854775807 WHERE instance_id = 'damaged'",
        [],
    )
    .unwrap();
    drop(conn);
    let node = file.opened().await;
    for instance in ["damaged", UNDAMAGED[0], UNDAMAGED[1]] {
        assert_eq!(node.output_of(instance).await, "paid gone value");
    }
    node.runtime.shutdown(None).await;
}
