//! `kill -9` at any moment: the next run continues the order, and nothing is recorded twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use everturn::providers::sqlite::SqliteProvider;
use everturn::{Client, Event, EventKind};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::built;

const ORDERS: usize = 20;
const HITS_MIN: usize = 15;
const PACE_MS: &str = "250";
const CONTINUES_WITHIN: Duration = Duration::from_secs(3);
/// The same moments in every run, unless EVERTURN_PROOF_SEED is set.
const DEFAULT_SEED: u64 = 2026;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn killed_orders_go_on_and_nothing_is_recorded_twice() {
    let seed = seed();
    println!("seed {seed} (set EVERTURN_PROOF_SEED to repeat it)");
    let undisturbed = undisturbed_run();
    println!("an undisturbed run takes {undisturbed:?}");

    let mut moments = Moments(seed);
    let mut hits = 0;
    for number in 1..=ORDERS {
        let kill_after = undisturbed.mul_f64(moments.next_fraction());
        let order = Shop::open(number);
        let killed_ms = order.kill_after(kill_after);
        let began_again_ms = now_ms();
        order.run_to_the_end();

        let history = order.history();
        let hit = created_ms(&history) <= killed_ms && killed_ms < ended_ms(&history);
        hits += usize::from(hit);
        println!(
            "order {number}: killed after {kill_after:?}, {}",
            if hit { "while it ran" } else { "before or after it ran" }
        );
        order.check(&history, hit.then_some(began_again_ms));
    }
    println!("{hits} of {ORDERS} kills hit a running order");
    assert!(hits >= HITS_MIN, "only {hits} of {ORDERS} kills hit a running order (seed {seed})");
}

/// One order in a folder of its own.
struct Shop {
    program: PathBuf,
    folder: TempDir,
    id: String,
}

impl Shop {
    fn open(number: usize) -> Self {
        Self {
            program: built::program("order"),
            folder: tempfile::tempdir().unwrap(),
            id: format!("killed-{number}"),
        }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("order.db")
    }

    fn start(&self) -> Child {
        Command::new(&self.program)
            .arg("--db")
            .arg(self.database())
            .args(["--order", &self.id, "--pace", PACE_MS])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Runs the order, kills it after this time as `kill -9` does, and returns when that was.
    fn kill_after(&self, time: Duration) -> u64 {
        let mut process = self.start();
        // The moment of the kill is what is tested: there is no condition to wait for.
        std::thread::sleep(time);
        let killed_ms = now_ms();
        process.kill().unwrap();
        process.wait().unwrap();
        killed_ms
    }

    fn run_to_the_end(&self) {
        let mut process = self.start();
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = process.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                process.kill().unwrap();
                panic!("{} did not end within {PATIENCE:?}", self.id);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{}: {status}", self.id);
    }

    fn history(&self) -> Vec<Event> {
        read_history(&self.database(), &self.id)
    }

    /// One terminal event, one outcome per activity, one charge. An order killed while it ran continued soon.
    fn check(&self, history: &[Event], began_again_ms: Option<u64>) {
        let id = &self.id;
        let terminal = history.iter().filter(|event| event.is_terminal()).count();
        assert_eq!(terminal, 1, "{id}: terminal events in {history:#?}");
        assert!(
            matches!(history.last().unwrap().kind, EventKind::OrchestrationCompleted { .. }),
            "{history:#?}"
        );

        let mut scheduled = 0;
        for event in history {
            if matches!(event.kind, EventKind::ActivityScheduled { .. }) {
                scheduled += 1;
                let outcomes = history.iter().filter(|other| is_outcome_of(other, event)).count();
                assert_eq!(outcomes, 1, "{id}: outcomes of event {} in {history:#?}", event.event_id);
            }
        }
        assert_eq!(scheduled, 3, "{id}: charge, ship and notify in {history:#?}");
        assert_eq!(self.ledger_entries("charge"), 1, "{id}: charges");
        assert_eq!(self.ledger_entries("shipment"), 1, "{id}: shipments");
        assert_eq!(self.ledger_entries("refund"), 0, "{id}: refunds");

        if let Some(began_again_ms) = began_again_ms {
            let first = history.iter().map(|event| event.timestamp_ms).find(|time| *time >= began_again_ms);
            let waited =
                Duration::from_millis(first.expect("it ended after it was run again") - began_again_ms);
            assert!(waited <= CONTINUES_WITHIN, "{id} continued only after {waited:?}: {history:#?}");
        }
    }

    fn ledger_entries(&self, what: &str) -> i64 {
        let ledger = Connection::open(self.database().with_extension("ledger.db")).unwrap();
        let count = "SELECT count(*) FROM entries WHERE order_id = ?1 AND what = ?2";
        ledger.query_row(count, [&self.id, what], |row| row.get(0)).unwrap()
    }
}

/// How long a new order takes when it is not killed.
fn undisturbed_run() -> Duration {
    let order = Shop::open(0);
    let began = Instant::now();
    order.run_to_the_end();
    let took = began.elapsed();
    order.check(&order.history(), None);
    took
}

fn read_history(database: &Path, id: &str) -> Vec<Event> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteProvider::new(&format!("sqlite:{}", database.display()), None).await.unwrap();
        let client = Client::new(Arc::new(store));
        assert_eq!(client.list_executions(id).await.unwrap(), [1]);
        client.read_execution_history(id, 1).await.unwrap()
    })
}

fn is_outcome_of(event: &Event, schedule: &Event) -> bool {
    event.source_event_id == Some(schedule.event_id)
        && matches!(event.kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. })
}

fn created_ms(history: &[Event]) -> u64 {
    history.first().unwrap().timestamp_ms
}

fn ended_ms(history: &[Event]) -> u64 {
    history.iter().find(|event| event.is_terminal()).unwrap().timestamp_ms
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

fn seed() -> u64 {
    match std::env::var("EVERTURN_PROOF_SEED") {
        Ok(text) => text.parse().expect("EVERTURN_PROOF_SEED is a number"),
        Err(_) => DEFAULT_SEED,
    }
}

/// Fractions drawn uniformly, the same for the same seed (SplitMix64).
struct Moments(u64);

impl Moments {
    fn next_fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}
