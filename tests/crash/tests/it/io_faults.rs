//! R3: every I/O call of a set of scenarios fails, once and for good.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn::OrchestrationStatus;
use everturn::providers::Provider as _;
use everturn_crash_tests::chance::{Chance, chance};
use everturn_crash_tests::disk::{Calls, Class, Disk, Fault, Image};
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::ledger::Ledger;
use everturn_crash_tests::machine::{End, Machine, Setup};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::sim_time::SimTime;
use everturn_crash_tests::tables::Tables;
use everturn_crash_tests::vfs::Vfs;
use everturn_proof::{Counts, proof, watched};
use everturn_sqlite::SqliteOptions;
use everturn_sqlite::testing::{self, Environment};

use crate::power_cuts::{SCRATCH, inspect, machine};

/// How many instances a scenario has.
const INSTANCES: usize = 2;

/// The kinds of faults: which calls fail, and whether a write fails because the disk is full.
const KINDS: [(Class, bool); 5] = [
    (Class::Read, false),
    (Class::Write, false),
    (Class::Write, true),
    (Class::Sync, false),
    (Class::Other, false),
];

/// One scenario is this many cases, each with every so-manieth of its calls: together all of them.
const SLICES: u64 = 32;

/// So many of a hundred lasting faults do not end while the machine is on.
const FOR_GOOD_PERCENT: u64 = 10;

/// What SQLite says of a disk that fails.
const REASONS: [&str; 3] = ["disk I/O error", "database or disk is full", "unable to open database file"];

/// A slice of a scenario: first undisturbed, then with every fault at its share of the calls.
fn slice(seed: u64, swept: &Mutex<BTreeMap<u64, u64>>) -> Result<Counts, String> {
    let (scenario, slice) = (seed.wrapping_sub(1) / SLICES, seed.wrapping_sub(1) % SLICES);
    let calls = watched(format!("R3, seed {seed}, without a fault"), || undisturbed(scenario))?;
    let mut counts = Counts::default();
    let mut chance = chance(seed).branch(8);
    for (class, full) in KINDS {
        for at in (0..calls.of(class)).filter(|at| at % SLICES == slice) {
            for lasting in [false, true] {
                let fault = Fault { class, at, lasting, full };
                let ends = !lasting || !chance.percent(FOR_GOOD_PERCENT);
                let what = format!("R3, seed {seed}, {fault:?}{}", if ends { "" } else { ", for good" });
                let run = watched(what, || {
                    let run = if ends { disturbed } else { never_mended };
                    run(scenario, fault, &mut chance)
                });
                counts.add_all(&run.map_err(|failure| format!("{fault:?}: {failure}"))?);
            }
        }
    }
    let mut swept = swept.lock().unwrap();
    let slices = swept.entry(scenario).or_default();
    *slices += 1;
    counts.add("scenarios with every call", u64::from(*slices == SLICES));
    Ok(counts)
}

/// The machine of a scenario: with one node, with two, with three, and so on.
fn machine_of(scenario: u64) -> Machine {
    let nodes = 1 + usize::try_from(scenario % 3).unwrap();
    machine(scenario, INSTANCES, |setup| setup.nodes = nodes)
}

fn undisturbed(scenario: u64) -> Result<Calls, String> {
    let mut machine = machine_of(scenario);
    match machine.live(|_| async {}) {
        End::Finished => Ok(machine.disk.calls()),
        other => Err(format!("without a fault: {other:?}")),
    }
}

/// Ends the fault some time after it first struck; may cut the power then.
async fn recover(disk: Arc<Disk>, outage: Duration, cut_after: Option<u64>) {
    disk.fault_struck().await;
    tokio::time::sleep(outage).await;
    disk.heal();
    if let Some(calls) = cut_after {
        disk.cut_power_after(calls);
    }
}

fn disturbed(scenario: u64, fault: Fault, chance: &mut Chance) -> Result<Counts, String> {
    let mut machine = machine_of(scenario);
    let mut counts = Counts::default();
    // Short, or longer than most locks last.
    let longest_ms = if chance.percent(80) { 300 } else { 3_000 };
    let outage = Duration::from_millis(if fault.lasting { chance.below(longest_ms) } else { 0 });
    let cut_after = chance.percent(25).then(|| chance.below(60));
    machine.disk.inject(fault);
    let end = machine.live(|disk| recover(disk, outage, cut_after));
    heal(&machine, &mut counts);
    let mut inspector = Inspector::default();
    match end {
        End::Finished => {}
        End::NotOpened(error) => {
            clear(&error)?;
            counts.add("openings refused", 1);
            inspect(&machine, &mut inspector)?;
            live_on(&mut machine)?;
        }
        End::Dark { .. } => {
            counts.add("power cuts after a fault", 1);
            machine.disk.restart();
            inspect(&machine, &mut inspector)?;
            live_on(&mut machine)?;
        }
        other => return Err(format!("{other:?}\n  {}", machine.describe())),
    }
    let tables = inspect(&machine, &mut inspector)?;
    finish(&machine, &mut inspector, &tables, &mut counts)?;
    Ok(counts)
}

/// The fault is over; counts what it did.
fn heal(machine: &Machine, counts: &mut Counts) {
    let hit = machine.disk.heal();
    let hit_at_work = machine.faults_at_work();
    counts.add("faults at work", u64::from(hit_at_work > 0));
    counts.add("faults while opening or closing", u64::from(hit > 0 && hit_at_work == 0));
    counts.add("calls that failed at work", hit_at_work);
}

/// The fault lasts until the machine is off: clients are told so, everything can be closed, and nothing is lost.
fn never_mended(scenario: u64, fault: Fault, chance: &mut Chance) -> Result<Counts, String> {
    let mut machine = machine_of(scenario);
    let mut counts = Counts::default();
    machine.fails_for_good = true;
    machine.disk.inject(fault);
    let end = machine.live(|_| async {});
    heal(&machine, &mut counts);
    match end {
        End::Finished => counts.add("faults for good that nobody noticed", 1),
        End::NotOpened(error) => {
            clear(&error)?;
            counts.add("openings refused", 1);
        }
        End::GivenUp { writes, reads } => {
            counts.add("faults for good at work", 1);
            let must_fail = matches!(fault.class, Class::Write | Class::Sync);
            if must_fail && writes.iter().any(Result::is_ok) {
                return Err("something was accepted by a disk that takes nothing".to_owned());
            }
            for error in writes.iter().chain(&reads).filter_map(|answer| answer.as_ref().err()) {
                clear(error)?;
                counts.add("calls of clients refused for good", 1);
            }
        }
        other => return Err(format!("for good: {other:?}\n  {}", machine.describe())),
    }
    if chance.percent(50) {
        machine.disk.cut_power();
        machine.disk.restart();
    }
    let mut inspector = Inspector::default();
    inspect(&machine, &mut inspector)?;
    live_on(&mut machine)?;
    let tables = inspect(&machine, &mut inspector)?;
    finish(&machine, &mut inspector, &tables, &mut counts)?;
    Ok(counts)
}

/// An error that says what was being done, and then what SQLite made of it.
fn clear(error: &str) -> Result<(), String> {
    let doing = REASONS.iter().find_map(|reason| error.split_once(reason)).map(|(doing, _)| doing);
    let is_clear = doing.and_then(|doing| doing.strip_suffix(": ")).is_some_and(|doing| !doing.is_empty());
    if is_clear { Ok(()) } else { Err(format!("not a clear error: {error}")) }
}

/// The fault is over: the machine starts again and everything ends well.
fn live_on(machine: &mut Machine) -> Result<(), String> {
    match machine.live(|_| async {}) {
        End::Finished => Ok(()),
        other => Err(format!("after the fault: {other:?}")),
    }
}

pub(crate) fn finish(
    machine: &Machine,
    inspector: &mut Inspector,
    tables: &Tables,
    counts: &mut Counts,
) -> Result<(), String> {
    let known = machine.ledger.known();
    inspector.inspect_end(tables, &known)?;
    let events: usize = tables.executions.values().map(|execution| execution.events.len()).sum();
    counts.add("cases", 1);
    counts.add("nodes", machine.setup.nodes as u64);
    counts.add("cases with three nodes", u64::from(machine.setup.nodes == 3));
    counts.add("turns", known.turns);
    counts.add("instances", known.instances.len() as u64);
    counts.add("finished", known.instances.values().filter(|told| told.outcome.is_some()).count() as u64);
    counts.add("commits", machine.commits());
    counts.add("events", events as u64);
    counts.add("activity runs", known.run_count);
    Ok(())
}

#[test]
fn r3_every_call_may_fail_once_and_for_good() {
    let proof = proof!("R3", "r3_every_call_may_fail_once_and_for_good", 10_000);
    let swept = Mutex::default();
    let counts = proof.run("faults at work", |seed| slice(seed, &swept));
    let faults = counts.get("faults at work");
    proof.require(&counts, "turns", faults * if faults >= 1_000 { 6 } else { 2 });
    proof.require(&counts, "activity runs", faults * if faults >= 1_000 { 3 } else { 1 });
    if faults >= 10_000 {
        proof.require(&counts, "nodes", counts.get("cases") * 7 / 5);
        proof.require(&counts, "scenarios with every call", 1);
        proof.require(&counts, "faults for good at work", faults / 50);
        proof.require(&counts, "calls of clients refused for good", faults / 50);
    }
}

#[test]
fn work_goes_on_after_an_outage_with_one_operation_a_commit() {
    for seed in 0..3 {
        let fault = Fault { class: Class::Write, at: 33, lasting: true, full: false };
        disturbed(1, fault, &mut Chance::new(seed)).unwrap();
    }
}

/// What a provider that was just opened says of an instance, when one call of reading it fails. Tells whether one did.
fn status_with(image: &Image, database: &Path, fault: Fault) -> (Result<OrchestrationStatus, String>, bool) {
    let disk = Arc::new(Disk::with_image(image, 0));
    let vfs = Vfs::register(Arc::clone(&disk), 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let told = runtime.unwrap().block_on(async {
        let options = SqliteOptions {
            clock: Arc::new(SimTime::new(1_900_000_000_000, chance(1))),
            ..SqliteOptions::default()
        };
        let environment = Environment { vfs: Some(vfs.name().to_owned()), writer_in_task: true };
        let url = format!("sqlite:{}", database.display());
        let provider = testing::open(&url, options, environment).await.unwrap();
        disk.inject(fault);
        let told = provider.read_status("i0").await.map_err(|error| error.to_string());
        disk.heal();
        provider.close().await;
        told
    });
    (told, disk.faults_hit() > 0)
}

#[test]
fn a_status_is_told_whole_or_not_at_all() {
    let database = SCRATCH.path().join("status.db");
    let ledger = Ledger::new([("i0".to_owned(), Plan::Eternal(2))]);
    let setup = Setup { nodes: 1, ..Setup::draw(&mut chance(1)) };
    let mut machine =
        Machine::new(Arc::new(Disk::new(1)), database.clone(), ledger, setup, chance(1).branch(5));
    assert_eq!(machine.live(|_| async {}), End::Finished);
    let image = machine.disk.image();
    let mut refusals = 0;
    for class in [Class::Read, Class::Other] {
        for at in 0.. {
            let fault = Fault { class, at, lasting: false, full: false };
            let (told, failed) = status_with(&image, &database, fault);
            match told {
                Ok(OrchestrationStatus::Completed { custom_status, .. }) => {
                    assert_eq!(custom_status.as_deref(), Some("2"), "{fault:?}");
                }
                Ok(other) => panic!("{fault:?}: {other:?}"),
                Err(_) => refusals += 1,
            }
            if !failed {
                break;
            }
        }
    }
    assert!(refusals >= 3, "{refusals} calls failed, which proves nothing");
}
