//! The activities of simulated programs.

use std::sync::Arc;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext};
use tokio::time::sleep;

use crate::fault_plan::Fault;
use crate::interpreter;
use crate::model::{flaky_failure, flaky_success};
use crate::names;
use crate::process::Process;
use crate::scenario::Scenario;

const KINDS: [&str; 7] =
    [names::ECHO, names::FAIL, names::FLAKY, names::ENDLESS, names::SESSION, names::TAGGED, names::DEADLY];

/// The one orchestration.
pub(crate) fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register(names::ORCHESTRATION, interpreter::run).build()
}

/// The orchestrations of a process: one more, which kills it.
pub(crate) fn orchestrations_in(scenario: &Arc<Scenario>, process: &Arc<Process>) -> OrchestrationRegistry {
    let (scenario, process) = (Arc::clone(scenario), Arc::clone(process));
    let deadly = move |ctx: OrchestrationContext, _input: String| {
        let (scenario, process) = (Arc::clone(&scenario), Arc::clone(&process));
        async move {
            kill(&scenario, &process, &ctx.instance_id());
            Ok(String::new())
        }
    };
    OrchestrationRegistry::builder()
        .register(names::ORCHESTRATION, interpreter::run)
        .register(names::DEADLY, deadly)
        .build()
}

/// The code of an instance kills its process.
fn kill(scenario: &Scenario, process: &Process, instance: &str) {
    if !process.is_killed() {
        scenario.fault(Fault::CrashBefore, format_args!("by the code of {instance}"));
        process.kill();
    }
}

/// The activities as they run in one process.
pub(crate) fn activities(scenario: &Arc<Scenario>, process: &Arc<Process>, lock_ms: u64) -> ActivityRegistry {
    let worker = ActivityRunner { scenario: Arc::clone(scenario), process: Arc::clone(process), lock_ms };
    let mut builder = ActivityRegistry::builder();
    for kind in KINDS {
        let worker = worker.clone();
        builder = builder.register(kind, move |ctx: ActivityContext, input: String| {
            let worker = worker.clone();
            async move { worker.run(kind, ctx, input).await }
        });
    }
    builder.build()
}

/// Runs the activities of one process.
#[derive(Clone)]
struct ActivityRunner {
    scenario: Arc<Scenario>,
    process: Arc<Process>,
    lock_ms: u64,
}

impl ActivityRunner {
    async fn run(&self, kind: &'static str, ctx: ActivityContext, input: String) -> Result<String, String> {
        self.process.running().await;
        let key = (ctx.instance_id().to_owned(), ctx.execution_id(), activity_id(&ctx));
        self.scenario.trace(format_args!("run {kind} {key:?} on {}", ctx.worker_id()));
        self.scenario.records().recorder.activity_began(&key);
        if kind == names::DEADLY {
            kill(&self.scenario, &self.process, &key.0);
            self.process.running().await;
        }
        if kind == names::ENDLESS {
            ctx.cancelled().await;
            return Err("the result of a cancelled activity".to_owned());
        }
        self.work().await;
        match kind {
            names::FAIL => Err(input),
            names::FLAKY => {
                let (step, failures) = input.split_once(' ').unwrap_or((&input, "0"));
                let failures = failures.parse().unwrap_or(0);
                let attempt = self.scenario.records().recorder.flaky_attempt(step, key.2);
                if attempt < failures {
                    Err(flaky_failure(step, attempt))
                } else {
                    Ok(flaky_success(step, failures))
                }
            }
            names::SESSION => Ok(ctx.session_id().unwrap_or_default().to_owned()),
            names::TAGGED => Ok(ctx.tag().unwrap_or_default().to_owned()),
            _ => Ok(input),
        }
    }

    /// Takes some time: mostly little, sometimes more than a lock lasts.
    async fn work(&self) {
        let most = {
            let mut records = self.scenario.records();
            match records.faults.random().below(40) {
                0 => self.lock_ms * 5 / 2,
                1..=9 => 200,
                10..=29 => 10,
                _ => 0,
            }
        };
        if most > 0 {
            sleep(self.scenario.some_ms(0, most)).await;
        }
        self.process.running().await;
    }
}

/// The schedule event of an activity. Only its debug text contains it.
fn activity_id(ctx: &ActivityContext) -> u64 {
    let text = format!("{ctx:?}");
    let digits = text.split("activity_id: ").nth(1).unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
