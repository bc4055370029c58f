//! `submit` puts what clients send into the orchestrator queue.

use everturn_core::WorkItem;
use everturn_provider::store::{Feature, NewMessage, Receipt, Submission};

use crate::harness::{CaseHarness, expect_permanent_error, secs};
use crate::image::image;
use crate::items::{
    NAME, activity, activity_completed, activity_failed, cancel, child_completed, child_failed,
    continue_as_new, queue_message, signal, start, start_child, timer,
};
use crate::sample_turn::SampleTurn;

cases! { $ submit as submit_cases:
    a_message_is_visible_at_once,
    a_delayed_message_is_visible_after_its_delay,
    delays_end_in_their_own_order,
    no_instance_is_created,
    an_activity_is_refused,
    every_kind_of_message_arrives_as_it_was_sent,
    odd_texts_arrive_as_they_were_sent,
    several_messages_are_queued_together_or_not_at_all,
    one_refused_message_refuses_the_whole_submission,
    messages_of_one_submission_have_their_own_delays,
    an_empty_submission_changes_nothing,
    the_first_start_of_an_id_creates_it_and_later_ones_find_it_existing,
    a_start_after_a_deletion_creates_the_instance_again,
    messages_before_the_start_do_not_take_its_id,
    every_message_of_a_submission_has_its_own_receipt,
}

async fn a_message_is_visible_at_once(h: CaseHarness) {
    h.send(start("i")).await;
    assert_eq!(h.fetched_turn().await.item.messages, [start("i")]);
}

async fn a_delayed_message_is_visible_after_its_delay(h: CaseHarness) {
    h.send_later(start("i"), secs(60)).await;
    assert!(h.next_turn().await.is_none());
    h.pass(secs(59));
    assert!(h.next_turn().await.is_none());
    h.pass(secs(2));
    assert_eq!(h.fetched_turn().await.item.messages, [start("i")]);
}

async fn delays_end_in_their_own_order(h: CaseHarness) {
    h.send_later(start("slow"), secs(20)).await;
    h.send_later(start("quick"), secs(10)).await;
    h.pass(secs(11));
    assert_eq!(h.fetched_turn().await.item.instance, "quick");
    assert!(h.next_turn().await.is_none());
    h.pass(secs(10));
    assert_eq!(h.fetched_turn().await.item.instance, "slow");
}

async fn no_instance_is_created(h: CaseHarness) {
    h.send(start("i")).await;
    h.send(signal("j", "a")).await;
    assert!(h.admin().list_instances().await.unwrap().is_empty());
    assert!(h.admin().list_executions("i").await.unwrap().is_empty());
    assert_eq!(h.history("i").await.unwrap(), []);
    assert_eq!(h.read_stats("i").await.unwrap(), None);
}

async fn an_activity_is_refused(h: CaseHarness) {
    expect_permanent_error(h.enqueue(activity("i", 2), None).await);
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (0, 0));
}

async fn every_kind_of_message_arrives_as_it_was_sent(h: CaseHarness) {
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
        timer("i", 4, h.now_ms()),
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
    assert_eq!(h.fetched_turn().await.item.messages, sent);
}

async fn odd_texts_arrive_as_they_were_sent(h: CaseHarness) {
    for instance in ["with space", "ünï/🦀", "quote'\"; --", "a%_b", "", "A", "a"] {
        h.create(instance).await;
        let sent = [signal(instance, "name'\"\n\u{0}"), queue_message(instance, "{\"json\": [1, null]}")];
        for item in &sent {
            h.send(item.clone()).await;
        }
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.item.instance, instance);
        assert_eq!(fetched.item.messages, sent);
        assert_eq!(h.history(instance).await.unwrap().len(), 1);
    }
}

/// Submits several messages at once; `false` if the store takes one at a time, and then nothing is queued.
async fn submit_all(h: &CaseHarness, messages: Vec<NewMessage>) -> bool {
    let count = messages.len();
    match h.submit(&Submission::of_all(messages)).await {
        Ok(receipts) => {
            assert_eq!(receipts.len(), count, "one receipt per message: {receipts:?}");
            true
        }
        Err(error) => {
            assert!(error.is_unsupported() && !error.is_retryable(), "{error:?}");
            assert_eq!(h.messages_waiting().await, 0, "nothing of a refused submission is queued");
            false
        }
    }
}

async fn several_messages_are_queued_together_or_not_at_all(h: CaseHarness) {
    let messages = [start("a"), signal("a", "first"), start("b"), signal("a", "second")];
    if !submit_all(&h, messages.into_iter().map(NewMessage::from).collect()).await {
        return;
    }
    let (a, b) = (h.fetched_turn().await.item, h.fetched_turn().await.item);
    assert_eq!(a.messages, [start("a"), signal("a", "first"), signal("a", "second")]);
    assert_eq!(b.messages, [start("b")]);
}

async fn one_refused_message_refuses_the_whole_submission(h: CaseHarness) {
    h.create("i").await;
    let before = image(&h, &["i", "a"]).await;
    for messages in [[start("a"), activity("i", 2)], [activity("i", 2), signal("i", "go")]] {
        let submission = Submission::of_all(messages.into_iter().map(NewMessage::from).collect());
        expect_permanent_error(h.submit(&submission).await);
        assert_eq!(image(&h, &["i", "a"]).await, before);
        assert!(h.next_turn().await.is_none());
    }
}

async fn messages_of_one_submission_have_their_own_delays(h: CaseHarness) {
    h.create("i").await;
    let messages = vec![
        NewMessage::delayed(signal("i", "late"), Some(secs(10))),
        NewMessage::from(signal("i", "now")),
        NewMessage::delayed(signal("i", "soon"), Some(secs(5))),
    ];
    if !submit_all(&h, messages).await {
        return;
    }
    for (name, wait) in [("now", secs(6)), ("soon", secs(5)), ("late", secs(1))] {
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.item.messages, [signal("i", name)]);
        SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
        h.pass(wait);
    }
}

async fn an_empty_submission_changes_nothing(h: CaseHarness) {
    let before = image(&h, &[]).await;
    submit_all(&h, Vec::new()).await;
    assert_eq!(image(&h, &[]).await, before);
}

/// The receipt of one message.
async fn receipt(h: &CaseHarness, item: WorkItem) -> Receipt {
    let receipts = h.submit(&Submission::of(item)).await.unwrap();
    assert_eq!(receipts.len(), 1, "one receipt per message: {receipts:?}");
    receipts[0]
}

/// The receipts that starts get from this store: for one that creates its instance, and for one whose id is taken.
fn start_receipts(h: &CaseHarness) -> (Receipt, Receipt) {
    if h.supports(Feature::StartReceipts) {
        (Receipt::Created, Receipt::Existing)
    } else {
        (Receipt::Queued, Receipt::Queued)
    }
}

async fn the_first_start_of_an_id_creates_it_and_later_ones_find_it_existing(h: CaseHarness) {
    let (created, existing) = start_receipts(&h);
    assert_eq!(receipt(&h, start("i")).await, created, "no instance has this id");
    assert_eq!(receipt(&h, start("i")).await, existing, "a start of this id is queued");
    let fetched = h.fetched_turn().await;
    assert_eq!(receipt(&h, start("i")).await, existing, "the start is fetched and not committed");
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(receipt(&h, start("i")).await, existing, "the instance runs");
    let fetched = h.fetched_turn().await;
    SampleTurn::of("i", 1).completing(2, "done").commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(receipt(&h, start("i")).await, existing, "the instance has ended");
    assert_eq!(receipt(&h, start("j")).await, created, "another id");
    h.send_later(start("late"), secs(60)).await;
    assert_eq!(receipt(&h, start("late")).await, existing, "a start of this id is queued, not yet visible");
}

async fn a_start_after_a_deletion_creates_the_instance_again(h: CaseHarness) {
    let (created, _) = start_receipts(&h);
    h.create("i").await;
    h.admin().delete_instance("i", true).await.unwrap();
    assert_eq!(receipt(&h, start("i")).await, created);
}

async fn messages_before_the_start_do_not_take_its_id(h: CaseHarness) {
    let (created, existing) = start_receipts(&h);
    assert_eq!(receipt(&h, signal("i", "early")).await, Receipt::Queued);
    assert_eq!(receipt(&h, start("i")).await, created);
    assert_eq!(receipt(&h, signal("i", "late")).await, Receipt::Queued);
    assert_eq!(receipt(&h, start("i")).await, existing);
}

async fn every_message_of_a_submission_has_its_own_receipt(h: CaseHarness) {
    let (created, existing) = start_receipts(&h);
    let messages = [start("a"), signal("a", "go"), start("a"), start("b")].map(NewMessage::from);
    match h.submit(&Submission::of_all(messages.into())).await {
        Ok(receipts) => assert_eq!(receipts, [created, Receipt::Queued, existing, created]),
        Err(error) => assert!(error.is_unsupported(), "{error:?}"),
    }
}
