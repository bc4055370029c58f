//! R2: power cuts under the runtime at work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use everturn_crash_tests::chance::chance;
use everturn_crash_tests::disk::{Disk, Image};
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::ledger::Ledger;
use everturn_crash_tests::machine::{End, Machine, Setup};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::tables::Tables;
use everturn_proof::{Counts, Proof, proof, watched};
use everturn_sqlite::Synchronous;

use crate::io_faults::finish;

/// Where the locks beside the databases are; everything else is in memory.
pub(crate) static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// How many instances a case has.
const INSTANCES: usize = 6;
/// How often the power fails in one case.
const CUTS: u64 = 8;
/// In so many of a hundred cases there are three nodes, whatever else was drawn.
const THREE_NODES_PERCENT: u64 = 25;
/// Within how many calls of its start a machine goes dark.
const CALLS: u64 = 220;

pub(crate) fn machine(seed: u64, instances: usize, change: impl FnOnce(&mut Setup)) -> Machine {
    let plans = Plan::draw_mixed(instances, &mut chance(seed).branch(2));
    machine_with(seed, Ledger::new(plans), change)
}

/// A machine on which these instances will run.
pub(crate) fn machine_with(seed: u64, ledger: Ledger, change: impl FnOnce(&mut Setup)) -> Machine {
    let chance = chance(seed);
    let mut setup = Setup::draw(&mut chance.branch(3));
    change(&mut setup);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let database = SCRATCH.path().join(format!("{number}.db"));
    let mut image = Image::new();
    if chance.branch(7).percent(90) {
        image.insert(database.to_str().unwrap().to_owned(), NEW_FILE.clone());
    }
    let disk = Arc::new(Disk::with_image(&image, chance.branch(4).next_u64()));
    Machine::new(disk, database, ledger, setup, chance.branch(5))
}

/// A database without instances: most machines begin with one.
static NEW_FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let database = SCRATCH.path().join("new.db");
    let disk = Arc::new(Disk::new(0));
    let setup = Setup { nodes: 1, ..Setup::draw(&mut chance(0)) };
    let mut machine = Machine::new(disk, database.clone(), Ledger::new([]), setup, chance(0));
    assert_eq!(machine.live(|_| async {}), End::Finished);
    machine.disk.image().remove(database.to_str().unwrap()).unwrap()
});

pub(crate) fn inspect(machine: &Machine, inspector: &mut Inspector) -> Result<Tables, String> {
    let tables = machine.look(Tables::read).map_err(|error| format!("the file cannot be read: {error}"))?;
    inspector.inspect(&tables, &machine.ledger.known())?;
    Ok(tables)
}

fn case(seed: u64, synchronous: Synchronous) -> Result<Counts, String> {
    let mut machine = machine(seed, INSTANCES, |setup| {
        setup.synchronous = synchronous;
        if chance(seed).branch(13).percent(THREE_NODES_PERCENT) {
            setup.nodes = 3;
        }
    });
    watched(format!("R2, seed {seed}"), || cuts(seed, &mut machine))
        .map_err(|failure| format!("{failure}\n  {}", machine.describe()))
}

fn cuts(seed: u64, machine: &mut Machine) -> Result<Counts, String> {
    let mut chance = chance(seed).branch(6);
    let mut inspector = Inspector::default();
    let mut counts = Counts::default();
    for cut in 0..CUTS {
        let calls = chance.below(CALLS);
        if chance.percent(15) {
            machine.disk.cut_power_after(calls);
        } else {
            machine.cut_at_work = Some(calls);
        }
        match machine.live(|_| async {}) {
            End::Dark { at_work: true } => counts.add("cuts at work", 1),
            End::Dark { at_work: false } => counts.add("cuts while opening or closing", 1),
            End::Finished => break,
            other => return Err(format!("cut {cut}: {other:?}")),
        }
        machine.disk.restart();
        inspect(machine, &mut inspector).map_err(|failure| format!("after cut {cut}: {failure}"))?;
    }
    machine.disk.restart();
    match machine.live(|_| async {}) {
        End::Finished => {}
        other => return Err(format!("after the last cut: {other:?}")),
    }
    let tables = inspect(machine, &mut inspector)?;
    finish(machine, &mut inspector, &tables, &mut counts)?;
    Ok(counts)
}

#[test]
fn r2_nothing_accepted_is_lost_by_a_power_cut() {
    let proof = proof!("R2", "r2_nothing_accepted_is_lost_by_a_power_cut", 5_000);
    let counts = proof.run("cuts at work", |seed| case(seed, Synchronous::Full));
    require_work(&proof, &counts, "cuts at work", (2, 2));
    if counts.get("cases") >= 20 {
        proof.require(&counts, "cases with three nodes", counts.get("cases") / 5);
    }
}

/// Between two cuts or faults there was work, on several nodes in many cases: so many turns and runs of activities for each,
/// which is half of what there is.
pub(crate) fn require_work(proof: &Proof, counts: &Counts, faults: &str, (turns, runs): (u64, u64)) {
    let (cases, faults) = (counts.get("cases"), counts.get(faults));
    // A few cases may be quiet ones.
    let (turns, runs) = if cases >= 20 { (turns, runs) } else { (1, 1) };
    proof.require(counts, "turns", faults * turns);
    proof.require(counts, "activity runs", faults * runs);
    if cases >= 20 {
        proof.require(counts, "nodes", cases * 5 / 4);
        proof.require(counts, "cases with three nodes", cases / 10);
    }
}

/// The same with the writer on its thread: syncs that take time let early turns into the batch that is open.
fn threaded_case(seed: u64) -> Result<Counts, String> {
    let mut machine = machine(seed, INSTANCES, |setup| {
        setup.threads = true;
        setup.warm_instances_max = 1_000;
    });
    machine.disk.set_sync_us(150);
    watched(format!("R2 on threads, seed {seed}"), || cuts(seed, &mut machine))
        .map_err(|failure| format!("{failure}\n  {}", machine.describe()))
}

#[test]
fn r2_nothing_accepted_is_lost_with_the_writer_on_its_thread() {
    let proof = proof!("R2", "r2_nothing_accepted_is_lost_with_the_writer_on_its_thread", 200);
    let counts = proof.run("cuts at work", threaded_case);
    require_work(&proof, &counts, "cuts at work", (2, 2));
}

/// The power fails while a client reads how an instance ended, between its outcome and its custom status.
#[test]
fn seed_310_tells_no_outcome_without_its_custom_status() {
    case(310, Synchronous::Full).unwrap();
}

#[test]
fn r2_a_weaker_sync_is_caught() {
    let lost = |seed| {
        let found = case(seed, Synchronous::Normal).err();
        found.is_some_and(|found| {
            found.contains("was accepted and is gone") || found.contains("was seen to end")
        })
    };
    let caught = (1..=40).filter(|seed| lost(*seed)).count();
    assert!(caught >= 19, "forty cases with commits that are not synced, and {caught} were noticed");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    for seed in 1..=20 {
        let mut images = (0..2).map(|_| {
            let mut machine = machine(seed, INSTANCES, |_| {});
            drop(cuts(seed, &mut machine));
            (machine.disk.calls(), machine.disk.image().into_values().collect::<Vec<_>>())
        });
        assert!(images.next() == images.next(), "seed {seed} went two ways");
    }
}
