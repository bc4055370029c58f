//! Measures DBOS on PostgreSQL.

use dbos::{Config, DBOS, EngineOnly, StartOptions, WorkflowHandle, WorkflowRef};
use everturn_bench_harness::{Peer, WAIT_MAX, probe};
use everturn_bench_protocol::{BenchResult, MeasureRequest};
use futures::future::try_join_all;

type Workflow = WorkflowRef<String, String, EngineOnly>;

#[derive(Clone)]
struct Dbos {
    dbos: DBOS,
    workflows: Vec<Workflow>,
}

fn main() -> BenchResult<()> {
    everturn_bench_harness::run(open)
}

async fn open(request: MeasureRequest) -> BenchResult<Dbos> {
    let url = request.url.ok_or("dbos needs the url of a database")?;
    let mut config = Config::new("bench", url);
    config.app_version = Some("1".to_owned());
    let dbos = DBOS::new(config);
    let workflows = register(&dbos)?;
    dbos.launch().await?;
    Ok(Dbos { dbos, workflows })
}

fn register(dbos: &DBOS) -> dbos::Result<Vec<Workflow>> {
    let child = dbos.register_workflow("child", |input: String| async move {
        probe().step();
        Ok(input)
    })?;
    let children = child.clone();
    Ok(vec![
        dbos.register_workflow("chain", |steps: String| async move {
            for _ in 0..number(&steps) {
                step(String::new()).await?;
            }
            Ok(steps)
        })?,
        dbos.register_workflow("steps", |payload: String| async move {
            for _ in 0..probe().steps_each() {
                step(payload.clone()).await?;
            }
            Ok(String::new())
        })?,
        dbos.register_workflow("fan_out", |steps: String| async move {
            try_join_all((0..number(&steps)).map(|branch| step(branch.to_string()))).await?;
            Ok(steps)
        })?,
        dbos.register_workflow("greet", |name: String| async move { step(name).await })?,
        dbos.register_workflow("sleeper", |id: String| async move {
            probe().ask(&id);
            dbos::sleep(probe().sleep()).await?;
            Ok(id)
        })?,
        dbos.register_workflow("parent", move |count: String| {
            let children = children.clone();
            async move {
                let starts = (0..number(&count)).map(|child| children.start(child.to_string()));
                let started = try_join_all(starts.collect::<Vec<_>>()).await?;
                let results = started.into_iter().map(WorkflowHandle::result);
                try_join_all(results.collect::<Vec<_>>()).await?;
                Ok(count)
            }
        })?,
        dbos.register_workflow("inbox", |messages: String| async move {
            for _ in 0..number(&messages) {
                dbos::recv::<String, EngineOnly>(None, WAIT_MAX).await?;
                probe().step();
            }
            Ok(messages)
        })?,
        dbos.register_workflow("waiter", |_: String| async move {
            let message = dbos::recv::<String, EngineOnly>(None, WAIT_MAX).await?;
            Ok(message.unwrap_or_default())
        })?,
        child,
    ])
}

/// One durable step that returns its input.
fn step(input: String) -> impl Future<Output = dbos::Result<String>> + Send {
    dbos::step("step", move || {
        let output = input.clone();
        async move {
            probe().step();
            Ok(output)
        }
    })
}

fn number(input: &str) -> u64 {
    input.parse().unwrap_or(0)
}

impl Peer for Dbos {
    type Started = WorkflowHandle<String, EngineOnly>;

    async fn start(&self, workflow: &'static str, id: String, input: String) -> BenchResult<Self::Started> {
        let workflow =
            self.workflows.iter().find(|known| known.name() == workflow).ok_or("no such workflow")?;
        let options = StartOptions { workflow_id: Some(&id), ..StartOptions::default() };
        Ok(workflow.start_with(input, options).await?)
    }

    async fn wait(&self, started: Self::Started) -> BenchResult<()> {
        started.result().await?;
        Ok(())
    }

    async fn send(&self, id: &str, message: String) -> BenchResult<()> {
        Ok(self.dbos.send(id, &message).await?)
    }
}
