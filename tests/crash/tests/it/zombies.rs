//! R6: processes that are stopped past their locks, and go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_crash_tests::chance::{Chance, chance};
use everturn_crash_tests::ledger::{Fact, Ledger};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::tally::Tally;
use everturn_crash_tests::victim::{LOCK, hold};
use everturn_proof::{Counts, proof};

use crate::kills::Scene;
use crate::process::Process;

/// How many instances come with every stop.
const INSTANCES: usize = 16;
/// How often working processes are stopped in one case.
const STALLS: usize = 3;
/// Longer than any lock of a victim, renewed at the last moment.
const PAST_THE_LOCK: Duration = LOCK.saturating_add(Duration::from_millis(150));
/// How long processes may take to begin to work.
const PATIENCE: Duration = Duration::from_secs(30);

fn case(seed: u64, tally: &Tally) -> Result<Counts, String> {
    let mut chance = chance(seed);
    let mut scene = Scene::new();
    let _tallied = tally.case(&scene.ledger);
    let mut counts = Counts::default();
    let mut holder = Process::start(&["hold", &scene.database()], &Arc::new(Ledger::default()));
    holder.wait_for("holding")?;
    holder.stop();
    counts.add("stops", 1);
    for held in [hold::TURN, hold::WORK] {
        scene.ledger.add(held.to_owned(), Plan::Chain(1));
        scene.ledger.learn(Fact::Started(held.to_owned()));
    }
    // In some cases nobody takes over before the locks are used: that they have ended is enough.
    if chance.percent(25) {
        std::thread::sleep(PAST_THE_LOCK);
    } else {
        for _ in 0..STALLS {
            stall(&mut scene, &mut chance, &mut counts)?;
        }
    }
    holder.go_on();
    holder.say_go();
    loop {
        match holder.heard()?.as_str() {
            "refused late" => counts.add("late commits of holders refused", 1),
            "done" => break,
            other => return Err(other.to_owned()),
        }
    }
    drop(holder);
    scene.inspect()?;
    scene.finish(&mut counts)?;
    let known = scene.ledger.known();
    counts.add("locks of workers that ended", known.locks_ended);
    counts.add("late commits of workers refused", known.refused_late);
    Ok(counts)
}

/// Processes at work, of which one is stopped in the middle of it, or all are: past their locks. Then they go on, and see
/// everything through.
fn stall(scene: &mut Scene, chance: &mut Chance, counts: &mut Counts) -> Result<(), String> {
    scene.add(INSTANCES, chance);
    let mut processes = scene.start(2 + chance.index(2))?;
    let turns = scene.ledger.known().turns + 1 + chance.below(12);
    let began = Instant::now();
    while scene.ledger.known().turns < turns {
        std::thread::yield_now();
        if began.elapsed() > PATIENCE {
            return Err("nobody works".to_owned());
        }
    }
    let all = chance.percent(30);
    let first = chance.index(processes.len());
    let stopped = if all { &processes[..] } else { &processes[first..=first] };
    stopped.iter().for_each(Process::stop);
    std::thread::sleep(PAST_THE_LOCK);
    stopped.iter().for_each(Process::go_on);
    counts.add("stops", stopped.len() as u64);
    counts.add("stops of workers", stopped.len() as u64);
    for process in &processes {
        process.wait_for("all seen through")?;
    }
    for process in &mut processes {
        process.say_go();
    }
    for process in processes {
        process.end()?;
    }
    Ok(())
}

#[test]
fn r6_whoever_was_stopped_past_its_locks_cannot_commit() {
    let proof = proof!("R6", "r6_whoever_was_stopped_past_its_locks_cannot_commit", 40);
    let tally = Tally::default();
    let counts = proof.run("stops", |seed| case(seed, &tally));
    tally.require_finished().unwrap();
    let (stops, workers) = (counts.get("stops"), counts.get("stops of workers"));
    // A turn, an activity and the renewals of both, of every holder.
    proof.require(&counts, "late commits of holders refused", (stops - workers) * 4);
    // Some are stopped with nothing in hand. Who has heard of the time lets most locks go by itself; what it tries all the
    // same is refused.
    proof.require(&counts, "locks of workers that ended", workers / 4);
    proof.require(&counts, "turns", stops * 10);
}
