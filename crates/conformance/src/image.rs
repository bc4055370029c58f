//! All that can be seen of a store, to find out whether anything changed.

use std::collections::BTreeMap;
use std::fmt::Write;

use everturn_provider::Provider;

use crate::harness::Harness;

/// Everything that can be seen of these instances and of the store as a whole, as text that can be compared.
pub(crate) async fn image(h: &Harness, instances: &[&str]) -> String {
    format!("{}{}", image_of(&**h, &[]).await, image_of_instances(h, instances).await)
}

/// Everything that can be seen of these instances alone.
pub(crate) async fn image_of_instances(h: &Harness, instances: &[&str]) -> String {
    let mut image = String::new();
    for instance in instances {
        write_instance(&**h, instance, &mut image).await;
        writeln!(image, "  attempts {:?}", h.message_attempts(instance).await).unwrap();
    }
    image
}

/// What reading shows of a provider that no harness is around.
pub(crate) async fn image_of(h: &dyn Provider, instances: &[&str]) -> String {
    let admin = h.as_management_capability().expect("the provider has a management side");
    let mut image = String::new();
    let depths = admin.get_queue_depths().await.unwrap();
    let metrics = admin.get_system_metrics().await.unwrap();
    let listed = admin.list_instances().await.unwrap();
    writeln!(image, "{depths:?}\n{metrics:?}\n{listed:?}").unwrap();
    for instance in instances {
        write_instance(h, instance, &mut image).await;
    }
    image
}

async fn write_instance(h: &dyn Provider, instance: &str, image: &mut String) {
    let admin = h.as_management_capability().expect("the provider has a management side");
    let executions = admin.list_executions(instance).await.unwrap();
    let current = admin.latest_execution_id(instance).await.unwrap();
    let info = admin.get_instance_info(instance).await.ok();
    let told = h.read_status(instance).await.unwrap();
    let status = h.get_custom_status(instance, 0).await.unwrap();
    let kv: BTreeMap<String, String> = h.get_kv_all_values(instance).await.unwrap().into_iter().collect();
    let stats = h.get_instance_stats(instance).await.unwrap();
    writeln!(image, "{instance} {executions:?} {current} {info:?} {told:?} {status:?} {kv:?} {stats:?}")
        .unwrap();
    for execution in executions {
        let info = admin.get_execution_info(instance, execution).await.unwrap();
        let history = h.read_with_execution(instance, execution).await.unwrap();
        writeln!(image, "  {info:?}").unwrap();
        for event in history {
            writeln!(image, "    {event:?}").unwrap();
        }
    }
}
