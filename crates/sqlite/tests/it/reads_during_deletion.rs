//! A history that is read in pages while its instance is deleted.

use std::pin::pin;
use std::task::Poll;

use everturn_core::Event;
use everturn_provider::{Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::store::{Store, begin, scheduled};

/// More events than one page has, and few enough for a deletion to remove them at once.
const EVENTS: u64 = 900;

async fn begin_long(provider: &SqliteProvider, instance: &str) {
    begin(provider, instance, vec![]).await;
    let events = (2..=EVENTS).map(|id| scheduled(instance, id)).collect();
    provider.append_with_execution(instance, 1, events).await.unwrap();
}

/// Reads the history of an instance. After the first page another takes its place in the store.
async fn read_while_replaced(again: bool) -> Vec<Event> {
    let store = Store::new();
    let provider = store.open_with_batches().await;
    begin_long(&provider, "a").await;
    let mut reading = pin!(provider.read("a"));
    let first = std::future::poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_ready())).await;
    assert!(!first, "there are more pages");
    provider.delete_instance("a", true).await.unwrap();
    begin_long(&provider, "b").await;
    if again {
        begin(&provider, "a", vec![]).await;
    }
    reading.await.unwrap()
}

#[tokio::test]
async fn a_deleted_instance_has_no_events_of_the_one_that_took_its_place() {
    assert_eq!(read_while_replaced(false).await, []);
}

#[tokio::test]
async fn an_instance_that_was_started_again_meanwhile_has_its_own_events() {
    let events = read_while_replaced(true).await;
    assert_eq!(events.len(), 1);
    assert!(events.iter().all(|event| event.instance_id == "a"));
}
