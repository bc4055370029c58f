//! R3: pages that can never be read again delay the instances whose rows they hold, and no others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn::providers::Provider as _;
use everturn_crash_tests::disk::{BadSector, Disk};
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::instance_script::InstanceScript;
use everturn_crash_tests::machine::{CrashMachine, PageKind, Prepared, RunEnd, StoredPage};
use everturn_crash_tests::observations::{ObservationLog, Observations};
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::tables::StoredTables;
use everturn_proof::{Counts, proof, watched};
use tokio::time::Instant;

use crate::case::{inspect_end, machine_with};

/// How many activities each instance runs.
const STEPS: usize = 2;
/// How long the instances on readable pages may take, in simulated time. Without a bad page it is a tenth of a second.
const OTHERS_MAX: Duration = Duration::from_secs(10);
/// How long an instance waits at most until its rows are tried again, and goes on if they can be read.
const TRIED_AGAIN_MAX: Duration = Duration::from_secs(40);
/// The large payloads of the queues.
const QUEUES: [&str; 2] = ["everturn_message_payloads", "everturn_activity_payloads"];

/// A machine whose instances have got so far. Their rows are larger than a page.
fn prepared(seed: u64, instances: usize, how_far: Prepared) -> CrashMachine {
    prepared_with(seed, instances, how_far, |mark| InstanceScript::Bulk(STEPS, mark))
}

fn prepared_with(
    seed: u64,
    instances: usize,
    how_far: Prepared,
    script: impl Fn(usize) -> InstanceScript,
) -> CrashMachine {
    let scripts = (0..instances).map(|mark| (InstanceScript::mark(mark), script(mark)));
    let log = ObservationLog::new(scripts.collect::<Vec<_>>());
    let mut machine = machine_with(seed, log, |setup| {
        setup.nodes = 1 + usize::from(seed % 4 == 3);
        setup.lock_timeout = Duration::from_secs(5);
        setup.checkpoint_every_ms = 0;
    });
    machine.prepare(how_far);
    machine
}

/// The instances with something on one of these pages.
fn on_pages(machine: &CrashMachine, pages: &[StoredPage]) -> BTreeSet<String> {
    let ids = machine.log.snapshot().instances.into_keys();
    ids.filter(|id| pages.iter().any(|page| page.contains(id))).collect()
}

/// A page in the middle of a large row of this instance.
fn in_the_middle(machine: &CrashMachine, table: &str, instance: &str) -> StoredPage {
    let is_wanted =
        |page: &StoredPage| page.table == table && page.kind == PageKind::Overflow && page.contains(instance);
    machine.pages().into_iter().find(is_wanted).expect("the row is larger than a page")
}

/// Waits until all instances have ended but these.
async fn others_ended(log: &ObservationLog, but: &BTreeSet<String>) {
    while log.snapshot().instances.iter().any(|(id, seen)| seen.outcome.is_none() && !but.contains(id)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs the machine while these pages cannot be read. The instances in `delayed` need not end, the others must, and soon.
fn run_with_bad_pages(
    machine: &mut CrashMachine,
    pages: &[StoredPage],
    delayed: &BTreeSet<String>,
    how: BadSector,
) -> Result<(), String> {
    pages.iter().for_each(|page| machine.disk.make_unreadable(page.number, how));
    machine.damaged = delayed.clone();
    let (log, took) = (Arc::clone(&machine.log), Arc::new(Mutex::new(None)));
    let (noted, but) = (Arc::clone(&took), delayed.clone());
    let meanwhile = move |_disk: Arc<Disk>| async move {
        let began = Instant::now();
        others_ended(&log, &but).await;
        *noted.lock().unwrap() = Some(began.elapsed());
    };
    let end = machine.run(meanwhile);
    let took: Option<Duration> = *took.lock().unwrap();
    if end != RunEnd::Finished {
        let instances = machine.log.snapshot().instances;
        let stuck = instances.iter().filter(|(id, seen)| seen.outcome.is_none() && !delayed.contains(*id));
        return Err(format!("{how:?}: {} are stuck: {end:?}", stuck.count()));
    }
    if took.is_none_or(|took| took > OTHERS_MAX) {
        return Err(format!("{how:?}: the other instances took {took:?}"));
    }
    if machine.faults_at_work() == 0 {
        return Err(format!("{how:?}: no read failed, so that nothing was tried"));
    }
    let tables = machine.read_undamaged(StoredTables::read).map_err(|error| error.to_string())?;
    let seen = without(machine.log.snapshot(), delayed);
    let mut inspector = Inspector::default();
    inspector.inspect(&tables, &seen)?;
    inspector.inspect_end(&tables, &seen)?;
    for id in on_pages(machine, pages) {
        if machine.log.snapshot().instances[&id].outcome.is_some() {
            return Err(format!("{how:?}: {id} ended although its rows cannot be read"));
        }
    }
    Ok(())
}

/// What was observed of the other instances.
fn without(mut observations: Observations, delayed: &BTreeSet<String>) -> Observations {
    observations.instances.retain(|id, _| !delayed.contains(id));
    observations.runs.retain(|(id, ..), _| !delayed.contains(id));
    observations.refusals.retain(|refusal| !delayed.iter().any(|id| refusal.contains(id.as_str())));
    observations
}

/// The pages can be read again: everything ends, and nothing was lost.
fn finish_repaired(
    machine: &mut CrashMachine,
    pages: &[StoredPage],
    counts: &mut Counts,
) -> Result<(), String> {
    pages.iter().for_each(|page| machine.disk.make_readable(page.number));
    machine.damaged.clear();
    match machine.run(|_| async {}) {
        RunEnd::Finished => inspect_end(machine, &mut Inspector::default(), counts),
        other => Err(format!("repaired: {other:?}")),
    }
}

/// One page of the oldest instance cannot be read; all others end.
fn delays_only_its_own(table: &str, how_far: Prepared) {
    for how in BadSector::ALL {
        let mut machine = prepared(1, 6, how_far);
        let pages = [in_the_middle(&machine, table, "bulk0000")];
        let delayed = on_pages(&machine, &pages);
        assert_eq!(delayed, BTreeSet::from(["bulk0000".to_owned()]), "the page belongs to one instance");
        run_with_bad_pages(&mut machine, &pages, &delayed, how).unwrap();
        finish_repaired(&mut machine, &pages, &mut Counts::default()).unwrap();
    }
}

#[test]
fn an_unreadable_message_delays_only_its_own_instance() {
    delays_only_its_own("everturn_message_payloads", Prepared::Started);
}

#[test]
fn an_unreadable_activity_delays_only_its_own_instance() {
    delays_only_its_own("everturn_activity_payloads", Prepared::Begun);
}

/// While the sessions cannot be read, no activity of a session is assigned. All others are.
#[test]
fn unreadable_sessions_delay_only_the_instances_that_use_them() {
    for how in BadSector::ALL {
        let uses_session = |mark: &usize| mark.is_multiple_of(3);
        let mut machine = prepared_with(1, 9, Prepared::Begun, |mark| {
            if uses_session(&mark) { InstanceScript::Session(STEPS) } else { InstanceScript::Chain(STEPS) }
        });
        let delayed: BTreeSet<String> = (0..9).filter(uses_session).map(InstanceScript::mark).collect();
        let pages = machine.pages().into_iter();
        let pages: Vec<StoredPage> = pages.filter(|page| page.table == "everturn_sessions").collect();
        run_with_bad_pages(&mut machine, &pages, &delayed, how).unwrap();
        finish_repaired(&mut machine, &pages, &mut Counts::default()).unwrap();
    }
}

/// Events are the leaves of their own index. A search in a leaf compares with whole events, so that an event that cannot be
/// read also holds up the instances that share its leaf.
#[test]
fn an_unreadable_history_does_not_hold_up_younger_instances() {
    for how in BadSector::ALL {
        let mut machine = prepared(1, 12, Prepared::Begun);
        let pages = [in_the_middle(&machine, "everturn_history", "bulk0000")];
        let is_its_leaf = |page: &StoredPage| {
            page.table == "everturn_history" && page.kind == PageKind::Leaf && page.contains("bulk0000")
        };
        let leaves: Vec<StoredPage> = machine.pages().into_iter().filter(is_its_leaf).collect();
        let delayed = on_pages(&machine, &leaves);
        assert!(delayed.len() <= 4, "{delayed:?} share a leaf");
        run_with_bad_pages(&mut machine, &pages, &delayed, how).unwrap();
        finish_repaired(&mut machine, &pages, &mut Counts::default()).unwrap();
    }
}

/// A leaf with the rows of many instances cannot be read. Rows grow in the first turn: SQLite then divides a leaf and reads the
/// one beside it, so that the instances on that one may be held up, too.
#[test]
fn an_unreadable_leaf_of_instances_delays_only_the_instances_on_it_and_beside_it() {
    for how in BadSector::ALL {
        let mut machine = prepared_with(1, 800, Prepared::Started, |_| InstanceScript::Chain(1));
        let leaves = machine.pages().into_iter();
        let leaves: Vec<StoredPage> =
            leaves.filter(|page| page.table == "everturn_instances" && page.kind == PageKind::Leaf).collect();
        let pages = [leaves[0].clone()];
        let delayed = on_pages(&machine, &leaves[..2]);
        assert!(on_pages(&machine, &pages).len() > 10 && delayed.len() < 400, "{} delayed", delayed.len());
        run_with_bad_pages(&mut machine, &pages, &delayed, how).unwrap();
        finish_repaired(&mut machine, &pages, &mut Counts::default()).unwrap();
    }
}

#[test]
fn a_fetch_goes_on_behind_an_unreadable_leaf_of_the_index_of_ready_instances() {
    for how in BadSector::ALL {
        let mut machine = prepared_with(1, 2_000, Prepared::Started, |_| InstanceScript::Chain(1));
        let leaves = machine.pages().into_iter();
        let leaves: Vec<StoredPage> =
            leaves.filter(|page| page.table == "everturn_instances_ready").collect();
        assert!(leaves.len() > 2, "the index has {} leaves", leaves.len());
        machine.disk.make_unreadable(leaves[0].number, how);
        let fetched = machine.visit(|provider| async move {
            let fetch = provider.fetch_orchestration_item(Duration::from_secs(5), OTHERS_MAX, None);
            fetch.await.unwrap()
        });
        let (item, ..) = fetched.expect("the instances behind the leaf are found");
        assert!(item.instance > InstanceScript::mark(100), "{} is on the leaf", item.instance);
    }
}

/// The page of a large row cannot be read for two minutes, which is longer than the longest pause between two tries. No instance
/// fails meanwhile.
fn goes_on_after_the_repair(table: &str, how_far: Prepared, how: BadSector) {
    let mut machine = prepared(2, 4, how_far);
    let page = in_the_middle(&machine, table, "bulk0000");
    machine.disk.make_unreadable(page.number, how);
    let (log, took) = (Arc::clone(&machine.log), Arc::new(Mutex::new(None)));
    let noted = Arc::clone(&took);
    let meanwhile = move |disk: Arc<Disk>| async move {
        tokio::time::sleep(Duration::from_secs(120)).await;
        disk.make_readable(page.number);
        let repaired = Instant::now();
        others_ended(&log, &BTreeSet::new()).await;
        *noted.lock().unwrap() = Some(repaired.elapsed());
    };
    assert_eq!(machine.run(meanwhile), RunEnd::Finished, "{table}, {how:?}");
    let took: Duration = took.lock().unwrap().expect("all instances ended");
    assert!(took <= TRIED_AGAIN_MAX, "{table}, {how:?}: it went on {took:?} after the repair");
    inspect_end(&machine, &mut Inspector::default(), &mut Counts::default()).unwrap();
}

#[test]
fn an_instance_goes_on_by_itself_when_its_rows_can_be_read_again() {
    for how in BadSector::ALL {
        goes_on_after_the_repair("everturn_message_payloads", Prepared::Started, how);
        goes_on_after_the_repair("everturn_activity_payloads", Prepared::Begun, how);
        goes_on_after_the_repair("everturn_history", Prepared::Begun, how);
    }
}

/// Pages of large rows in the queues, chosen by the seed.
fn case(seed: u64) -> Result<Counts, String> {
    let mut random = seeded(seed).branch(12);
    let how_far = if random.percent(50) { Prepared::Started } else { Prepared::Begun };
    let mut machine = prepared(seed, 8, how_far);
    let large = |page: &StoredPage| page.kind == PageKind::Overflow && QUEUES.contains(&page.table.as_str());
    let mut candidates: Vec<StoredPage> = machine.pages().into_iter().filter(large).collect();
    let count = 1 + random.index(4);
    let pages: Vec<StoredPage> =
        (0..count).map(|_| candidates.swap_remove(random.index(candidates.len()))).collect();
    let how = BadSector::ALL[random.index(2)];
    let delayed = on_pages(&machine, &pages);
    let mut counts = Counts::default();
    let tables: BTreeSet<&str> = pages.iter().map(|page| page.table.as_str()).collect();
    let ran = watched(format!("R3 with unreadable pages, seed {seed}"), || {
        run_with_bad_pages(&mut machine, &pages, &delayed, how)?;
        counts.add("reads that failed", machine.faults_at_work());
        finish_repaired(&mut machine, &pages, &mut counts)
    });
    ran.map_err(|failure| {
        format!(
            "{failure}\n  {}\n  {how_far:?}, {delayed:?} delayed by pages of {tables:?}",
            machine.describe()
        )
    })?;
    counts.add("unreadable pages", pages.len() as u64);
    counts.add("delayed instances", delayed.len() as u64);
    Ok(counts)
}

#[test]
fn r3_pages_that_cannot_be_read_hold_up_no_other_instance() {
    let proof = proof!("R3", "r3_pages_that_cannot_be_read_hold_up_no_other_instance", 100);
    let counts = proof.run("unreadable pages", case);
    let pages = counts.get("unreadable pages");
    proof.require(&counts, "reads that failed", pages);
    proof.require(&counts, "turns", pages * 4);
    proof.require(&counts, "activity runs", pages * 2);
}
