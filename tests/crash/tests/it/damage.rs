//! R10 under the runtime at work: whatever happens to the rows of some instances, the others do not notice.

use std::cell::Cell;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use everturn_crash_tests::chance::{Chance, chance};
use everturn_crash_tests::damage::damage;
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::ledger::{Known, Ledger};
use everturn_crash_tests::machine::{End, Machine, NOT_THERE, STANDS_STILL};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::tables::Tables;
use everturn_proof::{Counts, proof, watched};
use rusqlite::Connection;

use crate::power_cuts::machine_with;

/// Names that no few turned bits make into each other.
const SOUND: [&str; 5] = ["alpha", "bravo", "charlie", "delta", "echo"];
const DOOMED: [&str; 4] = ["foxtrot", "golf", "hotel", "india"];
/// How often something is damaged in one case.
const DAMAGES: u64 = 30;
/// Within how many milliseconds of the start: that is how long a load takes.
const WITHIN_MS: u64 = 60;

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the panics of a thread, caught or not: a case has one thread.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    PANICS.set(0);
}

/// Damages something every now and then.
async fn go_wrong(open: impl Fn() -> Connection, mut chance: Chance, done: Arc<Mutex<Vec<String>>>) {
    for _ in 0..DAMAGES {
        tokio::time::sleep(Duration::from_millis(chance.below(WITHIN_MS / DAMAGES * 2))).await;
        let instance = DOOMED[chance.index(DOOMED.len())];
        // A file that is being made, or that somebody else writes to: another time.
        if let Ok(Some(what)) = damage(&open(), instance, &mut chance) {
            done.lock().unwrap().push(what);
        }
    }
}

fn case(seed: u64) -> Result<Counts, String> {
    let mut plans = chance(seed).branch(2);
    let instances = SOUND.iter().chain(&DOOMED).map(|id| ((*id).to_owned(), Plan::draw(&mut plans)));
    let mut machine = machine_with(seed, Ledger::new(instances.collect::<Vec<_>>()), |setup| {
        setup.max_attempts = 4;
    });
    machine.doomed = DOOMED.iter().map(|id| (*id).to_owned()).collect();
    let sound: Arc<Ledger> = Arc::clone(&machine.ledger);
    count_panics();
    let done = Arc::default();
    let damages = go_wrong(machine.back_door(), chance(seed).branch(11), Arc::clone(&done));
    let end = watched(format!("R10, seed {seed}"), || machine.live(|_| damages));
    let done = std::mem::take(&mut *done.lock().unwrap());
    let known = only_sound(sound.known());
    let finished = known.instances.values().filter(|told| told.outcome.is_some()).count();
    judged(&machine, &known, end).map_err(|failure| {
        format!("{failure}\n  {}\n  damages:\n    {}", machine.describe(), done.join("\n    "))
    })?;
    let mut counts = Counts::default();
    counts.add("damages", done.len() as u64);
    counts.add("cases", 1);
    counts.add("nodes", machine.setup.nodes as u64);
    counts.add("turns", known.turns);
    counts.add("instances", known.instances.len() as u64);
    counts.add("finished", finished as u64);
    counts.add("activity runs", known.run_count);
    for words in machine.last_words() {
        counts.add(&format!("damaged instances {}", words.word), 1);
        if matches!(words.word, STANDS_STILL | NOT_THERE) {
            let why = why_it_stands_still(&machine, &words.instance, &done);
            counts.add(&format!("of them {}", why.unwrap_or(UNEXPLAINED)), 1);
        } else if words.reason.as_ref().is_some_and(|reason| !reason.contains(": ")) {
            return Err(format!("{words:?}: that is no reason"));
        }
    }
    Ok(counts)
}

/// An instance that does not go on, and of which no client is told why: what the file shows of the reason.
fn why_it_stands_still(machine: &Machine, instance: &str, damages: &[String]) -> Option<&'static str> {
    let hit =
        |place: &str| damages.iter().any(|damage| damage.starts_with(&format!("{place} of {instance}:")));
    machine.look(|conn| {
        let is = |sql: &str| {
            let found =
                conn.query_row(sql, (instance, machine.now_ms().cast_signed()), |row| row.get::<_, bool>(0));
            found.unwrap_or(false)
        };
        if (hit("instances.instance_id") || hit("instances.instance_key")) && is(NAMELESS) {
            return Some("that lost their name");
        }
        REASONS.iter().find(|(_, sql)| is(sql)).map(|(why, _)| *why)
    })
}

/// Nobody finds what there is of this instance: a client may have begun another with its name.
const NAMELESS: &str = "SELECT ?2 > 0 AND NOT EXISTS \
     (SELECT 1 FROM executions JOIN instances USING (instance_key) WHERE instance_id = ?1)";

/// An instance that does not go on, and the file does not show why.
const UNEXPLAINED: &str = "without an explanation";

/// Why an instance waits, and how that shows.
const REASONS: [(&str, &str); 4] = [
    (
        "that wait for a time to come",
        "SELECT EXISTS (SELECT 1 FROM orchestrator_queue JOIN instances USING (instance_key) \
             WHERE instance_id = ?1 AND visible_at_ms > ?2) \
         OR EXISTS (SELECT 1 FROM worker_queue WHERE instance_id = ?1 AND visible_at_ms > ?2)",
    ),
    (
        "that wait for the end of a lock",
        "SELECT EXISTS (SELECT 1 FROM instances WHERE instance_id = ?1 AND locked_until_ms > ?2) \
         OR EXISTS (SELECT 1 FROM worker_queue WHERE instance_id = ?1 AND locked_until_ms > ?2) \
         OR EXISTS (SELECT 1 FROM sessions WHERE session_id = ?1 AND lease_until_ms > ?2)",
    ),
    (
        "with a row that the format forbids",
        "SELECT ?2 > 0 AND (EXISTS (SELECT 1 FROM instances WHERE instance_id = ?1 \
             AND ((lock_token IS NULL) <> (locked_until_ms IS NULL) OR (lock_token IS NULL) <> (lock_ms IS NULL) \
                 OR startable NOT IN (0, 1) OR orphaned NOT IN (0, 1))) \
         OR EXISTS (SELECT 1 FROM worker_queue WHERE instance_id = ?1 \
             AND ((lock_token IS NULL) <> (locked_until_ms IS NULL) OR (lock_token IS NULL) <> (lock_ms IS NULL) \
                 OR ready NOT IN (0, 1) OR (ready = 1) <> (visible_at_ms = 0 AND lock_token IS NULL))) \
         OR EXISTS (SELECT 1 FROM orchestrator_queue JOIN instances USING (instance_key) WHERE instance_id = ?1 \
             AND (tagged NOT IN (0, 1) OR is_start NOT IN (0, 1) OR visible_at_ms < 0)))",
    ),
    (
        "with a row that was set aside",
        "SELECT ?2 > 0 AND EXISTS (SELECT 1 FROM set_aside WHERE instance_id = ?1 OR work_item LIKE '%' || ?1 || '%')",
    ),
];

/// What is known of those that nothing was done to.
fn only_sound(mut known: Known) -> Known {
    let is_sound = |id: &str| SOUND.iter().any(|sound| id.starts_with(sound));
    known.instances.retain(|id, _| is_sound(id));
    known.runs.retain(|(id, ..), _| is_sound(id));
    // Whoever asks for a damaged instance is told so.
    known.refusals.retain(|refusal| !DOOMED.iter().any(|doomed| refusal.contains(doomed)));
    known.wrong.retain(|wrong| !DOOMED.iter().any(|doomed| wrong.contains(doomed)));
    known
}

fn judged(machine: &Machine, known: &Known, end: End) -> Result<(), String> {
    if end != End::Finished {
        return Err(format!("{end:?}"));
    }
    if PANICS.get() > 0 {
        return Err("something panicked".to_owned());
    }
    let tables = machine
        .look_at_the_sound(Tables::read)
        .map_err(|error| format!("the file cannot be read: {error}"))?;
    let mut inspector = Inspector::default();
    inspector.inspect(&tables, known)?;
    inspector.inspect_end(&tables, known)
}

#[test]
fn r10_damage_under_the_runtime_hurts_nobody_else() {
    let proof = proof!("R10", "r10_damage_under_the_runtime_hurts_nobody_else", 1_000);
    let counts = proof.run("damages", case);
    let damages = counts.get("damages");
    proof.require(&counts, "turns", damages * if damages >= 500 { 2 } else { 1 });
    if damages >= 500 {
        proof.require(&counts, "damaged instances that are said to be damaged", damages / 20);
        proof.require(&counts, "damaged instances that failed", damages / 30);
        // A damaged value can be another good one, such as the name of a signal that never comes: nobody can tell. Few
        // are like that.
        let (silent, cases) = (counts.get(&format!("of them {UNEXPLAINED}")), counts.get("cases"));
        assert!(
            silent <= 1 + cases / 25,
            "{silent} damaged instances stand still in {cases} cases, and nothing shows why"
        );
    }
}
