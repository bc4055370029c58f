//! R4: kill -9 of real processes under load, one or several on a file.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::instance_script::InstanceScript;
use everturn_crash_tests::observations::ObservationLog;
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::tables::{StoredTables, pending_rows};
use everturn_proof::{Counts, proof};
use everturn_simulation::SeededRandom;
use rusqlite::{Connection, OpenFlags};

use crate::case::{count_instances, events_in};
use crate::victim_process::{ALL_ENDED, VictimProcess, write_observations};

/// How many instances are added in every round.
const INSTANCES: usize = 8;
/// How many rounds a case has: in each, all processes are started and killed.
const ROUNDS: u64 = 8;
/// How many processes share a file at most.
const PROCESSES_MAX: usize = 4;
/// How long the queues may take to become empty when all instances have ended.
const QUEUES_EMPTY_MAX: Duration = Duration::from_secs(30);

/// A database file that several processes share.
pub(crate) struct SharedDatabase {
    folder: tempfile::TempDir,
    pub(crate) log: Arc<ObservationLog>,
    inspector: Inspector,
    first_run: u64,
    nodes: u64,
}

impl SharedDatabase {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            log: Arc::default(),
            inspector: Inspector::default(),
            first_run: 0,
            nodes: 0,
        }
    }

    pub(crate) fn database(&self) -> String {
        self.folder.path().join("database.db").to_str().unwrap().to_owned()
    }

    /// Adds instances.
    pub(crate) fn add(&self, count: usize, random: &mut SeededRandom) {
        let before = self.log.snapshot().instances.len();
        for index in before..before + count {
            self.log.add(format!("i{index}"), InstanceScript::draw(random));
        }
    }

    /// Starts processes that share the instances; returns when they are at work.
    pub(crate) fn start(&mut self, processes: usize) -> Result<Vec<VictimProcess>, String> {
        let started = self.begin(processes);
        for process in &started {
            process.wait_for("ready")?;
        }
        self.nodes += processes as u64;
        Ok(started)
    }

    /// Starts processes that share the instances.
    fn begin(&mut self, processes: usize) -> Vec<VictimProcess> {
        let observations = self.folder.path().join("observations");
        write_observations(&observations, &self.log);
        let mut started = Vec::new();
        for share in 0..processes {
            self.first_run += 1_000_000;
            let (share, of, first_run) =
                (share.to_string(), processes.to_string(), self.first_run.to_string());
            let arguments =
                ["work", &self.database(), observations.to_str().unwrap(), &share, &of, &first_run];
            started.push(VictimProcess::start(&arguments, &self.log));
        }
        started
    }

    /// Starts a client that reads and runs nothing; returns when it has the file open.
    pub(crate) fn start_client(&self) -> Result<VictimProcess, String> {
        let client = VictimProcess::start(&["watch", &self.database()], &self.log);
        client.wait_for("ready")?;
        Ok(client)
    }

    /// Checks a copy of the file: opening the file itself would empty its log.
    pub(crate) fn inspect(&mut self) -> Result<StoredTables, String> {
        let copy = tempfile::tempdir().unwrap();
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", self.database());
            if Path::new(&from).exists() {
                std::fs::copy(from, copy.path().join(format!("copy.db{suffix}"))).unwrap();
            }
        }
        let conn = Connection::open(copy.path().join("copy.db")).unwrap();
        let tables = StoredTables::read(&conn).map_err(|error| error.to_string())?;
        self.inspector.inspect(&tables, &self.log.snapshot())?;
        Ok(tables)
    }

    /// One more process brings all instances to their end; nothing is left in the queues.
    pub(crate) fn finish(&mut self, counts: &mut Counts) -> Result<(), String> {
        for mut process in self.start(1)? {
            process.wait_for(ALL_ENDED)?;
            self.wait_for_empty_queues();
            process.send_go();
            process.end()?;
        }
        let tables = self.inspect()?;
        let observations = self.log.snapshot();
        self.inspector.inspect_end(&tables, &observations)?;
        counts.add("nodes", self.nodes);
        count_instances(&observations, counts);
        counts.add("events", events_in(&tables));
        counts.add("activity runs", observations.runs.values().map(|runs| runs.len() as u64).sum());
        Ok(())
    }

    /// Waits for the queues to become empty; the inspector reports rows that are left.
    fn wait_for_empty_queues(&self) {
        let conn = Connection::open_with_flags(self.database(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let began = Instant::now();
        while !matches!(pending_rows(&conn), Ok(0)) && began.elapsed() < QUEUES_EMPTY_MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn case(seed: u64) -> Result<Counts, String> {
    let mut random = seeded(seed);
    let mut database = SharedDatabase::new();
    let mut counts = Counts::default();
    for round in 0..ROUNDS {
        database.add(INSTANCES, &mut random);
        let count = 1 + random.index(PROCESSES_MAX);
        let at_work = random.percent(85);
        let mut processes = if at_work { database.start(count)? } else { database.begin(count) };
        counts.add("rounds of three and more", u64::from(at_work && count >= 3));
        // The last to be killed: the file stays open while all the others die.
        let client = if at_work && round % 2 == 1 { Some(database.start_client()?) } else { None };
        counts.add("rounds with a client", u64::from(client.is_some()));
        while !processes.is_empty() {
            // The kill is to hit a random moment; nothing is waited for.
            std::thread::sleep(Duration::from_micros(random.modulo(40_000)));
            processes.swap_remove(random.index(processes.len())).kill()?;
            counts.add(if at_work { "kills" } else { "kills while opening" }, 1);
        }
        if let Some(client) = client {
            client.kill()?;
        }
        database.inspect().map_err(|failure| format!("round {round}: {failure}"))?;
    }
    database.finish(&mut counts)?;
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
        proof.require(&counts, "rounds of three and more", kills / 10);
        proof.require(&counts, "rounds with a client", kills / 10);
    }
}
