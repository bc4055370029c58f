//! What a turn does to messages of its own instance.

use std::sync::Arc;

use everturn_core::WorkItem;
use everturn_provider::{ExecutionMetadata, ManualClock, Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::store::{Store, fetch, named, signal, start, started};

/// How many messages wait in the orchestrator queue, apart from timers that nothing waits for.
async fn waiting(provider: &SqliteProvider) -> usize {
    provider.get_queue_depths().await.unwrap().orchestrator_queue
}

#[tokio::test]
async fn a_turn_that_does_not_make_its_instance_cannot_cancel_it() {
    let store = Store::new();
    let provider = store.open().await;
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&provider).await.expect("the start");
    let cancel = WorkItem::CancelInstance { instance: "a".to_owned(), reason: "no reason".to_owned() };
    let unnamed = ExecutionMetadata::default();
    provider.ack_orchestration_item(&token, 1, vec![], vec![], vec![cancel], unnamed, vec![]).await.unwrap();
    assert_eq!(waiting(&provider).await, 0, "there is no instance to cancel");
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (item, _, _) = fetch(&provider).await.expect("the second start");
    assert_eq!(item.messages, [start("a")], "an old cancellation does not come with a new start");
}

#[tokio::test]
async fn when_a_later_execution_begins_nothing_waits_for_timers_of_the_one_before() {
    let (store, clock) = (Store::new(), Arc::new(ManualClock::new(1_000_000)));
    let provider = store.open_at(&clock).await;
    let timer = |execution_id| WorkItem::TimerFired {
        instance: "a".to_owned(),
        execution_id,
        id: 2,
        fire_at_ms: 2_000_000,
    };
    for (execution_id, message) in [(1, start("a")), (2, signal("a"))] {
        provider.enqueue_for_orchestrator(message, None).await.unwrap();
        let (_, token, _) = fetch(&provider).await.expect("its turn");
        let (events, timers) = (vec![started("a")], vec![timer(execution_id)]);
        provider
            .ack_orchestration_item(&token, execution_id, events, vec![], timers, named(), vec![])
            .await
            .unwrap();
        assert_eq!(waiting(&provider).await, 1, "the timer of execution {execution_id} alone");
    }
}
