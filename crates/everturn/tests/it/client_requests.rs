//! What a client enqueues: starts, signals, queue messages and cancellations.

use std::sync::Arc;

use everturn::providers::memory::MemoryProvider;
use everturn::providers::{ProviderError, WorkItem};
use everturn::{Client, ClientError, OrchestrationStatus, Receipt};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use crate::recording_store::RecordingStore;

/// A value that fails to serialise.
struct Unserializable;

impl Serialize for Unserializable {
    fn serialize<S: Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("not serializable"))
    }
}

fn client() -> (Arc<RecordingStore>, Client) {
    let store = Arc::new(RecordingStore::default());
    (store.clone(), Client::new(store))
}

fn started(store: &RecordingStore) -> (String, String, String, Option<String>) {
    match store.enqueued.lock().unwrap().pop() {
        Some(WorkItem::StartOrchestration {
            instance,
            orchestration,
            input,
            version,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: 1,
        }) => (instance, orchestration, input, version),
        other => panic!("not the start of a root: {other:?}"),
    }
}

fn message_of(result: Result<(), ClientError>) -> String {
    match result {
        Err(ClientError::InvalidInput { message }) => message,
        other => panic!("not an invalid input: {other:?}"),
    }
}

#[tokio::test]
async fn a_start_is_enqueued_as_a_root() {
    let (store, client) = client();
    client.start_orchestration("i", "order", "in").await.unwrap();
    assert_eq!(started(&store), ("i".into(), "order".into(), "in".into(), None));
    client.start_orchestration_versioned("i", "order", "not semantic", "in").await.unwrap();
    assert_eq!(started(&store), ("i".into(), "order".into(), "in".into(), Some("not semantic".into())));
}

#[tokio::test]
async fn a_typed_start_uses_the_payload_codec() {
    let (store, client) = client();
    client.start_orchestration_typed("i", "order", "text").await.unwrap();
    assert_eq!(started(&store).2, "text");
    client.start_orchestration_versioned_typed("i", "order", "2.0.0", vec![1, 2]).await.unwrap();
    assert_eq!(started(&store), ("i".into(), "order".into(), "[1,2]".into(), Some("2.0.0".into())));
    let message = message_of(client.start_orchestration_typed("i", "order", Unserializable).await);
    assert_eq!(message, "encode: not serializable");
}

#[tokio::test]
async fn ids_that_look_like_a_childs_are_refused() {
    let (store, client) = client();
    for id in ["sub::2", "a::sub::2", "sub::"] {
        let message = message_of(client.start_orchestration(id, "order", "").await);
        let expected = format!("instance id '{id}' uses the reserved sub-orchestration marker 'sub::'");
        assert_eq!(message, expected);
    }
    assert!(store.enqueued.lock().unwrap().is_empty());
    for id in ["a::b", "subway::2", "a:sub::"] {
        client.start_orchestration(id, "order", "").await.unwrap();
    }
}

#[tokio::test]
async fn an_input_above_the_stores_limit_is_refused() {
    let (store, client) = client();
    client.start_orchestration("i", "order", "12345678").await.unwrap();
    store.enqueued.lock().unwrap().clear();
    let message = message_of(client.start_orchestration("i", "order", "1234567é").await);
    let expected = "input of start_orchestration for i: Payload size (9 bytes) exceeds limit (8 bytes); \
                    see the provider option payload_bytes_max";
    assert_eq!(message, expected);
    assert!(store.enqueued.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_failing_store_is_reported() {
    let error = ProviderError::retryable("enqueue", "busy");
    let client = Client::new(Arc::new(RecordingStore::failing(error.clone())));
    let result = client.start_orchestration("i", "order", "").await;
    assert!(matches!(result, Err(ClientError::Provider(reported)) if reported == error));
}

#[tokio::test]
async fn an_instance_is_unknown_until_its_first_turn_commits() {
    let client = Client::new(Arc::new(MemoryProvider::new()));
    client.start_orchestration("i", "order", "").await.unwrap();
    assert_eq!(client.get_orchestration_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    assert!(client.list_all_instances().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_start_with_receipt_says_whether_it_created_the_instance() {
    let client = Client::new(Arc::new(MemoryProvider::new()));
    let first = client.start_orchestration_with_receipt("i", "order", "a book").await.unwrap();
    let second = client.start_orchestration_with_receipt("i", "another", "a pen").await.unwrap();
    assert_eq!((first, second), (Receipt::Created, Receipt::Existing));
    let (_, client) = self::client();
    let untold = client.start_orchestration_with_receipt("i", "order", "").await.unwrap();
    assert_eq!(untold, Receipt::Queued, "this store does not say");
}

fn refused(result: Result<(), ClientError>, what: &str) -> bool {
    let size = "Payload size (9 bytes) exceeds limit (8 bytes); see the provider option payload_bytes_max";
    message_of(result) == format!("{what}: {size}")
}

/// Ids and names that cannot be meant, and what the refusal says after `instance id` or the kind of the name.
fn impossible_names() -> [(String, &'static str); 5] {
    let too_long = "has 1025 bytes, the limit is 1024: use a shorter one and put the rest into the payload";
    [
        (String::new(), "is empty: use at least one character"),
        ("x".repeat(1_025), too_long),
        ("ü".repeat(512) + "x", too_long),
        ("a\nb".into(), "\"a\\nb\" contains the control character U+000A: remove or replace it"),
        ("a\0".into(), "\"a\\0\" contains the control character U+0000: remove or replace it"),
    ]
}

#[tokio::test]
async fn ids_and_names_that_cannot_be_meant_are_refused_before_anything_is_sent() {
    let (store, client) = client();
    for (name, refusal) in impossible_names() {
        let id_refused = format!("instance id {refusal}");
        assert_eq!(message_of(client.start_orchestration(&name, "order", "").await), id_refused);
        assert_eq!(message_of(client.raise_event(&name, "paid", "").await), id_refused);
        assert_eq!(message_of(client.enqueue_event(&name, "orders", "").await), id_refused);
        assert_eq!(message_of(client.cancel_instance(&name, "").await), id_refused);
        let message = message_of(client.start_orchestration("i", &name, "").await);
        assert_eq!(message, format!("orchestration name {refusal}"));
        assert_eq!(message_of(client.raise_event("i", &name, "").await), format!("event name {refusal}"));
        assert_eq!(message_of(client.enqueue_event("i", &name, "").await), format!("queue name {refusal}"));
    }
    assert!(store.enqueued.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_longest_ids_and_names_are_accepted() {
    let (_store, client) = client();
    for name in ["x".repeat(1_024), "ü".repeat(512), "a b/c\\d'\"🦀".to_owned()] {
        client.start_orchestration(&name, &name, "").await.unwrap();
        client.raise_event(&name, &name, "").await.unwrap();
        client.enqueue_event(&name, &name, "").await.unwrap();
        client.cancel_instance(&name, "").await.unwrap();
        // The id of a child is that of its parent and a suffix.
        client.cancel_instance(format!("{name}::sub::2::sub::3_4"), "").await.unwrap();
    }
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
    assert!(refused(client.raise_event("i", "paid", nine).await, "data of raise_event paid for i"));
    assert!(refused(client.raise_event_typed("i", "paid", &nine).await, "data of raise_event paid for i"));
    assert!(refused(client.enqueue_event("i", "orders", nine).await, "data of enqueue_event orders for i"));
    assert!(refused(
        client.enqueue_event_typed("i", "orders", &nine).await,
        "data of enqueue_event orders for i"
    ));
    assert!(refused(client.cancel_instance("i", nine).await, "reason of cancel_instance for i"));
    assert!(store.enqueued.lock().unwrap().is_empty());
}
