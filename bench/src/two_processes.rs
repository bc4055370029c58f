//! Two processes on one file: how soon a second one is served, and how soon work goes on after a kill.
//!
//! The bars are times, not ratios: what they bound is waiting, not work.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, median};

/// The argument with which this program starts itself as a process with a runtime.
pub(crate) const SERVE_FLAG: &str = "--serve";

/// How long the activity of a process takes that is killed meanwhile.
const TAKES: Duration = Duration::from_millis(300);

/// A process with a runtime. It is killed when it is dropped.
struct ServingProcess(Child);

impl ServingProcess {
    fn start(database: &Path) -> BenchResult<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVE_FLAG)
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the process has no output")?;
        let process = Self(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim_end() == "ready" { Ok(process) } else { Err(format!("it says '{line}'").into()) }
    }

    fn kill(&mut self) -> BenchResult<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for ServingProcess {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.kill());
    }
}

/// Returns when its first turn ran, in milliseconds since the epoch.
async fn now(ctx: OrchestrationContext, _input: String) -> std::result::Result<u64, String> {
    let now = ctx.utc_now().await?;
    Ok(now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

async fn toil(ctx: OrchestrationContext, _input: String) -> std::result::Result<String, String> {
    ctx.schedule_activity("toil", String::new()).await
}

/// Runs a runtime until this process is killed.
pub(crate) async fn serve(database: &Path) -> BenchResult<()> {
    let store = Arc::new(open(database).await?);
    let toils = |_: ActivityContext, _: String| async {
        tokio::time::sleep(TAKES).await;
        Ok(String::new())
    };
    let activities = ActivityRegistry::builder().register("toil", toils).build();
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("now", now).register("toil", toil).build();
    let _runtime = Runtime::start_with_store(store, activities, orchestrations).await;
    println!("ready");
    std::future::pending().await
}

async fn open(database: &Path) -> BenchResult<SqliteProvider> {
    Ok(SqliteProvider::new(&format!("sqlite:{}", database.display()), None).await?)
}

pub(crate) async fn measure_service(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let database = request.folder.join("engine.db");
    let _server = ServingProcess::start(&database)?;
    let client = Client::new(Arc::new(open(&database).await?));
    let (mut served, mut woken) = (Vec::new(), Vec::new());
    for round in 0..request.size("rounds")? {
        let (id, began) = (format!("round-{round}"), Instant::now());
        client.start_orchestration(&id, "now", "").await?;
        let stored = SystemTime::now();
        let output = client.wait_for_orchestration_typed::<u64>(&id, Duration::from_secs(30)).await??;
        served.push(began.elapsed().as_secs_f64());
        let first_turn = UNIX_EPOCH + Duration::from_millis(output);
        woken.push(first_turn.duration_since(stored).unwrap_or_default().as_secs_f64());
    }
    let figures = Figures::of([("served_s", median(&served)?), ("woken_s", median(&woken)?)]);
    Ok(MeasureReply::whole(figures))
}

/// Kills the process that runs an activity, with another process and this client on the file, and waits for its end.
pub(crate) async fn measure_recovery(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let mut slowest_s = 0.0_f64;
    for kill in 0..request.size("kills")? {
        let database = request.folder.join(format!("engine-{kill}.db"));
        let mut killed = ServingProcess::start(&database)?;
        let client = Client::new(Arc::new(open(&database).await?));
        let id = format!("kill-{kill}");
        client.start_orchestration(&id, "toil", "").await?;
        // In the middle of its activity.
        tokio::time::sleep(TAKES / 2).await;
        let _rest = ServingProcess::start(&database)?;
        killed.kill()?;
        let began = Instant::now();
        client.wait_for_orchestration_typed::<String>(&id, Duration::from_secs(60)).await??;
        // The other process runs the whole activity again.
        slowest_s = slowest_s.max(began.elapsed().saturating_sub(TAKES).as_secs_f64());
    }
    Ok(MeasureReply::whole(Figures::of([("slowest_s", slowest_s)])))
}
