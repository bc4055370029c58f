//! Store size: what the same calls cost in a store of 1,000 and in one of 1,000,000 finished instances.
//!
//! Both stores are prepared once, with the ordinary interface: the schema may change without this file. Each round measures
//! both, one call of each kind after the other, and how long another writer waited meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everturn::runtime::registry::ActivityRegistry;
use everturn::{
    ActivityContext, Client, InstanceFilter, OrchestrationContext, OrchestrationRegistry, PruneOptions,
};
use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest, median};
use tokio::task::JoinSet;

use crate::bench_runtime::BenchRuntime;

/// Tasks that fill a store: enough for large batches.
const FILLERS: u64 = 512;
/// Instances that one seed starts, and seeds that are started together.
const SEEDED: u64 = 500;
const SEEDS_AT_ONCE: usize = 20;
const FAILED_INSTANCES: u64 = 100;
const STARTS: u64 = 100;
const STEPS: u64 = 100;
const LISTS: usize = 20;
/// Calls of a bulk operation in each round, and instances in each call.
const BULK_CALLS: u64 = 5;
const BULK_INSTANCES: u64 = 100;
/// How often an instance that is pruned continued as new: it has one execution more.
const RENEWALS: &str = "9";
const PRUNED_EXECUTIONS: u64 = 9;
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The calls that are compared, as the figures name them.
const CALLS: [&str; 5] = ["start", "step", "list", "delete", "prune"];

fn registries() -> (ActivityRegistry, OrchestrationRegistry) {
    let step = |_: ActivityContext, input: String| async move { Ok(input) };
    let old = |_: OrchestrationContext, input: String| async move { Ok(input) };
    let failing = |_: OrchestrationContext, _: String| async move { Err("on purpose".to_owned()) };
    let steps = |ctx: OrchestrationContext, steps: u64| async move {
        for step in 0..steps {
            ctx.schedule_activity("step", step.to_string()).await?;
        }
        Ok(steps)
    };
    let renewed = |ctx: OrchestrationContext, left: String| async move {
        match left.parse::<u64>().unwrap_or(0) {
            0 => Ok(String::new()),
            left => ctx.continue_as_new((left - 1).to_string()).await,
        }
    };
    // Starts many instances in one commit.
    let seed = |ctx: OrchestrationContext, numbers: (u64, u64)| async move {
        for number in numbers.0..numbers.1 {
            ctx.schedule_orchestration("old", format!("old-{number}"), "");
        }
        Ok(())
    };
    let activities = ActivityRegistry::builder().register("step", step).build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("old", old)
        .register("failing", failing)
        .register_typed("seed", seed)
        .register_typed("steps", steps)
        .register("renewed", renewed)
        .build();
    (activities, orchestrations)
}

async fn open(request: &MeasureRequest, name: &str, variant: &str) -> BenchResult<BenchRuntime> {
    let folder = request.folder.join(name);
    std::fs::create_dir_all(&folder)?;
    let request = MeasureRequest { folder, variant: variant.to_owned(), ..request.clone() };
    let (activities, orchestrations) = registries();
    BenchRuntime::start(&request, activities, orchestrations).await
}

/// Fills both stores.
pub(crate) async fn prepare(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let mut figures = Figures::default();
    for name in ["small", "large"] {
        let began = Instant::now();
        // Without waiting for the disk: the preparation is not measured.
        let bench = open(request, name, "normal").await?;
        fill(&bench.client, request.size(name)?).await?;
        run_many(&bench.client, "failing", 0..FAILED_INSTANCES, "").await?;
        bench.stop().await;
        figures.set(format!("prepare_{name}_s"), began.elapsed().as_secs_f64());
        figures.set(format!("{name}_file_mb"), file_mb(&request.folder.join(name))?);
    }
    Ok(MeasureReply::whole(figures))
}

/// Starts this many instances, a few hundred in each commit, and waits until all have ended.
async fn fill(client: &Client, instances: u64) -> BenchResult<()> {
    let mut first = 0;
    while first < instances {
        // Some seeds at the same time, and not so many that the queues become long.
        let round = (first..instances).step_by(SEEDED as usize).take(SEEDS_AT_ONCE);
        for from in round {
            let to = (from + SEEDED).min(instances);
            client.start_orchestration_typed(format!("seed-{from}"), "seed", (from, to)).await?;
            first = to;
        }
        let last = format!("old-{}", first - 1);
        while client.wait_for_orchestration(&last, WAIT_MAX).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    while client.get_system_metrics().await?.running_instances > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Runs instances of one orchestration to their ends, many at the same time.
async fn run_many(
    client: &Client,
    orchestration: &'static str,
    numbers: std::ops::Range<u64>,
    input: &'static str,
) -> BenchResult<()> {
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        let (client, numbers) = (client.clone(), numbers.clone());
        fillers.spawn(async move {
            for number in numbers.skip(filler as usize).step_by(FILLERS as usize) {
                let id = format!("{orchestration}-{number}");
                client.start_orchestration(&id, orchestration, input).await?;
                client.wait_for_orchestration(&id, WAIT_MAX).await?;
            }
            BenchResult::Ok(())
        });
    }
    while let Some(filler) = fillers.join_next().await {
        filler??;
    }
    Ok(())
}

fn file_mb(folder: &Path) -> BenchResult<f64> {
    Ok(everturn_bench_protocol::folder_bytes(folder)? / 1_000_000.0)
}

/// Measures both stores.
pub(crate) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let small = measure_store(request, "small").await?;
    let large = measure_store(request, "large").await?;
    let mut figures = Figures::default();
    let mut worst = 0.0_f64;
    for call in CALLS {
        let ratio = large.get(call)? / small.get(call)?;
        worst = worst.max(ratio);
        figures.set(format!("{call}_small_s"), small.get(call)?);
        figures.set(format!("{call}_large_s"), large.get(call)?);
        figures.set(format!("{call}_ratio"), ratio);
    }
    figures.set("ratio", worst);
    figures.set("longest_wait_ms", large.get("longest_wait_ms")?);
    Ok(MeasureReply::whole(figures))
}

async fn measure_store(request: &MeasureRequest, name: &str) -> BenchResult<Figures> {
    let bench = open(request, name, &request.variant).await?;
    let client = &bench.client;
    // Ids of this round.
    let round = (request.began_s * 1_000.0) as u64;
    let mut figures = Figures::default();

    let mut seconds = Vec::new();
    for number in 0..STARTS {
        let id = format!("start-{round}-{number}");
        let began = Instant::now();
        client.start_orchestration(&id, "old", "").await?;
        client.wait_for_orchestration(&id, WAIT_MAX).await?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    figures.set("start", median(&seconds)?);

    let id = format!("steps-{round}");
    let began = Instant::now();
    client.start_orchestration_typed(&id, "steps", STEPS).await?;
    client.wait_for_orchestration_typed::<u64>(&id, WAIT_MAX).await??;
    figures.set("step", began.elapsed().as_secs_f64() / STEPS as f64);

    seconds.clear();
    for _ in 0..LISTS {
        let began = Instant::now();
        let failed = client.list_instances_by_status("Failed").await?;
        seconds.push(began.elapsed().as_secs_f64());
        if failed.len() as u64 != FAILED_INSTANCES {
            return Err(format!("{} failed instances were listed", failed.len()).into());
        }
    }
    figures.set("list", median(&seconds)?);

    let first = round * BULK_CALLS * BULK_INSTANCES;
    let numbers = first..first + BULK_CALLS * BULK_INSTANCES;
    run_many(client, "renewed", numbers, RENEWALS).await?;
    let writer = SecondWriter::start(client.clone());
    let (mut prunes, mut deletions) = (Vec::new(), Vec::new());
    for call in 0..BULK_CALLS {
        let of_call = first + call * BULK_INSTANCES..first + (call + 1) * BULK_INSTANCES;
        let ids: Vec<String> = of_call.map(|number| format!("renewed-{number}")).collect();
        let filter = InstanceFilter { instance_ids: Some(ids), ..InstanceFilter::default() };
        let keep_one = PruneOptions { keep_last: Some(1), ..PruneOptions::default() };
        let began = Instant::now();
        let pruned = client.prune_executions_bulk(filter.clone(), keep_one).await?;
        prunes.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        let deleted = client.delete_instance_bulk(filter).await?;
        deletions.push(began.elapsed().as_secs_f64());
        if pruned.executions_deleted != BULK_INSTANCES * PRUNED_EXECUTIONS
            || deleted.instances_deleted != BULK_INSTANCES
        {
            return Err(format!("{pruned:?}, {deleted:?}").into());
        }
    }
    figures.set("prune", median(&prunes)?);
    figures.set("delete", median(&deletions)?);
    figures.set("longest_wait_ms", writer.stop().await? * 1_000.0);
    bench.stop().await;
    Ok(figures)
}

/// A client that writes all the time: it waits as long as others hold the writer.
struct SecondWriter {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<BenchResult<f64>>,
}

impl SecondWriter {
    fn start(client: Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut longest_s = 0.0_f64;
            while !stopping.load(Ordering::Relaxed) {
                let began = Instant::now();
                // The instance does not exist: the message is stored, and dropped later.
                client.raise_event("nobody", "event", "").await?;
                longest_s = longest_s.max(began.elapsed().as_secs_f64());
            }
            Ok(longest_s)
        });
        Self { stop, task }
    }

    async fn stop(self) -> BenchResult<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}
