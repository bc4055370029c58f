//! R3: every I/O call of a set of scenarios fails, once or permanently.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn::OrchestrationStatus;
use everturn::providers::store::Store as _;
use everturn_crash_tests::disk::{CallClass, CallCounts, Disk, DiskFault, Image};
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::instance_script::InstanceScript;
use everturn_crash_tests::machine::{CrashMachine, MachineSetup, RunEnd};
use everturn_crash_tests::observations::ObservationLog;
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::vfs::Vfs;
use everturn_proof::{Counts, proof, watched};
use everturn_simulation::{SeededRandom, SimClock};
use everturn_sqlite::SqliteOptions;
use everturn_sqlite::testing::{self, Environment};

use crate::case::{inspect, inspect_end, machine};

/// How many instances a scenario has.
const INSTANCES: usize = 2;

/// The faults: which class of calls fails, and whether writes fail because the disk is full.
const KINDS: [(CallClass, bool); 5] = [
    (CallClass::Read, false),
    (CallClass::Write, false),
    (CallClass::Write, true),
    (CallClass::Sync, false),
    (CallClass::Other, false),
];

/// One scenario is this many cases. Each fails every 32nd call; together they fail all.
const SLICES: u64 = 32;

/// Percentage of lasting faults that do not end while the machine is on.
const PERMANENT_PERCENT: u64 = 10;

/// SQLite's messages for a disk that fails.
const REASONS: [&str; 3] = ["disk I/O error", "database or disk is full", "unable to open database file"];

/// A slice of a scenario: one run without faults, then one run for each fault at its share of the calls.
fn slice(seed: u64, slices_done: &Mutex<BTreeMap<u64, u64>>) -> Result<Counts, String> {
    let (scenario, slice) = (seed.wrapping_sub(1) / SLICES, seed.wrapping_sub(1) % SLICES);
    let calls = watched(format!("R3, seed {seed}, without a fault"), || calls_without_fault(scenario))?;
    let mut counts = Counts::default();
    let mut random = seeded(seed).branch(8);
    for (class, full) in KINDS {
        for at in (0..calls.of(class)).filter(|at| at % SLICES == slice) {
            for lasting in [false, true] {
                let fault = DiskFault { class, at, lasting, full };
                let ends = !lasting || !random.percent(PERMANENT_PERCENT);
                let what = format!("R3, seed {seed}, {fault:?}{}", if ends { "" } else { ", permanent" });
                let run = watched(what, || {
                    let run = if ends { temporary_fault } else { permanent_fault };
                    run(scenario, fault, &mut random)
                });
                counts.add_all(&run.map_err(|failure| format!("{fault:?}: {failure}"))?);
            }
        }
    }
    let mut slices_done = slices_done.lock().unwrap();
    let slices = slices_done.entry(scenario).or_default();
    *slices += 1;
    counts.add("scenarios with every call", u64::from(*slices == SLICES));
    Ok(counts)
}

/// The machine of a scenario: with one node, with two, with three, and so on.
fn machine_of(scenario: u64) -> CrashMachine {
    let nodes = 1 + usize::try_from(scenario % 3).unwrap();
    machine(scenario, INSTANCES, |setup| setup.nodes = nodes)
}

fn calls_without_fault(scenario: u64) -> Result<CallCounts, String> {
    let mut machine = machine_of(scenario);
    match machine.run(|_| async {}) {
        RunEnd::Finished => Ok(machine.disk.calls()),
        other => Err(format!("without a fault: {other:?}")),
    }
}

/// Ends the fault some time after the first failed call; may cut the power then.
async fn end_fault(disk: Arc<Disk>, outage: Duration, cut_after: Option<u64>) {
    disk.fault_struck().await;
    tokio::time::sleep(outage).await;
    disk.heal();
    if let Some(calls) = cut_after {
        disk.cut_power_after(calls);
    }
}

fn temporary_fault(scenario: u64, fault: DiskFault, random: &mut SeededRandom) -> Result<Counts, String> {
    let mut machine = machine_of(scenario);
    let mut counts = Counts::default();
    // Shorter than most lock timeouts, or longer.
    let longest_ms = if random.percent(80) { 300 } else { 3_000 };
    let outage = Duration::from_millis(if fault.lasting { random.modulo(longest_ms) } else { 0 });
    let cut_after = random.percent(25).then(|| random.modulo(60));
    machine.disk.inject(fault);
    let end = machine.run(|disk| end_fault(disk, outage, cut_after));
    heal(&machine, &mut counts);
    let mut inspector = Inspector::default();
    match end {
        RunEnd::Finished => {}
        RunEnd::NotOpened(error) => {
            check_error(&error)?;
            counts.add("openings refused", 1);
            inspect(&machine, &mut inspector)?;
            finish(&mut machine)?;
        }
        RunEnd::PowerLost { .. } => {
            counts.add("power cuts after a fault", 1);
            machine.disk.restart();
            inspect(&machine, &mut inspector)?;
            finish(&mut machine)?;
        }
        other => return Err(format!("{other:?}\n  {}", machine.describe())),
    }
    inspect_end(&machine, &mut inspector, &mut counts)?;
    Ok(counts)
}

/// Ends the fault, and counts its effects.
fn heal(machine: &CrashMachine, counts: &mut Counts) {
    let hit = machine.disk.heal();
    let hit_at_work = machine.faults_at_work();
    counts.add("faults at work", u64::from(hit_at_work > 0));
    counts.add("faults while opening or closing", u64::from(hit > 0 && hit_at_work == 0));
    counts.add("calls that failed at work", hit_at_work);
}

/// The fault lasts until the machine is off: clients get errors, everything can be closed, and nothing is lost.
fn permanent_fault(scenario: u64, fault: DiskFault, random: &mut SeededRandom) -> Result<Counts, String> {
    let mut machine = machine_of(scenario);
    let mut counts = Counts::default();
    machine.has_permanent_fault = true;
    machine.disk.inject(fault);
    let end = machine.run(|_| async {});
    heal(&machine, &mut counts);
    match end {
        RunEnd::Finished => counts.add("permanent faults without effect", 1),
        RunEnd::NotOpened(error) => {
            check_error(&error)?;
            counts.add("openings refused", 1);
        }
        RunEnd::DiskFailed { writes, reads } => {
            counts.add("faults for good at work", 1);
            let must_fail = matches!(fault.class, CallClass::Write | CallClass::Sync);
            if must_fail && writes.iter().any(Result::is_ok) {
                return Err("something was accepted by a disk that takes nothing".to_owned());
            }
            for error in writes.iter().chain(&reads).filter_map(|answer| answer.as_ref().err()) {
                check_error(error)?;
                counts.add("calls of clients refused for good", 1);
            }
        }
        other => return Err(format!("permanent fault: {other:?}\n  {}", machine.describe())),
    }
    if random.percent(50) {
        machine.disk.cut_power();
        machine.disk.restart();
    }
    let mut inspector = Inspector::default();
    inspect(&machine, &mut inspector)?;
    finish(&mut machine)?;
    inspect_end(&machine, &mut inspector, &mut counts)?;
    Ok(counts)
}

/// An error must say what was being done, and then give SQLite's message.
fn check_error(error: &str) -> Result<(), String> {
    let doing = REASONS.iter().find_map(|reason| error.split_once(reason)).map(|(doing, _)| doing);
    let is_complete = doing.and_then(|doing| doing.strip_suffix(": ")).is_some_and(|doing| !doing.is_empty());
    if is_complete { Ok(()) } else { Err(format!("unclear error: {error}")) }
}

/// The fault has ended: the machine starts again, and all instances end.
fn finish(machine: &mut CrashMachine) -> Result<(), String> {
    match machine.run(|_| async {}) {
        RunEnd::Finished => Ok(()),
        other => Err(format!("after the fault: {other:?}")),
    }
}

#[test]
fn r3_every_call_may_fail_once_and_for_good() {
    let proof = proof!("R3", "r3_every_call_may_fail_once_and_for_good", 10_000);
    let slices_done = Mutex::default();
    let counts = proof.run("faults at work", |seed| slice(seed, &slices_done));
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
        let fault = DiskFault { class: CallClass::Write, at: 33, lasting: true, full: false };
        temporary_fault(1, fault, &mut SeededRandom::new(seed)).unwrap();
    }
}

/// Reads the status of an instance from a new provider while one disk call fails. Also returns whether a call failed.
fn status_with(
    image: &Image,
    database: &Path,
    fault: DiskFault,
) -> (Result<OrchestrationStatus, String>, bool) {
    let disk = Arc::new(Disk::with_image(image, 0));
    let vfs = Vfs::register(Arc::clone(&disk), 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let status = runtime.unwrap().block_on(async {
        let options = SqliteOptions {
            clock: Arc::new(SimClock::starting_at(1_900_000_000_000, seeded(1))),
            ..SqliteOptions::default()
        };
        let environment = Environment { vfs: Some(vfs.name().to_owned()), writer_in_task: true };
        let url = format!("sqlite:{}", database.display());
        let provider = testing::open(&url, options, environment).await.unwrap();
        disk.inject(fault);
        let status = provider.read_status("i0").await.map_err(|error| error.to_string());
        disk.heal();
        provider.close().await;
        status
    });
    (status, disk.faults_hit() > 0)
}

#[test]
fn a_status_is_read_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let database = CrashMachine::database_in(&folder);
    let log = ObservationLog::new([("i0".to_owned(), InstanceScript::Eternal(2))]);
    let setup = MachineSetup { nodes: 1, ..MachineSetup::draw(&mut seeded(1)) };
    let mut machine = CrashMachine::new(Arc::new(Disk::new(1)), folder, log, setup, seeded(1).branch(5));
    assert_eq!(machine.run(|_| async {}), RunEnd::Finished);
    let image = machine.disk.image();
    let mut refusals = 0;
    for class in [CallClass::Read, CallClass::Other] {
        for at in 0.. {
            let fault = DiskFault { class, at, lasting: false, full: false };
            let (status, failed) = status_with(&image, &database, fault);
            match status {
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
    assert!(refusals >= 3, "only {refusals} reads failed: the test is too weak");
}
