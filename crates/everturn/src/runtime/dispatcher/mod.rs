//! Orchestration slots: fetch an instance, take its turn, commit, repeat.

mod after_commit;
mod batch;
mod claim;
mod collision;
mod commit;
mod in_flight;
mod lifecycle_log;
mod metadata;
mod outcome_metrics;
mod parent_execution;
mod pipeline;
mod poison;
mod refusal;
mod shadow;
pub(crate) mod standing;
mod start_event;
mod turn_run;
mod unregistered;

use std::sync::Arc;

use everturn_provider::WarmView;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::pacing::Pace;
use in_flight::InFlight;

/// Runs one slot until told to stop.
pub(crate) async fn run_slot(node: Arc<Node>, slot: usize, stop: CancellationToken) {
    let worker_id = node.dispatcher_id(slot);
    let warm: Arc<dyn WarmView> = Arc::new(node.warm.clone());
    let mut pace = Pace::new(node.options.dispatcher_min_poll_interval);
    let mut in_flight = InFlight::default();
    while !stop.is_cancelled() {
        let fetched_at = Instant::now();
        let fetch = node.store.fetch_turn(
            node.options.orchestrator_lock_timeout,
            node.options.dispatcher_long_poll_timeout,
            Some(&node.filter),
            Arc::clone(&warm),
        );
        let fetched = tokio::select! {
            biased;
            fetched = in_flight.beside(fetch) => fetched,
            () = stop.cancelled() => break,
        };
        match fetched {
            Ok(Some(fetched)) if stop.is_cancelled() => {
                // Nothing of it has run: as if it had not been fetched.
                in_flight.beside(claim::abandon(&node, &fetched.lock_token, None, true)).await;
            }
            Ok(Some(fetched)) => {
                pace.found();
                in_flight.push(pipeline::process(&node, &worker_id, fetched));
            }
            Ok(None) => in_flight.beside(pace.found_nothing(fetched_at, &stop)).await,
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::dispatchers::orchestration", %worker_id, %error,
                    "fetching an orchestration failed");
                in_flight.beside(pace.failed(&error, &stop)).await;
            }
        }
    }
    in_flight.finish().await;
}
