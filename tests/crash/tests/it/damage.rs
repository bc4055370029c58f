//! R10 under the runtime at work: whatever happens to the rows of some instances, the others do not notice.

use std::cell::Cell;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use everturn_crash_tests::chance::{Chance, chance};
use everturn_crash_tests::damage::damage;
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::ledger::{Known, Ledger};
use everturn_crash_tests::machine::{End, Machine};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::tables::Tables;
use everturn_crash_tests::tally::Tally;
use everturn_crash_tests::watchdog::watched;
use everturn_proof::{Counts, proof};
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

fn case(seed: u64, tally: &Tally) -> Result<Counts, String> {
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
    tally.add(known.instances.len(), finished);
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
    for word in machine.last_words() {
        counts.add(&format!("damaged instances {word}"), 1);
    }
    Ok(counts)
}

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
    let tally = Tally::default();
    let counts = proof.run("damages", |seed| case(seed, &tally));
    tally.require_finished().unwrap();
    proof.require(&counts, "turns", counts.get("damages"));
}
