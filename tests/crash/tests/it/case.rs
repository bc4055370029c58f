//! What the proofs on simulated machines share.

use std::sync::{Arc, LazyLock};

use everturn_crash_tests::disk::{Disk, Image};
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::instance_script::InstanceScript;
use everturn_crash_tests::machine::{CrashMachine, MachineSetup, RunEnd};
use everturn_crash_tests::observations::{ObservationLog, Observations};
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::tables::StoredTables;
use everturn_proof::{Counts, Proof};

/// The machine of a seed, with this many instances.
pub(crate) fn machine(seed: u64, instances: usize, change: impl FnOnce(&mut MachineSetup)) -> CrashMachine {
    let scripts = InstanceScript::draw_mixed(instances, &mut seeded(seed).branch(2));
    machine_with(seed, ObservationLog::new(scripts), change)
}

/// The machine of a seed, with the instances of this log.
pub(crate) fn machine_with(
    seed: u64,
    log: ObservationLog,
    change: impl FnOnce(&mut MachineSetup),
) -> CrashMachine {
    let random = seeded(seed);
    let mut setup = MachineSetup::draw(&mut random.branch(3));
    change(&mut setup);
    let folder = tempfile::tempdir().unwrap();
    let database = CrashMachine::database_in(&folder);
    let mut image = Image::new();
    if random.branch(7).percent(90) {
        image.insert(database.to_str().unwrap().to_owned(), NEW_FILE.clone());
    }
    let disk = Arc::new(Disk::with_image(&image, random.branch(4).next_u64()));
    CrashMachine::new(disk, folder, log, setup, random.branch(5))
}

/// A database without instances: most machines begin with one.
static NEW_FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let database = CrashMachine::database_in(&folder);
    let disk = Arc::new(Disk::new(0));
    let setup = MachineSetup { nodes: 1, ..MachineSetup::draw(&mut seeded(0)) };
    let mut machine = CrashMachine::new(disk, folder, ObservationLog::new([]), setup, seeded(0));
    assert_eq!(machine.run(|_| async {}), RunEnd::Finished);
    machine.disk.image().remove(database.to_str().unwrap()).unwrap()
});

/// Checks stored data at any time between two runs of the machine.
pub(crate) fn inspect(machine: &CrashMachine, inspector: &mut Inspector) -> Result<StoredTables, String> {
    let tables =
        machine.read_copy(StoredTables::read).map_err(|error| format!("the file cannot be read: {error}"))?;
    inspector.inspect(&tables, &machine.log.snapshot())?;
    Ok(tables)
}

/// Checks stored data after all instances have ended, and counts what happened.
pub(crate) fn inspect_end(
    machine: &CrashMachine,
    inspector: &mut Inspector,
    counts: &mut Counts,
) -> Result<(), String> {
    let tables = inspect(machine, inspector)?;
    let observations = machine.log.snapshot();
    inspector.inspect_end(&tables, &observations)?;
    counts.add("cases", 1);
    counts.add("nodes", machine.setup.nodes as u64);
    counts.add("cases with three nodes", u64::from(machine.setup.nodes == 3));
    count_instances(&observations, counts);
    counts.add("commits", machine.commits());
    counts.add("events", events_in(&tables));
    counts.add("activity runs", observations.run_count);
    Ok(())
}

/// Counts turns and instances.
pub(crate) fn count_instances(observations: &Observations, counts: &mut Counts) {
    counts.add("turns", observations.turns);
    counts.add("instances", observations.instances.len() as u64);
    counts.add("finished", observations.finished());
}

/// How many events are stored.
pub(crate) fn events_in(tables: &StoredTables) -> u64 {
    tables.executions.values().map(|execution| execution.events.len() as u64).sum()
}

/// Requires work between two faults: this many turns and activity runs for each fault, about half of what there is, and
/// several nodes in many cases.
pub(crate) fn require_work(proof: &Proof, counts: &Counts, faults: &str, (turns, runs): (u64, u64)) {
    let (cases, faults) = (counts.get("cases"), counts.get(faults));
    // In a few cases there may be less work.
    let (turns, runs) = if cases >= 20 { (turns, runs) } else { (1, 1) };
    proof.require(counts, "turns", faults * turns);
    proof.require(counts, "activity runs", faults * runs);
    if cases >= 20 {
        proof.require(counts, "nodes", cases * 5 / 4);
        proof.require(counts, "cases with three nodes", cases / 10);
    }
}
