//! All that can be seen of a store, to find out whether anything changed.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::harness::{CaseHarness, StoreHandle};

/// Everything that can be seen of these instances and of the store as a whole, as text that can be compared.
pub(crate) async fn image(h: &CaseHarness, instances: &[&str]) -> String {
    format!("{}{}", image_of(h, &[]).await, image_of_instances(h, instances).await)
}

/// Everything that can be seen of these instances alone.
pub(crate) async fn image_of_instances(h: &CaseHarness, instances: &[&str]) -> String {
    let mut image = String::new();
    for instance in instances {
        write_instance(h, instance, &mut image).await;
        writeln!(image, "  attempts {:?}", h.message_attempts(instance).await).unwrap();
    }
    image
}

/// What reading shows of a store without a harness.
pub(crate) async fn image_of(store: &StoreHandle, instances: &[&str]) -> String {
    let admin = store.admin();
    let mut image = String::new();
    let depths = admin.get_queue_depths().await.unwrap();
    let metrics = admin.get_system_metrics().await.unwrap();
    let listed = admin.list_instances().await.unwrap();
    writeln!(image, "{depths:?}\n{metrics:?}\n{listed:?}").unwrap();
    for instance in instances {
        write_instance(store, instance, &mut image).await;
    }
    image
}

async fn write_instance(store: &StoreHandle, instance: &str, image: &mut String) {
    let admin = store.admin();
    let executions = admin.list_executions(instance).await.unwrap();
    let current = admin.latest_execution_id(instance).await.unwrap();
    let info = admin.get_instance_info(instance).await.ok();
    let read_status = store.read_status(instance).await.unwrap();
    let status = store.read_custom_status(instance, 0).await.unwrap();
    let kv: BTreeMap<String, String> = store.read_kv_values(instance).await.unwrap().into_iter().collect();
    let stats = store.read_stats(instance).await.unwrap();
    writeln!(
        image,
        "{instance} {executions:?} {current} {info:?} {read_status:?} {status:?} {kv:?} {stats:?}"
    )
    .unwrap();
    for execution in executions {
        let info = admin.get_execution_info(instance, execution).await.unwrap();
        let history = store.history_of(instance, execution).await.unwrap();
        writeln!(image, "  {info:?}").unwrap();
        for event in history {
            writeln!(image, "    {event:?}").unwrap();
        }
    }
}
