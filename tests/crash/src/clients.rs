//! Clients that start instances, send what they need, wait for their end, and record every answer.

use std::future::Future;
use std::time::Duration;

use everturn::{Client, ClientError, OrchestrationStatus};

use crate::instance_script::InstanceScript;
use crate::observations::{InstanceOutcome, Observation, ObservationLog};

/// How long a client waits after an error before it calls again.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Brings one instance to its end, from wherever it is.
pub(crate) async fn drive(client: &Client, log: &ObservationLog, instance: &str) {
    let before = log.instance(instance);
    let script = before.script;
    if !before.started {
        let start = || client.start_orchestration(instance, script.orchestration(), script.input());
        call_until_accepted(log, instance, "start", start).await;
        log.record(Observation::Started(instance.to_owned()));
    }
    if script == InstanceScript::Signal && !before.raised && wait_until_waiting(client, log, instance).await {
        call_until_accepted(log, instance, "go", || client.raise_event(instance, "go", "go")).await;
        log.record(Observation::Raised(instance.to_owned()));
    }
    for message in script.messages() {
        if !before.messages.contains(&message) {
            let enqueue = || client.enqueue_event(instance, "q", message.as_str());
            call_until_accepted(log, instance, &message, enqueue).await;
            log.record(Observation::Message(instance.to_owned(), message));
        }
    }
    if script == InstanceScript::Cancelled && !before.cancelled {
        call_until_accepted(log, instance, "cancel", || client.cancel_instance(instance, "enough")).await;
        log.record(Observation::Cancelled(instance.to_owned()));
    }
    loop {
        match client.wait_for_orchestration(instance, Duration::from_secs(1)).await {
            Ok(status) => {
                if let Some(outcome) = InstanceOutcome::of(&status) {
                    check_status_and_key(client, log, instance, script, &status).await;
                    log.record(Observation::Ended(instance.to_owned(), outcome));
                    return;
                }
            }
            Err(ClientError::Timeout) => {}
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Records a custom status or a key of a completed instance that is not as its script says.
async fn check_status_and_key(
    client: &Client,
    log: &ObservationLog,
    instance: &str,
    script: InstanceScript,
    status: &OrchestrationStatus,
) {
    // How any other end came about is judged by its outcome.
    let OrchestrationStatus::Completed { custom_status, .. } = status else { return };
    if *custom_status != script.custom_status() {
        let wrong = format!("the custom status of {instance} ({script:?}) is {custom_status:?}");
        log.record(Observation::Wrong(wrong));
    }
    let Some((key, value)) = script.key() else { return };
    loop {
        match client.get_kv_value(instance, key).await {
            Ok(stored) if stored.as_deref() == Some(value.as_str()) => return,
            Ok(stored) => {
                log.record(Observation::Wrong(format!("{key} of {instance} ({script:?}) is {stored:?}")));
                return;
            }
            Err(error) => {
                record_if_permanent(log, instance, &error);
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Waits until the custom status says that the instance waits for its signal; false if it has ended.
async fn wait_until_waiting(client: &Client, log: &ObservationLog, instance: &str) -> bool {
    loop {
        let changed = client.wait_for_status_change(instance, 0, RETRY_AFTER, Duration::from_secs(1)).await;
        match changed {
            Ok(OrchestrationStatus::Running { .. }) => return true,
            Ok(_) => return false,
            Err(ClientError::Timeout) => {}
            Err(error) => {
                record_if_permanent(log, instance, &error);
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Repeats a call until it is answered with `Ok`.
async fn call_until_accepted<F>(
    log: &ObservationLog,
    instance: &str,
    message: &str,
    mut call: impl FnMut() -> F,
) where
    F: Future<Output = Result<(), ClientError>>,
{
    loop {
        log.record(Observation::Asked(instance.to_owned(), message.to_owned()));
        let Err(error) = call().await else { return };
        record_if_permanent(log, instance, &error);
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

fn record_if_permanent(log: &ObservationLog, instance: &str, error: &ClientError) {
    if !error.is_retryable() {
        log.record(Observation::Refused(format!("{instance}: {error}")));
    }
}
