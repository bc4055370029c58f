//! R10 under the runtime at work: damage to the rows of some instances does not affect the others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_crash_tests::damage::damage;
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::instance_script::InstanceScript;
use everturn_crash_tests::machine::{CrashMachine, NOT_THERE, RunEnd, STANDS_STILL};
use everturn_crash_tests::observations::{ObservationLog, Observations};
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::tables::StoredTables;
use everturn_proof::{Counts, proof, watched};
use everturn_simulation::{SeededRandom, collecting_panics};
use rusqlite::Connection;

use crate::case::{count_instances, machine_with};

/// Names that no few flipped bits turn into each other.
const UNDAMAGED: [&str; 5] = ["alpha", "bravo", "charlie", "delta", "echo"];
const DAMAGED: [&str; 4] = ["foxtrot", "golf", "hotel", "india"];
/// How many values are damaged in a case.
const DAMAGES: u64 = 30;
/// Within how many milliseconds of the start; about as long as the instances take.
const WITHIN_MS: u64 = 60;

/// Damages values at random moments.
async fn damage_values(
    open: impl Fn() -> Connection,
    mut random: SeededRandom,
    damages: Arc<Mutex<Vec<String>>>,
) {
    for _ in 0..DAMAGES {
        tokio::time::sleep(Duration::from_millis(random.modulo(WITHIN_MS / DAMAGES * 2))).await;
        let instance = DAMAGED[random.index(DAMAGED.len())];
        // An error means that the file does not exist yet, or that another connection writes: nothing is damaged then.
        if let Ok(Some(what)) = damage(&open(), instance, &mut random) {
            damages.lock().unwrap().push(what);
        }
    }
}

fn case(seed: u64) -> Result<Counts, String> {
    let mut random = seeded(seed).branch(2);
    let instances =
        UNDAMAGED.iter().chain(&DAMAGED).map(|id| ((*id).to_owned(), InstanceScript::draw(&mut random)));
    let mut machine = machine_with(seed, ObservationLog::new(instances.collect::<Vec<_>>()), |setup| {
        setup.max_attempts = 4;
    });
    machine.damaged = DAMAGED.iter().map(|id| (*id).to_owned()).collect();
    let damages = Arc::default();
    let damaging = damage_values(machine.connections(), seeded(seed).branch(11), Arc::clone(&damages));
    let run = || watched(format!("R10, seed {seed}"), || machine.run(|_| damaging));
    let (end, panics) = collecting_panics(run);
    let damages = std::mem::take(&mut *damages.lock().unwrap());
    let observations = without_damaged(machine.log.snapshot());
    check_undamaged(&machine, &observations, end, &panics).map_err(|failure| {
        format!("{failure}\n  {}\n  damages:\n    {}", machine.describe(), damages.join("\n    "))
    })?;
    let mut counts = Counts::default();
    counts.add("damages", damages.len() as u64);
    counts.add("cases", 1);
    counts.add("nodes", machine.setup.nodes as u64);
    count_instances(&observations, &mut counts);
    counts.add("activity runs", observations.run_count);
    for damaged in machine.damaged_at_end() {
        counts.add(&format!("damaged instances {}", damaged.state), 1);
        if matches!(damaged.state, STANDS_STILL | NOT_THERE) {
            let why = why_it_stands_still(&machine, &damaged.instance, &damages);
            counts.add(&format!("of them {}", why.unwrap_or(UNEXPLAINED)), 1);
        } else if damaged.reason.as_ref().is_some_and(|reason| !reason.contains(": ")) {
            return Err(format!("{damaged:?}: the error gives no reason"));
        }
    }
    Ok(counts)
}

/// Why an instance does not go on although its status shows no error, as far as the file shows it.
fn why_it_stands_still(machine: &CrashMachine, instance: &str, damages: &[String]) -> Option<&'static str> {
    let hit =
        |place: &str| damages.iter().any(|damage| damage.starts_with(&format!("{place} of {instance}:")));
    machine.read_copy(|conn| {
        let is = |sql: &str| {
            let found =
                conn.query_row(sql, (instance, machine.now_ms().cast_signed()), |row| row.get::<_, bool>(0));
            found.unwrap_or(false)
        };
        if (hit("everturn_instances.instance_id") || hit("everturn_instances.instance_key")) && is(NAMELESS) {
            return Some("that lost their name");
        }
        REASONS.iter().find(|(_, sql)| is(sql)).map(|(why, _)| *why)
    })
}

/// No execution is found under this name. A client may have started another instance with it.
const NAMELESS: &str = "SELECT ?2 > 0 AND NOT EXISTS \
     (SELECT 1 FROM everturn_executions JOIN everturn_instances USING (instance_key) WHERE instance_id = ?1)";

/// The file does not show why an instance does not go on.
const UNEXPLAINED: &str = "without an explanation";

/// Why an instance waits, and a query that shows it.
const REASONS: [(&str, &str); 4] = [
    (
        "that wait for a time to come",
        "SELECT EXISTS (SELECT 1 FROM everturn_orchestrator_queue JOIN everturn_instances USING (instance_key) \
             WHERE instance_id = ?1 AND visible_at_ms > ?2) \
         OR EXISTS (SELECT 1 FROM everturn_instances WHERE instance_id = ?1 AND delayed_until_ms > ?2) \
         OR EXISTS (SELECT 1 FROM everturn_worker_queue WHERE instance_id = ?1 AND visible_at_ms > ?2)",
    ),
    (
        "that wait for the end of a lock",
        "SELECT EXISTS (SELECT 1 FROM everturn_instances WHERE instance_id = ?1 AND locked_until_ms > ?2) \
         OR EXISTS (SELECT 1 FROM everturn_worker_queue WHERE instance_id = ?1 AND locked_until_ms > ?2) \
         OR EXISTS (SELECT 1 FROM everturn_sessions WHERE session_id = ?1 AND lease_until_ms > ?2)",
    ),
    (
        "with a row that the format forbids",
        "SELECT ?2 > 0 AND (EXISTS (SELECT 1 FROM everturn_instances WHERE instance_id = ?1 \
             AND ((lock_token IS NULL) <> (locked_until_ms IS NULL) OR (lock_token IS NULL) <> (lock_ms IS NULL) \
                 OR (missing_handler IS NULL) <> (missing_version IS NULL) \
                 OR (created_at_ms IS NULL) <> (orchestration_name IS NULL) \
                 OR startable NOT IN (0, 1) OR orphaned NOT IN (0, 1))) \
         OR EXISTS (SELECT 1 FROM everturn_worker_queue WHERE instance_id = ?1 \
             AND ((lock_token IS NULL) <> (locked_until_ms IS NULL) OR (lock_token IS NULL) <> (lock_ms IS NULL) \
                 OR ready NOT IN (0, 1) OR (missing_handler IS NOT NULL AND visible_at_ms = 0) \
                 OR (ready = 1) <> ((visible_at_ms = 0 OR missing_handler IS NOT NULL) AND lock_token IS NULL))) \
         OR EXISTS (SELECT 1 FROM everturn_orchestrator_queue JOIN everturn_instances USING (instance_key) WHERE instance_id = ?1 \
             AND (tagged NOT IN (0, 1) OR is_start NOT IN (0, 1) OR visible_at_ms < 0)))",
    ),
    (
        "with a dead-lettered row",
        "SELECT ?2 > 0 AND EXISTS (SELECT 1 FROM everturn_dead_letters WHERE instance_id = ?1 OR work_item LIKE '%' || ?1 || '%')",
    ),
];

/// The observations of the instances that were not damaged.
fn without_damaged(mut observations: Observations) -> Observations {
    let is_undamaged = |id: &str| UNDAMAGED.iter().any(|undamaged| id.starts_with(undamaged));
    observations.instances.retain(|id, _| is_undamaged(id));
    observations.runs.retain(|(id, ..), _| is_undamaged(id));
    // Calls to damaged instances may fail.
    observations.refusals.retain(|refusal| !DAMAGED.iter().any(|damaged| refusal.contains(damaged)));
    observations.wrong.retain(|wrong| !DAMAGED.iter().any(|damaged| wrong.contains(damaged)));
    observations
}

fn check_undamaged(
    machine: &CrashMachine,
    observations: &Observations,
    end: RunEnd,
    panics: &[String],
) -> Result<(), String> {
    if end != RunEnd::Finished {
        return Err(format!("{end:?}"));
    }
    if !panics.is_empty() {
        return Err(panics.join("\n    "));
    }
    let tables = machine
        .read_undamaged(StoredTables::read)
        .map_err(|error| format!("the file cannot be read: {error}"))?;
    let mut inspector = Inspector::default();
    inspector.inspect(&tables, observations)?;
    inspector.inspect_end(&tables, observations)
}

#[test]
fn r10_damage_under_the_runtime_affects_no_other_instance() {
    let proof = proof!("R10", "r10_damage_under_the_runtime_affects_no_other_instance", 1_000);
    let counts = proof.run("damages", case);
    let damages = counts.get("damages");
    proof.require(&counts, "turns", damages * if damages >= 500 { 2 } else { 1 });
    if damages >= 500 {
        proof.require(&counts, "damaged instances that are said to be damaged", damages / 20);
        proof.require(&counts, "damaged instances that failed", damages / 30);
        // A damaged value can be another valid one, such as the name of a signal that never comes. That cannot be
        // detected, and must be rare.
        let (silent, cases) = (counts.get(&format!("of them {UNEXPLAINED}")), counts.get("cases"));
        assert!(
            silent <= 1 + cases / 25,
            "{silent} damaged instances stand still in {cases} cases, and the file does not show why"
        );
    }
}
