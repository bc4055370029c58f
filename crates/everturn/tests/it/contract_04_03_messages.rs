//! 04 §3: signals, queues, cancellation.

use std::sync::Arc;

use everturn::providers::WorkItem;
use everturn::{Client, ClientError};

use crate::noting_provider::NotingProvider;

fn client() -> (Arc<NotingProvider>, Client) {
    let store = Arc::new(NotingProvider::default());
    (store.clone(), Client::new(store))
}

fn refused(result: Result<(), ClientError>) -> bool {
    matches!(result, Err(ClientError::InvalidInput { message })
        if message == "Payload size (9 bytes) exceeds limit (8 bytes)")
}

#[tokio::test]
async fn messages_are_enqueued_for_their_instance() {
    let (store, client) = client();
    client.raise_event("i", "paid", "yes").await.unwrap();
    client.enqueue_event("i", "orders", "book").await.unwrap();
    client.cancel_instance("i", "closed").await.unwrap();
    let (instance, data) = (|| "i".to_owned(), |text: &str| text.to_owned());
    let expected = [
        WorkItem::ExternalRaised { instance: instance(), name: data("paid"), data: data("yes") },
        WorkItem::QueueMessage { instance: instance(), name: data("orders"), data: data("book") },
        WorkItem::CancelInstance { instance: instance(), reason: data("closed") },
    ];
    assert_eq!(*store.enqueued.lock().unwrap(), expected);
}

#[tokio::test]
async fn typed_messages_use_the_payload_codec() {
    let (store, client) = client();
    client.raise_event_typed("i", "paid", &true).await.unwrap();
    client.enqueue_event_typed("i", "orders", &"book").await.unwrap();
    let data: Vec<_> = store
        .enqueued
        .lock()
        .unwrap()
        .iter()
        .map(|item| match item {
            WorkItem::ExternalRaised { data, .. } | WorkItem::QueueMessage { data, .. } => data.clone(),
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(data, ["true", "book"]);
}

#[tokio::test]
#[expect(deprecated, reason = "this is the deprecated name's test")]
async fn the_former_name_of_enqueue_event_still_works() {
    let (store, client) = client();
    client.raise_event_persistent("i", "orders", "book").await.unwrap();
    assert!(matches!(store.enqueued.lock().unwrap()[..], [WorkItem::QueueMessage { .. }]));
}

#[tokio::test]
async fn messages_above_the_stores_limit_are_refused() {
    let (store, client) = client();
    let nine = "123456789";
    assert!(refused(client.raise_event("i", "paid", nine).await));
    assert!(refused(client.raise_event_typed("i", "paid", &nine).await));
    assert!(refused(client.enqueue_event("i", "orders", nine).await));
    assert!(refused(client.enqueue_event_typed("i", "orders", &nine).await));
    assert!(refused(client.cancel_instance("i", nine).await));
    assert!(store.enqueued.lock().unwrap().is_empty());
}
