//! Power cuts: all processes end at once, and start again later.

use std::sync::Arc;

use tokio::time::sleep;

use crate::checks;
use crate::fault_plan::Fault;
use crate::scenario::Scenario;
use crate::world::in_time;

/// How long there is no power, at most.
const DOWN_MS_MAX: u64 = 2_000;

/// Waits for power cuts, and restarts the world after each of them.
pub(crate) async fn watch(scenario: Arc<Scenario>) {
    loop {
        scenario.store.power_failure().await;
        scenario.cut_power();
        loop {
            scenario.fault(Fault::PowerCut, format_args!("all processes end"));
            in_time(&scenario, "closing the store", scenario.clients().kill()).await;
            in_time(&scenario, "stopping all nodes", scenario.all_ended()).await;
            sleep(scenario.some_ms(0, DOWN_MS_MAX)).await;
            scenario.store.restart();
            tokio::select! {
                biased;
                () = scenario.store.power_failure() => {}
                _ = in_time(&scenario, "opening the store after a power cut", recover(&scenario)) => break,
            }
        }
        scenario.trace(format_args!("the power is back"));
        scenario.restore_power();
    }
}

/// Opens the store for clients, and checks what is there before any process goes on.
async fn recover(scenario: &Scenario) {
    // The disk may fail while the store is opened; the caller tries again.
    let clients = loop {
        match scenario.store.open().await {
            Ok(clients) => break clients,
            Err(error) => {
                scenario.trace(format_args!("the store cannot be opened: {error}"));
                sleep(scenario.some_ms(1, 200)).await;
            }
        }
    };
    scenario.set_clients(clients);
    checks::check_after_power_cut(scenario).await;
}
