//! A process that drives instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use everturn::Client;

use super::{open, print_line, print_observation, start, wait_for_go};
use crate::clients::drive;
use crate::observations::{InstanceObservations, ObservationLog};

/// Drives its share of the instances in the file `observations`: those with number `share.0` modulo `share.1`.
pub async fn run(database: &str, observations: &str, share: (usize, usize), first_run: u64) {
    let file = std::fs::read(observations).unwrap();
    let instances: BTreeMap<String, InstanceObservations> = serde_json::from_slice(&file).unwrap();
    let provider = open(database).await;
    let log = Arc::new(ObservationLog::resume(instances.clone(), first_run, Some(print_observation)));
    let runtime = start(&provider, &log, share).await;
    print_line("ready");
    let mine = instances
        .iter()
        .enumerate()
        .filter(|(index, (_, observed))| index % share.1 == share.0 && observed.outcome.is_none());
    let clients: Vec<_> = mine
        .map(|(_, (instance, _))| {
            let (client, log, instance) = (Client::new(provider.clone()), Arc::clone(&log), instance.clone());
            tokio::spawn(async move { drive(&client, &log, &instance).await })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    print_line("all ended");
    // The test decides when to stop: other processes may still need this one.
    wait_for_go().await;
    runtime.shutdown(None).await;
    provider.close().await;
    print_line("done");
}
