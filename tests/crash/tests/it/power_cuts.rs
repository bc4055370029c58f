//! R2: power cuts under the runtime at work.

use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::machine::{CrashMachine, RunEnd};
use everturn_crash_tests::random::seeded;
use everturn_proof::{Counts, is_stress_run, proof, watched};
use everturn_sqlite::Synchronous;

use crate::case::{inspect, inspect_end, machine, require_work};

/// How many instances a case has.
const INSTANCES: usize = 6;
/// How often the power fails in a case.
const CUTS: u64 = 8;
/// Percentage of cases that have three nodes, whatever else was drawn.
const THREE_NODES_PERCENT: u64 = 25;
/// Within how many disk calls of its start a machine loses power.
const CALLS: u64 = 220;

fn case(seed: u64, synchronous: Synchronous) -> Result<Counts, String> {
    let mut machine = machine(seed, INSTANCES, |setup| {
        setup.synchronous = synchronous;
        if seeded(seed).branch(13).percent(THREE_NODES_PERCENT) {
            setup.nodes = 3;
        }
    });
    watched(format!("R2, seed {seed}"), || cut_and_check(seed, &mut machine))
        .map_err(|failure| format!("{failure}\n  {}", machine.describe()))
}

fn cut_and_check(seed: u64, machine: &mut CrashMachine) -> Result<Counts, String> {
    let mut random = seeded(seed).branch(6);
    let mut inspector = Inspector::default();
    let mut counts = Counts::default();
    for cut in 0..CUTS {
        // With one operation a commit, the same work takes more disk calls.
        let calls = random.modulo(if is_stress_run() { CALLS * 3 / 2 } else { CALLS });
        if random.percent(15) {
            machine.disk.cut_power_after(calls);
        } else {
            machine.cut_at_work = Some(calls);
        }
        match machine.run(|_| async {}) {
            RunEnd::PowerLost { at_work: true } => counts.add("cuts at work", 1),
            RunEnd::PowerLost { at_work: false } => counts.add("cuts while opening or closing", 1),
            RunEnd::Finished => break,
            other => return Err(format!("cut {cut}: {other:?}")),
        }
        machine.disk.restart();
        inspect(machine, &mut inspector).map_err(|failure| format!("after cut {cut}: {failure}"))?;
    }
    machine.disk.restart();
    match machine.run(|_| async {}) {
        RunEnd::Finished => {}
        other => return Err(format!("after the last cut: {other:?}")),
    }
    inspect_end(machine, &mut inspector, &mut counts)?;
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

/// The same with the writer on its thread: syncs that take time let early turns into the open batch.
fn threaded_case(seed: u64) -> Result<Counts, String> {
    let mut machine = machine(seed, INSTANCES, |setup| {
        setup.threads = true;
        setup.warm_instances_max = 1_000;
    });
    machine.disk.set_sync_us(150);
    watched(format!("R2 on threads, seed {seed}"), || cut_and_check(seed, &mut machine))
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
fn seed_310_reads_no_outcome_without_its_custom_status() {
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
    assert!(caught >= 19, "commits were not synced in forty cases, and only {caught} of them were caught");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    for seed in 1..=20 {
        let mut images = (0..2).map(|_| {
            let mut machine = machine(seed, INSTANCES, |_| {});
            drop(cut_and_check(seed, &mut machine));
            (machine.disk.calls(), machine.disk.image().into_values().collect::<Vec<_>>())
        });
        assert!(images.next() == images.next(), "two runs of seed {seed} differ");
    }
}
