//! R4, R6: how soon other processes on the same file go on: after a kill, and after a commit.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everturn::Client;
use everturn_crash_tests::observations::ObservationLog;
use everturn_crash_tests::random::seeded;
use everturn_crash_tests::victim::relay::wall_ms;
use everturn_proof::{Counts, proof};
use everturn_sqlite::SqliteProvider;
use rusqlite::{Connection, OpenFlags};

use crate::victim_process::{ALL_ENDED, VictimProcess};

/// How many instances each process starts.
const INSTANCES: usize = 3;
/// After a kill the work of the killed process is at work elsewhere within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(1);
/// How many instances a second process starts one after the other, in each case.
const ROUNDS: u64 = 20;
/// Start and wait from a second process, and the first turn after a start, at the median of one case at least.
const SERVED_MAX: Duration = Duration::from_millis(30);
const WOKEN_MAX: Duration = Duration::from_millis(15);

/// Durations of all cases.
#[derive(Default)]
struct Durations(Mutex<Vec<Duration>>);

impl Durations {
    fn add(&self, duration: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(duration);
    }

    /// Prints median and maximum, past the test runner, which captures what passing tests print.
    fn print(&self, what: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.sort();
        let (median, slowest) = (all[all.len() / 2], all[all.len() - 1]);
        // A closed output is no failure.
        drop(writeln!(
            std::io::stderr().lock(),
            "{what}: median {median:.1?}, slowest {slowest:.1?}, of {}",
            all.len()
        ));
    }
}

fn start(arguments: &[&str]) -> Result<VictimProcess, String> {
    let process = VictimProcess::start(arguments, &Arc::new(ObservationLog::default()));
    process.wait_for("ready")?;
    Ok(process)
}

/// The owner of locks that is the only one so far.
fn only_owner(database: &Path) -> i64 {
    let mut folder = database.as_os_str().to_owned();
    folder.push("-owners");
    let names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "one process has the file open: {names:?}");
    u64::from_str_radix(names[0].to_str().unwrap(), 16).unwrap().cast_signed()
}

/// The locks of an owner: table, row and token.
fn locks_of(conn: &Connection, owner: i64) -> Vec<(bool, i64, String)> {
    const LOCKS: &str = "SELECT 0, seq, lock_token FROM everturn_worker_queue WHERE lock_token IS NOT NULL AND lock_owner = ?1 \
         UNION ALL SELECT 1, instance_key, lock_token FROM everturn_instances WHERE lock_token IS NOT NULL AND lock_owner = ?1";
    let mut select = conn.prepare_cached(LOCKS).unwrap();
    let locks = select.query_map([owner], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    locks.unwrap().collect::<Result<_, _>>().unwrap()
}

/// Whether an activity that was locked waits for a worker, or still has this lock.
fn is_stuck(conn: &Connection, (is_turn, row, token): &(bool, i64, String)) -> bool {
    const ACTIVITY: &str =
        "SELECT 1 FROM everturn_worker_queue WHERE seq = ?1 AND (lock_token IS NULL OR lock_token = ?2)";
    const TURN: &str = "SELECT 1 FROM everturn_instances WHERE instance_key = ?1 AND lock_token = ?2";
    let sql = if *is_turn { TURN } else { ACTIVITY };
    conn.prepare_cached(sql).unwrap().exists(rusqlite::params![row, token]).unwrap()
}

/// Kills one of two processes under load, while a client has the file open, too.
fn kill_one_of_two(seed: u64, recovered: &Durations) -> Result<Counts, String> {
    let mut random = seeded(seed);
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("database.db");
    let (name, count) = (database.to_str().unwrap(), INSTANCES.to_string());
    let killed = start(&["relay", name, "killed", &count])?;
    let owner = only_owner(&database);
    let mut rest = start(&["relay", name, "rest", &count])?;
    let client = start(&["wait", name, &count, "killed", "rest"])?;
    let conn = Connection::open_with_flags(&database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let began = Instant::now();
    while locks_of(&conn, owner).is_empty() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err("the process that is to be killed holds no lock".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The kill is to hit a random moment; nothing is waited for.
    std::thread::sleep(Duration::from_micros(random.modulo(60_000)));
    let dies = Instant::now();
    killed.kill()?;
    let held = locks_of(&conn, owner);
    let mut counts = Counts::default();
    counts.add("kills", 1);
    counts.add("locks held by killed processes", held.len() as u64);
    while held.iter().any(|lock| is_stuck(&conn, lock)) {
        if dies.elapsed() > RECOVERY_MAX {
            return Err(format!(
                "{} locks held by a killed process, not free after {:?}",
                held.len(),
                dies.elapsed()
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if !held.is_empty() {
        recovered.add(dies.elapsed());
        counts.add("kills of lock holders", 1);
    }
    client.wait_for(ALL_ENDED)?;
    client.end()?;
    rest.send_go();
    rest.end()?;
    Ok(counts)
}

#[test]
fn r4_the_rest_goes_on_within_a_second_of_a_kill() {
    let proof = proof!("R4", "r4_the_rest_goes_on_within_a_second_of_a_kill", 50);
    let recovered = Durations::default();
    let counts = proof.run("kills of lock holders", |seed| kill_one_of_two(seed, &recovered));
    proof.require(&counts, "locks held by killed processes", counts.get("kills of lock holders") * 2);
    recovered.print("recovery after a kill, with another client open");
}

/// Starts instances and waits for them in a process that has no runtime.
fn serve_a_second_process(served: &Durations, woken: &Durations) -> Result<Counts, String> {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("database.db");
    let mut server = start(&["relay", database.to_str().unwrap(), "none", "0"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut cases_served, mut cases_woken) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let provider = SqliteProvider::new(&format!("sqlite:{}", database.display()), None).await.unwrap();
        let provider = Arc::new(provider);
        let client = Client::new(provider.clone());
        for round in 0..ROUNDS {
            let (id, began) = (format!("round-{round}"), Instant::now());
            client.start_orchestration(&id, "now", "").await.unwrap();
            let stored_ms = wall_ms();
            let output = client.wait_for_orchestration_typed::<u64>(&id, Duration::from_secs(30)).await;
            let first_turn_ms = u128::from(output.unwrap().unwrap());
            cases_served.push(began.elapsed());
            let waited_ms = u64::try_from(first_turn_ms.saturating_sub(stored_ms)).unwrap();
            cases_woken.push(Duration::from_millis(waited_ms));
        }
        drop(client);
        provider.close().await;
    });
    server.send_go();
    server.end()?;
    let mut counts = Counts::default();
    counts.add("rounds", ROUNDS);
    counts.add("cases measured", 1);
    for (case, all, bound, count) in [
        (&mut cases_served, served, SERVED_MAX, "cases served in time"),
        (&mut cases_woken, woken, WOKEN_MAX, "cases woken in time"),
    ] {
        case.sort();
        counts.add(count, u64::from(case[case.len() / 2] < bound));
        case.iter().for_each(|duration| all.add(*duration));
    }
    Ok(counts)
}

#[test]
fn r6_a_second_process_is_served_and_woken_in_milliseconds() {
    let proof = proof!("R6", "r6_a_second_process_is_served_and_woken_in_milliseconds", 100);
    let (served, woken) = (Durations::default(), Durations::default());
    let counts = proof.run("rounds", |_seed| serve_a_second_process(&served, &woken));
    served.print("start and wait from a second process");
    woken.print("wake-up of another process after a commit");
    // The machine may be busy for a while, but not for most of the cases.
    let half = counts.get("cases measured").div_ceil(2);
    proof.require(&counts, "cases served in time", half);
    proof.require(&counts, "cases woken in time", half);
}
