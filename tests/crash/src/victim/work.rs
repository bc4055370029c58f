//! A process under load.

use std::collections::BTreeMap;
use std::sync::Arc;

use everturn::Client;

use super::{open, say, start, tell};
use crate::ledger::{Ledger, Told};
use crate::load::see_through;

/// Sees its share of the instances through: those whose number leaves `share.0` when divided by `share.1`.
pub async fn run(database: &str, told: &str, share: (usize, usize), first_run: u64) {
    let told: BTreeMap<String, Told> = serde_json::from_slice(&std::fs::read(told).unwrap()).unwrap();
    let provider = open(database).await;
    let ledger = Arc::new(Ledger::going_on(told.clone(), first_run, Some(tell)));
    let runtime = start(&provider, &ledger, share).await;
    say("ready");
    let mine = told
        .iter()
        .enumerate()
        .filter(|(index, (_, told))| index % share.1 == share.0 && told.outcome.is_none());
    let clients: Vec<_> = mine
        .map(|(_, (instance, _))| {
            let (client, ledger, instance) =
                (Client::new(provider.clone()), Arc::clone(&ledger), instance.clone());
            tokio::spawn(async move { see_through(&client, &ledger, &instance).await })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    say("all seen through");
    // Whoever started us says when it is enough: others may need us meanwhile.
    let stop = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    drop(stop.await);
    runtime.shutdown(None).await;
    provider.close().await;
    say("done");
}
