//! R4: kill -9 of real processes under load, one or several on a file.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_crash_tests::chance::{Chance, chance};
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::ledger::Ledger;
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::tables::{Tables, left_over};
use everturn_proof::{Counts, proof};
use rusqlite::{Connection, OpenFlags};

use crate::process::{Process, SEEN_THROUGH, write_told};

/// How many instances come with every life.
const INSTANCES: usize = 8;
/// How many lives a file sees.
const LIVES: u64 = 8;
/// How many processes share a file at most.
const PROCESSES_MAX: usize = 4;
/// How long the queues may take to run empty when all instances have ended.
const AFTERMATH_MAX: Duration = Duration::from_secs(30);

/// One file and its processes.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    pub(crate) ledger: Arc<Ledger>,
    inspector: Inspector,
    first_run: u64,
    nodes: u64,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            ledger: Arc::default(),
            inspector: Inspector::default(),
            first_run: 0,
            nodes: 0,
        }
    }

    pub(crate) fn database(&self) -> String {
        self.folder.path().join("scene.db").to_str().unwrap().to_owned()
    }

    /// More instances.
    pub(crate) fn add(&self, count: usize, chance: &mut Chance) {
        let before = self.ledger.known().instances.len();
        for index in before..before + count {
            self.ledger.add(format!("i{index}"), Plan::draw(chance));
        }
    }

    /// Starts processes that share the work; returns when they are at it.
    pub(crate) fn start(&mut self, processes: usize) -> Result<Vec<Process>, String> {
        let started = self.begin(processes);
        for process in &started {
            process.wait_for("ready")?;
        }
        self.nodes += processes as u64;
        Ok(started)
    }

    /// Starts processes that share the work.
    fn begin(&mut self, processes: usize) -> Vec<Process> {
        let told = self.folder.path().join("told");
        write_told(&told, &self.ledger);
        let mut started = Vec::new();
        for share in 0..processes {
            self.first_run += 1_000_000;
            let (share, of, first_run) =
                (share.to_string(), processes.to_string(), self.first_run.to_string());
            let arguments = ["work", &self.database(), told.to_str().unwrap(), &share, &of, &first_run];
            started.push(Process::start(&arguments, &self.ledger));
        }
        started
    }

    /// Looks at a copy of the file: looking would empty its log.
    pub(crate) fn inspect(&mut self) -> Result<Tables, String> {
        let copy = tempfile::tempdir().unwrap();
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", self.database());
            if Path::new(&from).exists() {
                std::fs::copy(from, copy.path().join(format!("copy.db{suffix}"))).unwrap();
            }
        }
        let conn = Connection::open(copy.path().join("copy.db")).unwrap();
        let tables = Tables::read(&conn).map_err(|error| error.to_string())?;
        self.inspector.inspect(&tables, &self.ledger.known())?;
        Ok(tables)
    }

    /// One more process brings everything to its end, and leaves nothing behind.
    pub(crate) fn finish(&mut self, counts: &mut Counts) -> Result<(), String> {
        for mut process in self.start(1)? {
            process.wait_for(SEEN_THROUGH)?;
            self.run_empty();
            process.say_go();
            process.end()?;
        }
        let tables = self.inspect()?;
        let known = self.ledger.known();
        self.inspector.inspect_end(&tables, &known)?;
        let events: usize = tables.executions.values().map(|execution| execution.events.len()).sum();
        counts.add("nodes", self.nodes);
        counts.add("turns", known.turns);
        counts.add("instances", known.instances.len() as u64);
        counts.add("finished", known.instances.values().filter(|told| told.outcome.is_some()).count() as u64);
        counts.add("events", events as u64);
        counts.add("activity runs", known.runs.values().map(|runs| runs.len() as u64).sum());
        Ok(())
    }

    /// Waits for the queues to run empty; what does not is found by the inspector.
    fn run_empty(&self) {
        let conn = Connection::open_with_flags(self.database(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let began = Instant::now();
        while !matches!(left_over(&conn), Ok(0)) && began.elapsed() < AFTERMATH_MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn case(seed: u64) -> Result<Counts, String> {
    let mut chance = chance(seed);
    let mut scene = Scene::new();
    let mut counts = Counts::default();
    for life in 0..LIVES {
        scene.add(INSTANCES, &mut chance);
        let count = 1 + chance.index(PROCESSES_MAX);
        let at_work = chance.percent(85);
        let mut processes = if at_work { scene.start(count)? } else { scene.begin(count) };
        counts.add("lives of three and more", u64::from(at_work && count >= 3));
        while !processes.is_empty() {
            // A kill at any moment: this is the moment.
            std::thread::sleep(Duration::from_micros(chance.below(40_000)));
            processes.swap_remove(chance.index(processes.len())).kill()?;
            counts.add(if at_work { "kills" } else { "kills while opening" }, 1);
        }
        scene.inspect().map_err(|failure| format!("life {life}: {failure}"))?;
    }
    scene.finish(&mut counts)?;
    Ok(counts)
}

#[test]
fn r4_nothing_is_lost_or_recorded_twice_when_processes_are_killed() {
    let proof = proof!("R4", "r4_nothing_is_lost_or_recorded_twice_when_processes_are_killed", 300);
    let counts = proof.run("kills", case);
    let kills = counts.get("kills");
    proof.require(&counts, "turns", kills * 8);
    proof.require(&counts, "nodes", kills);
    if kills >= 50 {
        proof.require(&counts, "lives of three and more", kills / 10);
    }
}
