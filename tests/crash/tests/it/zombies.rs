//! R6: processes that are stopped until their locks have expired, and then go on.

use std::sync::Arc;
use std::time::Duration;

use everturn_crash_tests::instance_script::InstanceScript;
use everturn_crash_tests::observations::{Observation, ObservationLog};
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::victim::{LOCK, hold};
use everturn_proof::{Counts, is_stress_run, proof};
use everturn_simulation::SeededRandom;

use crate::kills::SharedDatabase;
use crate::victim_process::{ALL_ENDED, VictimProcess};

/// How many instances are added with every stop.
const INSTANCES: usize = 48;
/// How often working processes are stopped in a case.
const STALLS: usize = 3;
/// Longer than any lock of a victim is valid.
const STOPPED_FOR: Duration = LOCK.saturating_add(Duration::from_millis(150));
/// A process is stopped after one of its first this many turns.
const TURNS_MAX: u64 = 8;

fn case(seed: u64) -> Result<Counts, String> {
    let mut random = seeded(seed);
    let mut database = SharedDatabase::new();
    let mut counts = Counts::default();
    let mut holder =
        VictimProcess::start(&["hold", &database.database()], &Arc::new(ObservationLog::default()));
    holder.wait_for("holding")?;
    holder.stop();
    counts.add("stops", 1);
    counts.add("stops of holders", 1);
    for held in [hold::TURN, hold::WORK] {
        database.log.add(held.to_owned(), InstanceScript::Chain(1));
        database.log.record(Observation::Started(held.to_owned()));
    }
    // In some cases no other process takes the locks before they are used: expiry alone must void them.
    if random.percent(25) {
        std::thread::sleep(STOPPED_FOR);
    } else {
        for _ in 0..STALLS {
            stop_and_continue(&mut database, &mut random, &mut counts)?;
        }
    }
    holder.go_on();
    holder.send_go();
    loop {
        match holder.next_line()?.as_str() {
            "refused late" => counts.add("late commits of holders refused", 1),
            "done" => break,
            other => return Err(other.to_owned()),
        }
    }
    drop(holder);
    database.inspect()?;
    database.finish(&mut counts)?;
    let observations = database.log.snapshot();
    counts.add("locks of workers that ended", observations.locks_ended);
    counts.add("late commits of workers refused", observations.refused_late);
    Ok(counts)
}

/// Stops one process at work, or all, until their locks have expired. Then they go on, and all instances end.
fn stop_and_continue(
    database: &mut SharedDatabase,
    random: &mut SeededRandom,
    counts: &mut Counts,
) -> Result<(), String> {
    database.add(INSTANCES, random);
    let mut processes = database.start(2 + random.index(2))?;
    let all = random.percent(30);
    let first = random.index(processes.len());
    let at_work = processes[first].wait_for_turns(1 + random.modulo(TURNS_MAX))?;
    let stopped = if all { &processes[..] } else { &processes[first..=first] };
    stopped.iter().for_each(VictimProcess::stop);
    std::thread::sleep(STOPPED_FOR);
    let before: Vec<u64> = stopped.iter().map(VictimProcess::locks_ended).collect();
    stopped.iter().for_each(VictimProcess::go_on);
    for process in &processes {
        process.wait_for(ALL_ENDED)?;
    }
    counts.add("stops", stopped.len() as u64);
    // A process whose instances have all ended was not at work.
    if at_work {
        let ended = stopped.iter().zip(before).any(|(process, before)| process.locks_ended() > before);
        counts.add("times that workers were stopped", 1);
        counts.add("times that a lock ended then", u64::from(ended));
    }
    for process in &mut processes {
        process.send_go();
    }
    for process in processes {
        process.end()?;
    }
    Ok(())
}

#[test]
fn r6_a_process_stopped_past_its_locks_cannot_commit() {
    let proof = proof!("R6", "r6_a_process_stopped_past_its_locks_cannot_commit", 40);
    let counts = proof.run_sleeping("stops", case);
    let (stops, times) = (counts.get("stops"), counts.get("times that workers were stopped"));
    // Every holder tries a turn, an activity, and the renewals of both.
    proof.require(&counts, "late commits of holders refused", counts.get("stops of holders") * 4);
    // Some processes hold no lock when they are stopped. Others abandon most expired locks themselves.
    if stops >= 20 {
        proof.require(&counts, "times that workers were stopped", stops / 4);
        // With one operation a commit, a process mostly waits for the writer and holds no lock.
        let least = if is_stress_run() { times / 6 } else { times / 2 + 1 };
        proof.require(&counts, "times that a lock ended then", least);
    }
    proof.require(&counts, "turns", stops * 18);
}

/// Once a process failed with "database is locked" while it opened the file, on a busy machine.
#[test]
fn a_seed_that_once_failed() {
    case(1_794_813_448_000_003).unwrap();
}
