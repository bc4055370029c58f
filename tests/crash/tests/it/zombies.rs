//! R6: processes that are stopped past their locks, and go on.

use std::sync::Arc;
use std::time::Duration;

use everturn_crash_tests::ledger::{Fact, Ledger};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::proof::{Counts, Proof, chance};
use everturn_crash_tests::victim::{LOCK, hold};

use crate::kills::Scene;
use crate::process::Process;

/// How many instances are under way beside the held ones.
const INSTANCES: usize = 6;
/// Longer than any lock of a victim, renewed at the last moment.
const PAST_THE_LOCK: Duration = LOCK.saturating_add(Duration::from_millis(150));

fn case(seed: u64) -> Result<Counts, String> {
    let mut chance = chance(seed);
    let mut scene = Scene::new();
    let mut counts = Counts::default();
    let mut holder = Process::start(&["hold", &scene.database()], &Arc::new(Ledger::default()));
    holder.wait_for("holding")?;
    holder.stop();
    counts.add("stops", 1);
    for held in [hold::TURN, hold::WORK] {
        scene.ledger.add(held.to_owned(), Plan::Chain(1));
        scene.ledger.learn(Fact::Started(held.to_owned()));
    }
    scene.add(INSTANCES, &mut chance);
    // In some cases nobody takes over before the locks are used: that they have ended is enough.
    let alone = chance.percent(25);
    if alone {
        std::thread::sleep(PAST_THE_LOCK);
    } else {
        counts.add("stops", stalls(&mut scene, &mut chance)?);
    }
    holder.go_on();
    holder.say_go();
    loop {
        match holder.heard()?.as_str() {
            "refused late" => counts.add("late commits refused", 1),
            "done" => break,
            other => return Err(other.to_owned()),
        }
    }
    drop(holder);
    scene.inspect()?;
    scene.finish(&mut counts)?;
    Ok(counts)
}

/// Two processes at work on the instances of a third that is stopped; one of them is stopped too, past its own locks.
fn stalls(scene: &mut Scene, chance: &mut everturn_crash_tests::chance::Chance) -> Result<u64, String> {
    let mut processes = scene.start(2)?;
    let stopped = &processes[chance.index(2)];
    std::thread::sleep(Duration::from_micros(chance.below(20_000)));
    stopped.stop();
    std::thread::sleep(PAST_THE_LOCK);
    stopped.go_on();
    for process in &processes {
        process.wait_for("all seen through")?;
    }
    for process in &mut processes {
        process.say_go();
    }
    for process in processes {
        process.end()?;
    }
    Ok(1)
}

#[test]
fn r6_whoever_was_stopped_past_its_locks_cannot_commit() {
    let proof = Proof::new("R6", "r6_whoever_was_stopped_past_its_locks_cannot_commit", 20);
    let counts = proof.run("stops", case);
    proof.require_finished(&counts);
    // A turn, an activity and the renewals of both, of every holder.
    proof.require(&counts, "late commits refused", counts.get("stops") * 2);
}
