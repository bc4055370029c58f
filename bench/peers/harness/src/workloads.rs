//! The workloads, as `bench/src/workloads` has them for Everturn.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everturn_bench_protocol::{
    BenchResult, Figures, MeasureReply, MeasureRequest, median, payload, resident_mb, since_epoch_s,
};
use tokio::task::JoinSet;

use crate::{Peer, probe};

/// How many tasks send messages or start waiting instances.
const SENDERS: u64 = 50;

pub(crate) async fn measure<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    match request.workload.as_str() {
        "chain" => chain(peer, request).await,
        "throughput" => throughput(peer, request).await,
        "fan-out" => one_of_many(peer, request, "fan_out", "activities").await,
        "children" => one_of_many(peer, request, "parent", "children").await,
        "long-history" => long_history(peer, request).await,
        "idle-latency" => idle_latency(peer, request).await,
        "timers" => timers(peer, request).await,
        "messages" => messages(peer, request).await,
        "memory" => memory(peer, request).await,
        "prepare-cold-start" => prepare_cold_start(peer, request).await,
        "cold-start" => cold_start(peer, request).await,
        other => Ok(MeasureReply::Absent(format!("it does not have the workload {other}"))),
    }
}

/// Runs the work until its end or until its time is up; true in the second case.
async fn is_stopped(
    request: &MeasureRequest,
    work: impl Future<Output = BenchResult<()>>,
) -> BenchResult<bool> {
    match tokio::time::timeout(request.stop_after, work).await {
        Ok(result) => result.map(|()| false),
        Err(_) => Ok(true),
    }
}

async fn chain<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let steps = request.size("steps")?.to_string();
    let stopped = is_stopped(request, peer.run("chain", "chain-1".to_owned(), steps)).await?;
    let figures = Figures::of([("step_s", median(&probe().step_seconds())?)]);
    Ok(MeasureReply::Measured { figures, stopped })
}

async fn long_history<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let steps = request.size("steps")?;
    let stopped = is_stopped(request, peer.run("chain", "chain-1".to_owned(), steps.to_string())).await?;
    let figures = Figures::of_history(&probe().step_seconds(), steps)?;
    Ok(MeasureReply::Measured { figures, stopped })
}

async fn throughput<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let instances = request.size("instances")?;
    let payload = payload(request.size_or_zero("payload_bytes"));
    let began = Instant::now();
    let work = async {
        let mut runs = JoinSet::new();
        for number in 0..instances {
            let (peer, payload) = (peer.clone(), payload.clone());
            runs.spawn(async move { peer.run("steps", format!("run-{number}"), payload).await });
        }
        while let Some(run) = runs.join_next().await {
            run??;
        }
        Ok(())
    };
    let stopped = is_stopped(request, work).await?;
    let elapsed_s = began.elapsed().as_secs_f64();
    let rate = Figures::of_rate(probe().steps(), 1, elapsed_s)?.get("per_s")?;
    Ok(MeasureReply::Measured { figures: Figures::of([("activities_per_s", rate)]), stopped })
}

/// One workflow that does many things at the same time.
async fn one_of_many<P: Peer>(
    peer: &P,
    request: &MeasureRequest,
    workflow: &'static str,
    size: &str,
) -> BenchResult<MeasureReply> {
    let all = request.size(size)?;
    let began = Instant::now();
    let work = peer.run(workflow, "one-1".to_owned(), all.to_string());
    let stopped = is_stopped(request, work).await?;
    let elapsed_s = began.elapsed().as_secs_f64();
    let done = if stopped { probe().steps() } else { all };
    Ok(MeasureReply::Measured { figures: Figures::of_rate(done, all, elapsed_s)?, stopped })
}

async fn idle_latency<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let rounds = request.size("rounds")?;
    let rest = Duration::from_millis(request.size("rest_ms")?);
    let mut seconds = Vec::new();
    let work = async {
        for round in 0..rounds {
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let began = Instant::now();
            peer.run("greet", format!("greeting-{round}"), "world".to_owned()).await?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        Ok(())
    };
    let stopped = is_stopped(request, work).await?;
    let figures = Figures::of_latency(&seconds)?;
    Ok(MeasureReply::Measured { figures, stopped })
}

async fn timers<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let late_ms = Arc::new(Mutex::new(Vec::new()));
    let work = async {
        let mut runs = JoinSet::new();
        for number in 0..request.size("instances")? {
            let (peer, late_ms) = (peer.clone(), Arc::clone(&late_ms));
            runs.spawn(async move {
                let id = format!("sleeper-{number}");
                peer.run("sleeper", id.clone(), id.clone()).await?;
                let ended = Instant::now();
                let asked = probe().asked(&id).ok_or_else(|| format!("{id} asked for no timer"))?;
                let due = asked + probe().sleep();
                let late_s = ended.saturating_duration_since(due).as_secs_f64()
                    - due.saturating_duration_since(ended).as_secs_f64();
                late_ms.lock().unwrap_or_else(PoisonError::into_inner).push(late_s * 1_000.0);
                BenchResult::Ok(())
            });
        }
        while let Some(run) = runs.join_next().await {
            run??;
        }
        Ok(())
    };
    let stopped = is_stopped(request, work).await?;
    let late_ms = late_ms.lock().unwrap_or_else(PoisonError::into_inner);
    let figures = Figures::of_lateness(&late_ms)?;
    Ok(MeasureReply::Measured { figures, stopped })
}

async fn messages<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let messages = request.size("messages")?;
    let began = Instant::now();
    let work = async {
        let inbox = peer.start("inbox", "inbox-1".to_owned(), messages.to_string()).await?;
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            let peer = peer.clone();
            senders.spawn(async move {
                for number in (sender..messages).step_by(SENDERS as usize) {
                    peer.send("inbox-1", number.to_string()).await?;
                }
                BenchResult::Ok(())
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender??;
        }
        peer.wait(inbox).await
    };
    let stopped = is_stopped(request, work).await?;
    let elapsed_s = began.elapsed().as_secs_f64();
    let done = if stopped { probe().steps() } else { messages };
    Ok(MeasureReply::Measured { figures: Figures::of_rate(done, messages, elapsed_s)?, stopped })
}

/// Starts instances that wait, until there are as many as asked for or the time is up; returns how many there are.
async fn start_waiters<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<u64> {
    let instances = request.size("instances")?;
    let started = Arc::new(Mutex::new(0));
    let work = async {
        let mut starters = JoinSet::new();
        for starter in 0..SENDERS {
            let (peer, started) = (peer.clone(), Arc::clone(&started));
            starters.spawn(async move {
                for number in (starter..instances).step_by(SENDERS as usize) {
                    peer.start("waiter", format!("waiter-{number}"), String::new()).await?;
                    *started.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                }
                BenchResult::Ok(())
            });
        }
        while let Some(starter) = starters.join_next().await {
            starter??;
        }
        Ok(())
    };
    is_stopped(request, work).await?;
    Ok(*started.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn memory<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let resident = || -> BenchResult<f64> {
        let server_mb = peer.server_process().map_or(Ok(0.0), |process| resident_mb(Some(process)))?;
        Ok(resident_mb(None)? + server_mb)
    };
    let empty_mb = resident()?;
    let (waiting, instances) = (start_waiters(peer, request).await?, request.size("instances")?);
    if waiting < instances {
        return Ok(MeasureReply::Absent(format!("only {waiting} of {instances} instances waited in time")));
    }
    let resident_mb = resident()?;
    let figures = Figures::of([
        ("resident_mb", resident_mb),
        ("kb_per_instance", 1_000.0 * (resident_mb - empty_mb) / waiting as f64),
        ("waiting", waiting as f64),
    ]);
    Ok(MeasureReply::whole(figures))
}

async fn prepare_cold_start<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let waiting = start_waiters(peer, request).await?;
    let figures = Figures::of([("waiting", waiting as f64)]);
    Ok(MeasureReply::Measured { figures, stopped: waiting < request.size("instances")? })
}

async fn cold_start<P: Peer>(peer: &P, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let opened_s = since_epoch_s() - request.began_s;
    let id = format!("greeting-{}", request.began_s);
    peer.start("greet", id, "world".to_owned()).await?;
    let stopped = is_stopped(request, async {
        probe().wait_for_a_step().await;
        Ok(())
    })
    .await?;
    let first_step_s = since_epoch_s() - request.began_s;
    let figures = Figures::of([("first_step_s", first_step_s), ("opened_s", opened_s)]);
    Ok(MeasureReply::Measured { figures, stopped })
}
