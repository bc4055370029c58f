//! The load: activities that are watched, and clients that remember what they were told.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::TagFilter;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, ClientError, OrchestrationStatus};

use crate::ledger::{Fact, Ledger, Outcome};
use crate::plan::{Plan, TAGS};

/// How long a client waits before it asks again.
const PATIENCE: Duration = Duration::from_millis(20);

/// Which activities one of so many processes takes: those without a tag, and its share of the tags.
pub fn tag_filter(process: usize, processes: usize) -> TagFilter {
    let share: Vec<&str> = TAGS.iter().copied().skip(process).step_by(processes.max(1)).collect();
    if share.is_empty() { TagFilter::DefaultOnly } else { TagFilter::default_and(share) }
}

/// The activities of all plans, for workers that take what `filter` says. Every run returns something of its own, so that
/// it shows which run was recorded.
pub fn activities(ledger: &Arc<Ledger>, filter: TagFilter) -> ActivityRegistry {
    let (work, flaky) = (Arc::clone(ledger), Arc::clone(ledger));
    ActivityRegistry::builder()
        .register("work", move |ctx: ActivityContext, input: String| {
            let ledger = Arc::clone(&work);
            let filter = filter.clone();
            async move {
                let run = ledger.begin_run();
                if !filter.matches(ctx.tag()) {
                    ledger.learn(Fact::Wrong(format!("{filter:?} was given {:?}", ctx.tag())));
                }
                tokio::time::sleep(Duration::from_millis(run % 5 * 2)).await;
                let result = format!("{input}#{run}");
                ledger.learn(Fact::Ran(
                    ctx.instance_id().to_owned(),
                    ctx.execution_id(),
                    input,
                    result.clone(),
                ));
                Ok(result)
            }
        })
        .register("flaky", move |ctx: ActivityContext, input: String| {
            let ledger = Arc::clone(&flaky);
            async move {
                let run = ledger.begin_run();
                let result = format!("{input}#{run}");
                ledger.learn(Fact::Ran(
                    ctx.instance_id().to_owned(),
                    ctx.execution_id(),
                    input,
                    result.clone(),
                ));
                if run % 2 == 0 { Ok(result) } else { Err(result) }
            }
        })
        .register("endless", move |ctx: ActivityContext, _input: String| async move {
            ctx.cancelled().await;
            Err("cancelled".to_owned())
        })
        .build()
}

/// Sees one instance through to its end, from wherever it is.
pub async fn see_through(client: &Client, ledger: &Ledger, instance: &str) {
    let told = ledger.told(instance);
    let plan = told.plan;
    if !told.started {
        let start = || client.start_orchestration(instance, plan.orchestration(), plan.input());
        insist(ledger, instance, "start", start).await;
        ledger.learn(Fact::Started(instance.to_owned()));
    }
    if plan == Plan::Signal && !told.raised && is_seen_waiting(client, ledger, instance).await {
        insist(ledger, instance, "go", || client.raise_event(instance, "go", "go")).await;
        ledger.learn(Fact::Raised(instance.to_owned()));
    }
    for message in plan.messages() {
        if !told.messages.contains(&message) {
            let enqueue = || client.enqueue_event(instance, "q", message.as_str());
            insist(ledger, instance, &message, enqueue).await;
            ledger.learn(Fact::Message(instance.to_owned(), message));
        }
    }
    if plan == Plan::Cancelled && !told.cancelled {
        insist(ledger, instance, "cancel", || client.cancel_instance(instance, "enough")).await;
        ledger.learn(Fact::Cancelled(instance.to_owned()));
    }
    loop {
        match client.wait_for_orchestration(instance, Duration::from_secs(1)).await {
            Ok(status) => {
                if let Some(outcome) = Outcome::of(&status) {
                    is_as_it_should_be(client, ledger, instance, plan, &status).await;
                    ledger.learn(Fact::Ended(instance.to_owned(), outcome));
                    return;
                }
            }
            Err(ClientError::Timeout) => {}
            Err(_) => tokio::time::sleep(PATIENCE).await,
        }
    }
}

/// What a finished instance says of itself, and the key it leaves, are as its plan says.
async fn is_as_it_should_be(
    client: &Client,
    ledger: &Ledger,
    instance: &str,
    plan: Plan,
    status: &OrchestrationStatus,
) {
    if let OrchestrationStatus::Completed { custom_status, .. } = status
        && *custom_status != plan.custom_status()
    {
        ledger.learn(Fact::Wrong(format!("{instance} ({plan:?}) says {custom_status:?}")));
    }
    let Some((key, value)) = plan.key() else { return };
    loop {
        match client.get_kv_value(instance, key).await {
            Ok(stored) if stored.as_deref() == Some(value.as_str()) => return,
            Ok(stored) => {
                ledger.learn(Fact::Wrong(format!("{key} of {instance} ({plan:?}) is {stored:?}")));
                return;
            }
            Err(error) => {
                note_if_final(ledger, instance, &error);
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

/// Waits until the instance says that it waits for its signal; false if it has ended.
async fn is_seen_waiting(client: &Client, ledger: &Ledger, instance: &str) -> bool {
    loop {
        let seen = client.wait_for_status_change(instance, 0, PATIENCE, Duration::from_secs(1)).await;
        match seen {
            Ok(OrchestrationStatus::Running { .. }) => return true,
            Ok(_) => return false,
            Err(ClientError::Timeout) => {}
            Err(error) => {
                note_if_final(ledger, instance, &error);
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

/// Makes a call until it is accepted.
async fn insist<F>(ledger: &Ledger, instance: &str, message: &str, mut call: impl FnMut() -> F)
where
    F: Future<Output = Result<(), ClientError>>,
{
    loop {
        ledger.learn(Fact::Asked(instance.to_owned(), message.to_owned()));
        let Err(error) = call().await else { return };
        note_if_final(ledger, instance, &error);
        tokio::time::sleep(PATIENCE).await;
    }
}

fn note_if_final(ledger: &Ledger, instance: &str, error: &ClientError) {
    if !error.is_retryable() {
        ledger.learn(Fact::Refused(format!("{instance}: {error}")));
    }
}
