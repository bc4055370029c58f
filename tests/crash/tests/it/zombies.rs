//! R6: processes that are stopped past their locks, and go on.

use std::sync::Arc;
use std::time::Duration;

use everturn_crash_tests::chance::{Chance, chance};
use everturn_crash_tests::ledger::{Fact, Ledger};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::victim::{LOCK, hold};
use everturn_proof::{Counts, is_stress_run, proof};

use crate::kills::Scene;
use crate::process::{Process, SEEN_THROUGH};

/// How many instances come with every stop.
const INSTANCES: usize = 16;
/// How often working processes are stopped in one case.
const STALLS: usize = 3;
/// Longer than any lock of a victim, renewed at the last moment.
const PAST_THE_LOCK: Duration = LOCK.saturating_add(Duration::from_millis(150));
/// A process is stopped when it has committed one of its first so many turns.
const TURNS_MAX: u64 = 8;

fn case(seed: u64) -> Result<Counts, String> {
    let mut chance = chance(seed);
    let mut scene = Scene::new();
    let mut counts = Counts::default();
    let mut holder = Process::start(&["hold", &scene.database()], &Arc::new(Ledger::default()));
    holder.wait_for("holding")?;
    holder.stop();
    counts.add("stops", 1);
    counts.add("stops of holders", 1);
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
    let all = chance.percent(30);
    let first = chance.index(processes.len());
    let at_work = processes[first].has_done(1 + chance.below(TURNS_MAX))?;
    let stopped = if all { &processes[..] } else { &processes[first..=first] };
    stopped.iter().for_each(Process::stop);
    std::thread::sleep(PAST_THE_LOCK);
    let before: Vec<u64> = stopped.iter().map(Process::locks_ended).collect();
    stopped.iter().for_each(Process::go_on);
    for process in &processes {
        process.wait_for(SEEN_THROUGH)?;
    }
    counts.add("stops", stopped.len() as u64);
    // One that has nothing to do any more is not stopped at work.
    if at_work {
        let ended = stopped.iter().zip(before).any(|(process, before)| process.locks_ended() > before);
        counts.add("times that workers were stopped", 1);
        counts.add("times that a lock ended then", u64::from(ended));
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
    let counts = proof.run("stops", case);
    let (stops, times) = (counts.get("stops"), counts.get("times that workers were stopped"));
    // A turn, an activity and the renewals of both, of every holder.
    proof.require(&counts, "late commits of holders refused", counts.get("stops of holders") * 4);
    // Some are stopped with nothing in hand. Who has heard of the time lets most locks go by itself; what it tries all the
    // same is refused.
    if stops >= 20 {
        proof.require(&counts, "times that workers were stopped", stops / 4);
        // With one operation a commit a process mostly waits for its turn to commit, with nothing in hand.
        let least = if is_stress_run() { times / 6 } else { times / 2 + 1 };
        proof.require(&counts, "times that a lock ended then", least);
    }
    proof.require(&counts, "turns", stops * 18);
}

/// A long run found it on a busy machine: a process died of "database is locked" while it opened the file.
#[test]
fn a_seed_that_once_broke_something() {
    case(1_794_813_448_000_003).unwrap();
}
