//! Measures durare on SQLite and PostgreSQL.

use std::sync::Arc;

use durare::{
    DurableContext, DurableEngine, PostgresProvider, SqliteProvider, StateProvider, WorkflowHandle,
    WorkflowOptions,
};
use everturn_bench_harness::{Peer, WAIT_MAX, probe};
use everturn_bench_protocol::{BenchResult, MeasureRequest};
use futures::future::try_join_all;

#[derive(Clone)]
struct Durare(Arc<DurableEngine>);

fn main() -> BenchResult<()> {
    everturn_bench_harness::run(open)
}

async fn open(request: MeasureRequest) -> BenchResult<Durare> {
    let provider: Arc<dyn StateProvider> = match request.variant.as_str() {
        "sqlite" => {
            let path = request.folder.join("engine.db");
            let url = format!("sqlite://{}?mode=rwc", path.display());
            Arc::new(SqliteProvider::connect(&url).await?)
        }
        "postgres" => {
            let url = request.url.ok_or("durare needs the url of a database")?;
            Arc::new(PostgresProvider::connect(&url).await?)
        }
        other => return Err(format!("no variant '{other}' of durare: sqlite or postgres").into()),
    };
    let mut builder = DurableEngine::builder(provider);
    // Unfinished workflows go on when the process starts again.
    builder.app_version("1").executor_id("bench").recover_on_launch(true);
    builder
        .register("child", |_: DurableContext, input: String| async move {
            probe().step();
            Ok(input)
        })
        .register("chain", |ctx: DurableContext, steps: String| async move {
            for _ in 0..number(&steps) {
                step(&ctx, String::new()).await?;
            }
            Ok(steps)
        })
        .register("steps", |ctx: DurableContext, payload: String| async move {
            for _ in 0..probe().steps_each() {
                step(&ctx, payload.clone()).await?;
            }
            Ok(String::new())
        })
        .register("fan_out", |ctx: DurableContext, steps: String| async move {
            try_join_all((0..number(&steps)).map(|branch| step(&ctx, branch.to_string()))).await?;
            Ok(steps)
        })
        .register("greet", |ctx: DurableContext, name: String| async move { step(&ctx, name).await })
        .register("sleeper", |ctx: DurableContext, id: String| async move {
            probe().ask(&id);
            ctx.sleep(probe().sleep()).await?;
            Ok(id)
        })
        .register("parent", |ctx: DurableContext, count: String| async move {
            let starts = (0..number(&count)).map(|child| {
                ctx.start_workflow::<_, String>("child", child.to_string(), WorkflowOptions::default())
            });
            let started = try_join_all(starts).await?;
            try_join_all(started.iter().map(WorkflowHandle::result)).await?;
            Ok(count)
        })
        .register("inbox", |ctx: DurableContext, messages: String| async move {
            for _ in 0..number(&messages) {
                ctx.recv::<String>("inbox", WAIT_MAX).await?;
                probe().step();
            }
            Ok(messages)
        })
        .register("waiter", |ctx: DurableContext, _: String| async move {
            let message = ctx.recv::<String>("go", WAIT_MAX).await?;
            Ok(message.unwrap_or_default())
        });
    let engine = builder.build().await?;
    engine.launch().await?;
    Ok(Durare(Arc::new(engine)))
}

/// One durable step that returns its input.
fn step(ctx: &DurableContext, input: String) -> impl Future<Output = durare::Result<String>> + Send {
    ctx.step("step", move || async move {
        probe().step();
        Ok(input)
    })
}

fn number(input: &str) -> u64 {
    input.parse().unwrap_or(0)
}

impl Peer for Durare {
    type Started = WorkflowHandle<String>;

    async fn start(&self, workflow: &'static str, id: String, input: String) -> BenchResult<Self::Started> {
        Ok(self.0.start(workflow, input, WorkflowOptions::with_id(id)).await?)
    }

    async fn wait(&self, started: Self::Started) -> BenchResult<()> {
        started.result().await?;
        Ok(())
    }

    async fn send(&self, id: &str, message: String) -> BenchResult<()> {
        Ok(self.0.send(id, message, "inbox").await?)
    }
}
