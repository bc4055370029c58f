//! A process that holds locks longer than they are valid.

use std::time::Duration;

use everturn::providers::{ExecutionMetadata, Provider, ProviderError, TagFilter};
use everturn::{Event, EventKind};
use everturn_core::WorkItem;

use super::{LOCK, open, print_line, wait_for_go};

/// The instance whose turn is held.
pub const TURN: &str = "held-turn";
/// The instance whose activity is held.
pub const WORK: &str = "held-work";

fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "chain".to_owned(),
        input: "1".to_owned(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

/// The first turn of an instance, as the engine commits it.
fn first_turn(instance: &str) -> (Vec<Event>, Vec<WorkItem>, ExecutionMetadata) {
    let started = EventKind::OrchestrationStarted {
        name: "chain".to_owned(),
        version: "1.0.0".to_owned(),
        input: "1".to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let (name, input) = ("work".to_owned(), "s0".to_owned());
    let scheduled = EventKind::ActivityScheduled {
        name: name.clone(),
        input: input.clone(),
        session_id: None,
        tag: None,
    };
    let events = vec![
        Event::with_event_id(1, instance, 1, None, started),
        Event::with_event_id(2, instance, 1, None, scheduled),
    ];
    let work = WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id: 2,
        name,
        input,
        session_id: None,
        tag: None,
    };
    let metadata = ExecutionMetadata {
        orchestration_name: Some("chain".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    };
    (events, vec![work], metadata)
}

/// Takes the lock of a turn and of an activity, prints that it has them, and tries to use both when it reads a line.
pub async fn run(database: &str) {
    let provider = open(database).await;
    provider.enqueue_for_orchestrator(start(WORK), None).await.unwrap();
    let (_, token, _) =
        provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().expect("the start");
    let (events, work, metadata) = first_turn(WORK);
    provider.ack_orchestration_item(&token, 1, events, work, vec![], metadata, vec![]).await.unwrap();
    let (_, work_token, _) = provider
        .fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any)
        .await
        .unwrap()
        .expect("the activity");
    provider.enqueue_for_orchestrator(start(TURN), None).await.unwrap();
    let (_, turn_token, _) =
        provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().expect("the start");
    print_line("holding");
    // The test stops it here, and lets it go on after its locks have expired.
    wait_for_go().await;
    late("renewal of the turn", provider.renew_orchestration_item_lock(&turn_token, LOCK).await);
    let (events, work, metadata) = first_turn(TURN);
    late(
        "turn",
        provider.ack_orchestration_item(&turn_token, 1, events, work, vec![], metadata, vec![]).await,
    );
    late("renewal of the activity", provider.renew_work_item_lock(&work_token, LOCK).await);
    let completion = WorkItem::ActivityCompleted {
        instance: WORK.to_owned(),
        execution_id: 1,
        id: 2,
        result: "too late".to_owned(),
    };
    late("activity", provider.ack_work_item(&work_token, Some(completion)).await);
    provider.close().await;
    print_line("done");
}

fn late(what: &str, answer: Result<(), ProviderError>) {
    match answer {
        Ok(()) => print_line(&format!("accepted late: {what}")),
        Err(error) if error.is_lock_lost() => print_line("refused late"),
        Err(error) => print_line(&format!("another error: {what}: {error}")),
    }
}
