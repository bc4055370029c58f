//! Orchestration slots: fetch a locked instance, decide what to do with it, carry that out, repeat.
//!
//! The path of a fetched turn, in the order of the files:
//!
//! 1. [`run_slot`] fetches a turn: an instance with its messages and, unless it is warm, its history.
//! 2. [`LockedInstance`] keeps the instance's lock alive until the turn is over.
//! 3. [`decide`] chooses one [`Decision`]: run, give back, leave to others, acknowledge or fail. It reads nothing but the
//!    fetched turn.
//! 4. [`process_turn`] carries the decision out: [`run_turn`] takes and commits a turn of the user's code,
//!    [`record_poison`] commits a failure, and the other three touch the queue only.
//! 5. [`LockedInstance::commit_turn`] writes what was decided, and only then reports it.
//!
//! [`run_step`] takes turns that need no fetch: activities of an instance in memory have ended in this process.

mod commit_turn;
mod decision;
mod duplicate_start;
pub(crate) mod execution_start;
mod execution_state;
mod execution_update;
mod in_flight;
mod locked_instance;
mod parent_execution;
mod poison_events;
mod record_failure;
mod record_poison;
pub(crate) mod run_step;
mod run_turn;
mod shadow_replay;
mod slot_turns;
mod turn_report;

use std::sync::Arc;

use everturn_core::limits::MAX_TURNS_IN_HAND;
use everturn_provider::store::{Feature, FetchedTurn, LockKind, TurnFetch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::pacing::FetchPace;
use super::unfinished_work::WorkUnderWay;
use decision::{Decision, decide};
use in_flight::InFlightTurns;
use locked_instance::{LockedInstance, abandon_unbegun};
use record_poison::record_poison;
use run_turn::run_turn;
use slot_turns::SlotTurns;

/// Runs one slot until `stop` is cancelled. Turns in flight are finished first.
pub(crate) async fn run_slot(node: Arc<Node>, slot: usize, stop: CancellationToken) {
    let worker_id = node.dispatcher_id(slot);
    let options = &node.options;
    let mut fetch = TurnFetch::new(options.orchestrator_lock_timeout, options.dispatcher_long_poll_timeout)
        .with_filter(node.filter.clone())
        .with_turns_max(MAX_TURNS_IN_HAND);
    if node.store.supports(Feature::WarmInstances) {
        fetch = fetch.with_warm(Arc::new(node.warm.clone()));
    }
    fetch.handlers.clone_from(&node.handlers);
    let mut pace = FetchPace::new(options.dispatcher_min_poll_interval);
    let slot_turns = SlotTurns::new();
    let mut in_flight = InFlightTurns::new(node.locks.clone(), &slot_turns);
    while !stop.is_cancelled() {
        tokio::select! {
            biased;
            () = in_flight.beside(node.deferred_drops.are_few()) => {}
            () = stop.cancelled() => break,
        }
        let fetched_at = Instant::now();
        let fetched = tokio::select! {
            biased;
            fetched = in_flight.beside(node.store.fetch_turns(&fetch)) => fetched,
            () = stop.cancelled() => break,
        };
        match fetched {
            Ok(turns) if turns.is_empty() => in_flight.beside(pace.found_nothing(fetched_at, &stop)).await,
            Ok(turns) if stop.is_cancelled() => {
                for turn in turns {
                    // All of them before the first await: a shutdown that is not waited for abandons what has begun.
                    let under_way = begin(&node, &turn);
                    let instance_id = turn.item.instance.clone();
                    in_flight.push(instance_id, abandon_unbegun(&node, turn, under_way));
                }
            }
            Ok(turns) => {
                pace.found();
                let mut has_woken_keeper = false;
                for turn in turns {
                    let under_way = begin(&node, &turn);
                    let instance_id = turn.item.instance.clone();
                    // Kept from now on: the turn may wait for the code of those before it.
                    let locked = LockedInstance::new(&node, &worker_id, &slot_turns, &turn);
                    has_woken_keeper |= locked.lock.has_woken_keeper();
                    in_flight.push(instance_id, process_turn(locked, turn, under_way));
                }
                if has_woken_keeper {
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::dispatchers::orchestration", %worker_id, %error,
                    "fetching an orchestration failed; trying again after a pause");
                in_flight.beside(pace.failed(&error, &stop)).await;
            }
        }
    }
    in_flight.finish().await;
}

fn begin(node: &Node, turn: &FetchedTurn) -> WorkUnderWay {
    let lock_timeout = node.options.orchestrator_lock_timeout;
    node.unfinished.begin(LockKind::Orchestration, &turn.lock_token, lock_timeout)
}

/// Takes a fetched turn to its end: a commit, or an abandoned lock.
async fn process_turn(locked: LockedInstance<'_>, fetched: FetchedTurn, under_way: WorkUnderWay) {
    if let Some(metrics) = &locked.node.metrics {
        metrics.record_orchestration_item_fetched();
    }
    let decision = decide(&locked, fetched);
    if !matches!(decision, Decision::Run(_)) {
        // None of the user's code to wait for.
        locked.begin();
    }
    match decision {
        Decision::Run(turn) => run_turn(locked, turn).await,
        Decision::GiveBack { delay, ignore_attempt } => locked.abandon(delay, ignore_attempt).await,
        Decision::LeaveToOthers { delay, handler } => locked.leave_to_others(delay, handler).await,
        Decision::Acknowledge { notices } => locked.acknowledge(notices).await,
        Decision::Fail(poisoned) => record_poison(locked, poisoned).await,
    }
    under_way.finished();
}
