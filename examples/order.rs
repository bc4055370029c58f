//! A durable order workflow: charge, wait for the carrier, ship, notify; refund if no carrier comes.
//!
//! `cargo run --release --example order`, kill it at any moment (`kill -9`), run it again: it continues where it stopped.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{
    ActivityContext, Client, Either2, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus, RetryPolicy, RuntimeOptions, SUB_ORCH_AUTO_PREFIX,
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

const HELP: &str = "\
An order workflow that can be killed at any moment and continues when it is run again.

usage: order [--db PATH] [--order ID] [--pace MS] [--no-carrier]

  --db PATH      the database; the ledger of the shop is kept beside it   [order.db]
  --order ID     the order to run; default: the open order, or a new one
  --pace MS      how long each step takes, in milliseconds                [800]
  --no-carrier   no carrier comes: the deadline passes and the money is refunded
  --help         this text";

/// The custom status while the wait for the carrier is recorded, so that a signal is delivered to it.
const WAITING: &str = "waiting for the carrier";

// ---- the orchestration: decisions only, no side effects ----

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    item: String,
    cents: i64,
    /// How long to wait for the carrier.
    patience_ms: u64,
}

/// A ledger entry. Its key makes an activity idempotent: it may run several times, the entry is written once.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// The same in every attempt and after every crash, because it is derived from recorded data.
    idempotency_key: String,
    order: String,
    what: String,
    cents: i64,
}

async fn process_order(ctx: OrchestrationContext, order: Order) -> Result<String, String> {
    let id = ctx.instance_id();
    let entry = |what: &str, cents| Entry {
        idempotency_key: format!("{what}:{id}"),
        order: id.clone(),
        what: what.to_owned(),
        cents,
    };
    let policy = || RetryPolicy::new(5);

    ctx.set_custom_status("charging");
    let charge = entry("charge", order.cents);
    let receipt: String = ctx.schedule_activity_with_retry_typed("charge", &charge, policy()).await?;

    ctx.set_custom_status(WAITING);
    let carrier = ctx.schedule_wait("carrier_arrived");
    let too_late = ctx.schedule_timer(Duration::from_millis(order.patience_ms));
    let shipped = match ctx.select2(carrier, too_late).await {
        Either2::First(carrier) => {
            ctx.set_custom_status(format!("shipping with {carrier}"));
            ctx.schedule_activity_typed::<_, String>("ship", &entry("shipment", 0))
                .await
                .map(|parcel| format!("{} shipped with {carrier}, {parcel}, {receipt}", order.item))
        }
        Either2::Second(()) => Err("no carrier came in time".to_owned()),
    };

    let outcome = match shipped {
        Ok(shipped) => shipped,
        Err(reason) => {
            ctx.set_custom_status("refunding");
            let refund = entry("refund", -order.cents);
            let refunded: String =
                ctx.schedule_activity_with_retry_typed("refund", &refund, policy()).await?;
            format!("{} not shipped ({reason}), {refunded}", order.item)
        }
    };
    ctx.set_custom_status("notifying");
    ctx.schedule_activity_with_retry("notify", outcome.clone(), policy()).await?;
    Ok(outcome)
}

// ---- the activities: all side effects ----

fn activities(ledger: &Arc<Ledger>, pace: Duration) -> Result<ActivityRegistry, String> {
    let mut registry = ActivityRegistry::builder();
    for (name, thing) in [("charge", "receipt"), ("ship", "parcel"), ("refund", "refund")] {
        let ledger = ledger.clone();
        registry = registry.register_typed(name, move |ctx: ActivityContext, entry: Entry| {
            let ledger = ledger.clone();
            async move {
                // After a crash before the entry, nothing has happened yet. After a crash behind the entry, the
                // activity runs again with the same key.
                tokio::time::sleep(pace / 2).await;
                let (number, times) = ledger.record(&entry).map_err(|error| error.to_string())?;
                let note = if times == 1 { "" } else { " (known key: not recorded again)" };
                println!(
                    "  {:<8} {} with key {}{note}",
                    ctx.activity_name(),
                    entry.what,
                    entry.idempotency_key
                );
                tokio::time::sleep(pace / 2).await;
                Ok(format!("{thing} {number}"))
            }
        });
    }
    registry
        .register("notify", move |_: ActivityContext, text: String| async move {
            tokio::time::sleep(pace).await;
            println!("  notify   \"{text}\"");
            Ok(String::new())
        })
        .build_result()
}

/// The shop's own ledger, in a database that the engine does not use.
struct Ledger(Mutex<Connection>);

impl Ledger {
    fn open(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
             CREATE TABLE IF NOT EXISTS entries (
                 number          INTEGER PRIMARY KEY,
                 idempotency_key TEXT NOT NULL UNIQUE,
                 order_id        TEXT NOT NULL,
                 what            TEXT NOT NULL,
                 cents           INTEGER NOT NULL,
                 times_asked     INTEGER NOT NULL DEFAULT 1
             );",
        )?;
        Ok(Self(Mutex::new(connection)))
    }

    /// Records an entry, or finds the one with the same key. Returns its number and how often it was requested.
    fn record(&self, entry: &Entry) -> rusqlite::Result<(i64, i64)> {
        self.lock().query_row(
            "INSERT INTO entries (idempotency_key, order_id, what, cents) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (idempotency_key) DO UPDATE SET times_asked = times_asked + 1
             RETURNING number, times_asked",
            params![entry.idempotency_key, entry.order, entry.what, entry.cents],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// Records an order before it is started, so that the next run finds it.
    fn open_order(&self, id: &str) -> rusqlite::Result<()> {
        self.lock().execute("INSERT OR IGNORE INTO orders (id) VALUES (?1)", [id]).map(|_| ())
    }

    fn last_order(&self) -> rusqlite::Result<Option<(i64, String)>> {
        self.lock()
            .query_row("SELECT number, id FROM orders ORDER BY number DESC LIMIT 1", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
    }

    /// The ledger entries of an order, as text.
    fn lines(&self, order: &str) -> rusqlite::Result<Vec<String>> {
        let connection = self.lock();
        let mut select = connection
            .prepare("SELECT what, cents, times_asked FROM entries WHERE order_id = ?1 ORDER BY number")?;
        let lines = select.query_map([order], |row| {
            let (what, cents, times): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let euros = match cents {
                0 => String::new(),
                cents => format!("{}.{:02} EUR", cents / 100, cents.abs() % 100),
            };
            Ok(format!("{what:<8} {euros:>12}  recorded once, requested {times} x"))
        })?;
        lines.collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ---- the program ----

struct Arguments {
    db: PathBuf,
    order: Option<String>,
    pace: Duration,
    carrier_comes: bool,
}

/// Returns `None` for `--help`.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut parsed = Arguments {
        db: PathBuf::from("order.db"),
        order: None,
        pace: Duration::from_millis(800),
        carrier_comes: true,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || match arguments.next() {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(format!("{argument} needs a value")),
        };
        match argument.as_str() {
            "--db" => parsed.db = PathBuf::from(value()?),
            "--order" => {
                let id = value()?;
                if id.starts_with(SUB_ORCH_AUTO_PREFIX) || id.contains("::sub::") {
                    return Err(format!("--order: '{id}' is reserved for sub-orchestrations"));
                }
                parsed.order = Some(id);
            }
            "--pace" => {
                let text = value()?;
                let pace_ms = text
                    .parse::<u32>()
                    .map_err(|_| format!("--pace: '{text}' is not a number of milliseconds"))?;
                parsed.pace = Duration::from_millis(u64::from(pace_ms));
            }
            "--no-carrier" => parsed.carrier_comes = false,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(Some(parsed))
}

#[tokio::main]
async fn main() -> ExitCode {
    let given = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let arguments = match parse(given) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("order: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("order: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let db = arguments.db.display().to_string();
    let store = Arc::new(SqliteProvider::new(&format!("sqlite:{db}"), None).await?);
    let ledger = Arc::new(Ledger::open(&arguments.db.with_extension("ledger.db"))?);
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("process_order", process_order).build_result()?;
    let activities = activities(&ledger, arguments.pace)?;
    // No limit on attempts: each kill counts as one, and none may fail the order.
    let options = RuntimeOptions { max_attempts: u32::MAX, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;

    let client = Client::new(store.clone());
    let id = choose_order(&client, &ledger, arguments.order.clone()).await?;
    // The order is in the ledger before it starts. A second start of the same id changes nothing.
    ledger.open_order(&id)?;
    let begin = match client.get_orchestration_status(&id).await? {
        OrchestrationStatus::NotFound => "started",
        OrchestrationStatus::Running { .. } => "continuing",
        OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. } => "showing",
    };
    let pace_ms = u64::try_from(arguments.pace.as_millis())?;
    let patience_ms = if arguments.carrier_comes { 600_000 } else { 3 * pace_ms };
    let order = Order { item: "a good book".to_owned(), cents: 3_900, patience_ms };
    client.start_orchestration_typed(&id, "process_order", order).await?;
    println!("{begin} {id} in {db}");
    println!("(process {}: kill -9 it and run it again)", std::process::id());

    let outcome = follow(&client, &id, &arguments).await?;
    println!("\n{id} ended: {outcome}");
    print_history(&client, &id).await?;
    println!("\nledger:");
    for line in ledger.lines(&id)? {
        println!("  {line}");
    }
    runtime.shutdown(None).await;
    // Moves the write-ahead log into the database, so that one file is left.
    store.close().await;
    Ok(())
}

/// The requested order, or the last one if it has not ended, or a new one.
async fn choose_order(
    client: &Client,
    ledger: &Ledger,
    requested: Option<String>,
) -> Result<String, Box<dyn Error>> {
    if let Some(id) = requested {
        return Ok(id);
    }
    let (mut number, mut id) = ledger.last_order()?.unwrap_or((1, "order-1".to_owned()));
    while has_ended(&client.get_orchestration_status(&id).await?) {
        number += 1;
        id = format!("order-{number}");
    }
    Ok(id)
}

fn has_ended(status: &OrchestrationStatus) -> bool {
    matches!(status, OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. })
}

/// Prints every change of the order's status until it ends, and sends the carrier's signal.
async fn follow(client: &Client, id: &str, arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let mut seen = 0;
    loop {
        match client.wait_for_status_change(id, seen, Duration::from_millis(100), Duration::MAX).await? {
            OrchestrationStatus::Completed { output, .. } => return Ok(output),
            OrchestrationStatus::Failed { details, .. } => {
                return Err(format!("{id} failed: {}", details.display_message()).into());
            }
            OrchestrationStatus::Running { custom_status, custom_status_version } => {
                seen = custom_status_version;
                let status = custom_status.unwrap_or_default();
                println!("{id} is {status}");
                if status == WAITING && arguments.carrier_comes {
                    // After a crash the signal may be sent twice. The second one finds no open wait and is ignored.
                    tokio::time::sleep(arguments.pace).await;
                    client.raise_event(id, "carrier_arrived", "the red bicycle").await?;
                }
            }
            OrchestrationStatus::NotFound => return Err(format!("{id} does not exist").into()),
        }
    }
}

async fn print_history(client: &Client, id: &str) -> Result<(), Box<dyn Error>> {
    println!("\nhistory, as stored in the database:");
    for event in client.read_execution_history(id, 1).await? {
        let about = match &event.kind {
            EventKind::OrchestrationStarted { name, .. } => name.clone(),
            EventKind::ActivityScheduled { name, .. } | EventKind::ExternalSubscribed { name } => {
                name.clone()
            }
            EventKind::ExternalEvent { name, data } => format!("{name}: {data}"),
            EventKind::ActivityCompleted { result } => result.clone(),
            EventKind::CustomStatusUpdated { status } => status.clone().unwrap_or_default(),
            _ => String::new(),
        };
        // The name of the variant, without its fields.
        let kind = format!("{:?}", event.kind);
        let kind = kind.split([' ', '{']).next().unwrap_or_default();
        println!("{}", format!("  {:>2} {kind:<26} {about}", event.event_id).trim_end());
    }
    Ok(())
}
