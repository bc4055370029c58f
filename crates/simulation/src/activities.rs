//! The activities of simulated programs.

use std::sync::Arc;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext};
use tokio::time::sleep;

use crate::interpreter;
use crate::life::Life;
use crate::model::{flaky_failure, flaky_success};
use crate::names;
use crate::scene::Scene;
use crate::weather::Fault;

const KINDS: [&str; 7] =
    [names::ECHO, names::FAIL, names::FLAKY, names::ENDLESS, names::SESSION, names::TAGGED, names::DEADLY];

/// The one orchestration.
pub(crate) fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register(names::ORCHESTRATION, interpreter::run).build()
}

/// Those of a process: there is one more, which kills it.
pub(crate) fn orchestrations_in(scene: &Arc<Scene>, life: &Arc<Life>) -> OrchestrationRegistry {
    let (scene, life) = (Arc::clone(scene), Arc::clone(life));
    let deadly = move |ctx: OrchestrationContext, _input: String| {
        let (scene, life) = (Arc::clone(&scene), Arc::clone(&life));
        async move {
            kill(&scene, &life, &ctx.instance_id());
            Ok(String::new())
        }
    };
    OrchestrationRegistry::builder()
        .register(names::ORCHESTRATION, interpreter::run)
        .register(names::DEADLY, deadly)
        .build()
}

/// The code of an instance takes its process with it.
fn kill(scene: &Scene, life: &Life, instance: &str) {
    if !life.is_dead() {
        scene.fault(Fault::CrashBefore, format_args!("by the code of {instance}"));
        life.die();
    }
}

/// The activities as they run in one process.
pub(crate) fn activities(scene: &Arc<Scene>, life: &Arc<Life>, lock_ms: u64) -> ActivityRegistry {
    let workshop = Workshop { scene: Arc::clone(scene), life: Arc::clone(life), lock_ms };
    let mut builder = ActivityRegistry::builder();
    for kind in KINDS {
        let workshop = workshop.clone();
        builder = builder.register(kind, move |ctx: ActivityContext, input: String| {
            let workshop = workshop.clone();
            async move { workshop.run(kind, ctx, input).await }
        });
    }
    builder.build()
}

/// Where one process runs its activities.
#[derive(Clone)]
struct Workshop {
    scene: Arc<Scene>,
    life: Arc<Life>,
    lock_ms: u64,
}

impl Workshop {
    async fn run(&self, kind: &'static str, ctx: ActivityContext, input: String) -> Result<String, String> {
        self.life.go_on().await;
        let key = (ctx.instance_id().to_owned(), ctx.execution_id(), activity_id(&ctx));
        self.scene.note(format_args!("run {kind} {key:?} on {}", ctx.worker_id()));
        self.scene.books().observer.activity_began(&key);
        if kind == names::DEADLY {
            kill(&self.scene, &self.life, &key.0);
            self.life.go_on().await;
        }
        if kind == names::ENDLESS {
            ctx.cancelled().await;
            return Err("nobody should see this".to_owned());
        }
        self.work().await;
        match kind {
            names::FAIL => Err(input),
            names::FLAKY => {
                let (step, failures) = input.split_once(' ').unwrap_or((&input, "0"));
                let failures = failures.parse().unwrap_or(0);
                let attempt = self.scene.books().observer.flaky_attempt(step, key.2);
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
            let mut books = self.scene.books();
            match books.sky.chance().below(40) {
                0 => self.lock_ms * 5 / 2,
                1..=9 => 200,
                10..=29 => 10,
                _ => 0,
            }
        };
        if most > 0 {
            sleep(self.scene.some_ms(0, most)).await;
        }
        self.life.go_on().await;
    }
}

/// The schedule event of an activity. Only its debugging text tells.
fn activity_id(ctx: &ActivityContext) -> u64 {
    let text = format!("{ctx:?}");
    let digits = text.split("activity_id: ").nth(1).unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
