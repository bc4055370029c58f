//! Power cuts: everybody dies at once, and somebody switches the machine on again.

use std::sync::Arc;

use tokio::time::sleep;

use crate::checks;
use crate::scene::Scene;
use crate::weather::Fault;
use crate::world::in_time;

/// How long it stays dark, at most.
const DARK_MS_MAX: u64 = 2_000;

/// Waits for power cuts, and sees the world through each of them.
pub(crate) async fn watch(scene: Arc<Scene>) {
    loop {
        scene.store.outage().await;
        scene.go_dark();
        loop {
            scene.fault(Fault::PowerCut, format_args!("everybody dies"));
            in_time(&scene, "closing the store", scene.clients().kill()).await;
            in_time(&scene, "stopping all nodes", scene.all_down()).await;
            sleep(scene.some_ms(0, DARK_MS_MAX)).await;
            scene.store.restart();
            tokio::select! {
                biased;
                () = scene.store.outage() => {}
                _ = in_time(&scene, "opening the store after a power cut", recover(&scene)) => break,
            }
        }
        scene.note(format_args!("the power is back"));
        scene.light_up();
    }
}

/// Opens the store for clients, and looks at what is there before anybody goes on.
async fn recover(scene: &Scene) {
    // The disk may fail while the store is opened; whoever wants it tries again.
    let clients = loop {
        match scene.store.open().await {
            Ok(clients) => break clients,
            Err(error) => {
                scene.note(format_args!("the store cannot be opened: {error}"));
                sleep(scene.some_ms(1, 200)).await;
            }
        }
    };
    scene.set_clients(clients);
    checks::check_after_power_cut(scene).await;
}
