//! Messages into the orchestrator queue.

use everturn_core::WorkItem;

use crate::harness::{Harness, permanent_refusal, secs};
use crate::items::{
    NAME, activity, activity_completed, activity_failed, cancel, child_completed, child_failed,
    continue_as_new, queue_message, signal, start, start_child, timer,
};

cases! { $ enqueue_for_orchestrator as enqueue_for_orchestrator_cases:
    a_message_is_visible_at_once,
    a_delayed_message_is_visible_after_its_delay,
    delays_end_in_their_own_order,
    no_instance_is_created,
    an_activity_is_refused,
    every_kind_of_message_arrives_as_it_was_sent,
    odd_texts_arrive_as_they_were_sent,
}

async fn a_message_is_visible_at_once(h: Harness) {
    h.send(start("i")).await;
    assert_eq!(h.fetched().await.item.messages, [start("i")]);
}

async fn a_delayed_message_is_visible_after_its_delay(h: Harness) {
    h.send_later(start("i"), secs(60)).await;
    assert!(h.fetch().await.is_none());
    h.pass(secs(59));
    assert!(h.fetch().await.is_none());
    h.pass(secs(2));
    assert_eq!(h.fetched().await.item.messages, [start("i")]);
}

async fn delays_end_in_their_own_order(h: Harness) {
    h.send_later(start("slow"), secs(20)).await;
    h.send_later(start("quick"), secs(10)).await;
    h.pass(secs(11));
    assert_eq!(h.fetched().await.item.instance, "quick");
    assert!(h.fetch().await.is_none());
    h.pass(secs(10));
    assert_eq!(h.fetched().await.item.instance, "slow");
}

async fn no_instance_is_created(h: Harness) {
    h.send(start("i")).await;
    h.send(signal("j", "a")).await;
    assert!(h.admin().list_instances().await.unwrap().is_empty());
    assert!(h.admin().list_executions("i").await.unwrap().is_empty());
    assert_eq!(h.read("i").await.unwrap(), []);
    assert_eq!(h.get_instance_stats("i").await.unwrap(), None);
}

async fn an_activity_is_refused(h: Harness) {
    permanent_refusal(h.enqueue_for_orchestrator(activity("i", 2), None).await);
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (0, 0));
}

async fn every_kind_of_message_arrives_as_it_was_sent(h: Harness) {
    h.create("i").await;
    let successor = WorkItem::ContinueAsNew {
        instance: "i".to_owned(),
        orchestration: NAME.to_owned(),
        input: "x".to_owned(),
        version: None,
        parent_instance: Some("p".to_owned()),
        parent_id: Some(2),
        parent_execution_id: Some(1),
        carry_forward_events: vec![("q".to_owned(), "d".to_owned())],
        initial_custom_status: Some("s".to_owned()),
    };
    let sent = [
        start("i"),
        start_child("i", "parent"),
        activity_completed("i", 2),
        activity_failed("i", 3),
        timer("i", 4, 5),
        signal("i", "a"),
        child_completed("i"),
        child_failed("i"),
        cancel("i"),
        continue_as_new("i"),
        successor,
        queue_message("i", "d"),
    ];
    for item in &sent {
        h.send(item.clone()).await;
    }
    assert_eq!(h.fetched().await.item.messages, sent);
}

async fn odd_texts_arrive_as_they_were_sent(h: Harness) {
    for instance in ["with space", "ünï/🦀", "quote'\"; --", "a%_b", "", "A", "a"] {
        h.create(instance).await;
        let sent = [signal(instance, "name'\"\n\u{0}"), queue_message(instance, "{\"json\": [1, null]}")];
        for item in &sent {
            h.send(item.clone()).await;
        }
        let fetched = h.fetched().await;
        assert_eq!(fetched.item.instance, instance);
        assert_eq!(fetched.item.messages, sent);
        assert_eq!(h.read(instance).await.unwrap().len(), 1);
    }
}
