//! The provider contract on a real server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everturn_conformance::{ProviderFactory, WorkerRowDamage};
use everturn_postgres::{PostgresOptions, PostgresProvider, testing};
use everturn_provider::{Clock, ManualClock, Provider};
use everturn_test_server::shared_url;
use tokio_postgres::NoTls;
use tokio_postgres::types::ToSql;

/// The time at which every store begins.
const BEGINNING_MS: u64 = 1_700_000_000_000;

/// A schema that no other test uses.
pub(crate) fn new_schema() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Stores in schemas of their own.
pub(crate) struct SchemaFactory {
    schema: String,
    clock: Arc<ManualClock>,
    opened: Mutex<Option<Arc<PostgresProvider>>>,
}

impl SchemaFactory {
    pub(crate) fn new() -> Self {
        Self {
            schema: new_schema(),
            clock: Arc::new(ManualClock::new(BEGINNING_MS)),
            opened: Mutex::new(None),
        }
    }

    /// Changes rows behind the provider, as a failing disk would.
    async fn change(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> u64 {
        let (client, connection) = tokio_postgres::connect(shared_url(), NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let changed = client.execute(&sql.replace("{schema}", &self.schema), parameters).await.unwrap();
        driver.abort();
        changed
    }
}

#[async_trait]
impl ProviderFactory for SchemaFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        let options =
            PostgresOptions { schema: self.schema.clone(), readers_max: 2, ..PostgresOptions::default() };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let provider = Arc::new(testing::open(shared_url(), options, clock).await.unwrap());
        *self.opened.lock().unwrap() = Some(Arc::clone(&provider));
        provider
    }

    async fn reopen(&self, provider: Arc<dyn Provider>) -> Option<Arc<dyn Provider>> {
        drop(provider);
        let opened = self.opened.lock().unwrap().take();
        opened.expect("a provider to close").close().await;
        Some(self.open().await)
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
        let [execution_id, event_id] = [execution_id, event_id].map(|id| i64::try_from(id).unwrap());
        let damaged = self
            .change(
                "UPDATE {schema}.everturn_history SET events = '[{damaged' \
                 WHERE execution_id = $2 AND $3 BETWEEN first_event_id AND last_event_id \
                 AND instance_key = (SELECT instance_key FROM {schema}.everturn_instances WHERE instance_id = $1)",
                &[&instance, &execution_id, &event_id],
            )
            .await;
        assert_eq!(damaged, 1, "there is such an event");
    }

    async fn message_attempts(&self, _: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        let (client, connection) = tokio_postgres::connect(shared_url(), NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let sql = "SELECT q.attempt_count FROM {schema}.everturn_orchestrator_queue AS q \
             JOIN {schema}.everturn_instances AS i ON i.instance_key = q.instance_key WHERE i.instance_id = $1 ORDER BY q.seq";
        let rows = client.query(&sql.replace("{schema}", &self.schema), &[&instance]).await.unwrap();
        driver.abort();
        Some(rows.iter().map(|row| u32::try_from(row.get::<_, i64>(0)).unwrap()).collect())
    }

    async fn damage_orchestrator_rows(&self, _: &Arc<dyn Provider>, instance: &str) -> bool {
        let sql = "UPDATE {schema}.everturn_orchestrator_queue SET work_item = '{damaged' \
             WHERE instance_key = (SELECT instance_key FROM {schema}.everturn_instances WHERE instance_id = $1)";
        self.change(sql, &[&instance]).await > 0
    }

    async fn damage_worker_rows(
        &self,
        _: &Arc<dyn Provider>,
        instance: &str,
        damage: WorkerRowDamage,
    ) -> bool {
        let sql = match damage {
            WorkerRowDamage::Item => {
                "UPDATE {schema}.everturn_worker_queue SET work_item = '{damaged' WHERE instance_id = $1"
            }
            WorkerRowDamage::ItemAndIdentity => {
                "UPDATE {schema}.everturn_worker_queue SET work_item = '{damaged', instance_id = '', execution_id = 0, \
                 activity_id = 0 WHERE instance_id = $1"
            }
        };
        self.change(sql, &[&instance]).await > 0
    }
}

everturn_conformance::provider_tests!(SchemaFactory::new());
