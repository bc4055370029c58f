//! The messages of an instance come in the order of their arrival: a timer arrives at its fire time, any other message when
//! it is sent, and never before one that was already visible.

use everturn_core::WorkItem;

use crate::harness::{CaseHarness, PAST_LOCK, secs};
use crate::items::{queue_message, signal, timer};
use crate::sample_turn::SampleTurn;

cases! { $ arrival_order as arrival_order_cases:
    an_answer_in_time_comes_before_its_deadline,
    an_answer_that_is_late_comes_after_its_deadline,
    timers_that_are_due_together_come_in_the_order_of_their_times,
    timers_with_one_fire_time_come_in_the_order_of_their_creation,
    messages_sent_in_one_millisecond_come_in_the_order_they_were_sent,
    a_delayed_message_arrives_when_it_is_sent,
    messages_that_come_back_keep_their_order,
    messages_of_an_expired_lock_keep_their_order,
    the_order_survives_a_restart,
    a_message_never_comes_before_one_that_was_visible,
    a_message_that_was_visible_stays_visible_when_the_clock_is_set_back,
    a_timer_due_during_a_turn_comes_before_what_was_sent_after_it,
    a_timer_that_is_visible_before_it_fires_arrives_then,
}

/// An instance with these timers: each with its id and how many seconds from now it fires.
async fn with_timers(h: &CaseHarness, timers: &[(u64, u64)]) -> Vec<WorkItem> {
    let now_ms = h.now_ms();
    let timers: Vec<WorkItem> =
        timers.iter().map(|(id, after_secs)| timer("i", *id, now_ms + after_secs * 1_000)).collect();
    let turn = timers.iter().cloned().fold(SampleTurn::beginning("i", 1), SampleTurn::message);
    h.begin("i", turn).await;
    timers
}

async fn fetched_messages(h: &CaseHarness) -> Vec<WorkItem> {
    h.fetched_turn().await.item.messages
}

async fn an_answer_in_time_comes_before_its_deadline(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 10)]).await;
    h.pass(secs(9));
    h.send(signal("i", "answer")).await;
    h.pass(secs(20));
    assert_eq!(fetched_messages(&h).await, [signal("i", "answer"), timers[0].clone()]);
}

async fn an_answer_that_is_late_comes_after_its_deadline(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 10)]).await;
    h.pass(secs(11));
    h.send(signal("i", "answer")).await;
    assert_eq!(fetched_messages(&h).await, [timers[0].clone(), signal("i", "answer")]);
}

async fn timers_that_are_due_together_come_in_the_order_of_their_times(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 30), (3, 10), (4, 20)]).await;
    h.pass(secs(60));
    assert_eq!(fetched_messages(&h).await, [timers[1].clone(), timers[2].clone(), timers[0].clone()]);
}

async fn timers_with_one_fire_time_come_in_the_order_of_their_creation(h: CaseHarness) {
    let timers = with_timers(&h, &[(4, 10), (2, 10), (3, 10)]).await;
    h.pass(secs(60));
    assert_eq!(fetched_messages(&h).await, timers);
}

async fn messages_sent_in_one_millisecond_come_in_the_order_they_were_sent(h: CaseHarness) {
    h.create("i").await;
    let sent: Vec<WorkItem> = ["a", "b", "c", "d"].map(|data| queue_message("i", data)).to_vec();
    for message in &sent {
        h.send(message.clone()).await;
    }
    assert_eq!(fetched_messages(&h).await, sent);
}

async fn a_delayed_message_arrives_when_it_is_sent(h: CaseHarness) {
    h.create("i").await;
    h.send_later(signal("i", "delayed"), secs(5)).await;
    h.pass(secs(1));
    h.send(signal("i", "later")).await;
    h.pass(secs(5));
    assert_eq!(fetched_messages(&h).await, [signal("i", "delayed"), signal("i", "later")]);
}

async fn messages_that_come_back_keep_their_order(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 30), (3, 10)]).await;
    h.pass(secs(20));
    h.send(signal("i", "between")).await;
    h.pass(secs(20));
    let order = [timers[1].clone(), signal("i", "between"), timers[0].clone()];
    for delay in [None, Some(secs(10)), None] {
        let fetched = h.fetched_turn().await;
        assert_eq!(fetched.item.messages, order);
        h.release_turn(&fetched.lock_token, delay, false).await.unwrap();
        h.pass(delay.unwrap_or_default());
    }
    h.send(signal("i", "last")).await;
    let with_last = [&order[..], &[signal("i", "last")]].concat();
    assert_eq!(fetched_messages(&h).await, with_last);
}

async fn messages_of_an_expired_lock_keep_their_order(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 40), (3, 10)]).await;
    h.pass(secs(20));
    assert_eq!(fetched_messages(&h).await, timers[1..]);
    h.send(signal("i", "under lock")).await;
    h.pass(PAST_LOCK);
    assert_eq!(fetched_messages(&h).await, [timers[1].clone(), signal("i", "under lock"), timers[0].clone()]);
}

async fn the_order_survives_a_restart(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 30), (3, 10)]).await;
    h.pass(secs(20));
    h.send(signal("i", "between")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [timers[1].clone(), signal("i", "between")]);
    let Some(h) = h.reopened().await else { return };
    h.pass(PAST_LOCK);
    h.send(signal("i", "last")).await;
    let order = [timers[1].clone(), signal("i", "between"), timers[0].clone(), signal("i", "last")];
    assert_eq!(fetched_messages(&h).await, order);
}

async fn a_message_never_comes_before_one_that_was_visible(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 10)]).await;
    h.pass(secs(20));
    h.send(signal("i", "first")).await;
    h.set_clock_back(secs(5));
    h.send(signal("i", "second")).await;
    h.set_clock_back(secs(3_600));
    h.send(signal("i", "third")).await;
    let order = [signal("i", "first"), signal("i", "second"), signal("i", "third")];
    // The timer was never seen to be due, and by the clock it is not.
    assert_eq!(fetched_messages(&h).await, order);
    h.pass(secs(3_600));
    h.pass(PAST_LOCK);
    let with_timer = [&timers[..], &order[..]].concat();
    assert_eq!(fetched_messages(&h).await, with_timer);
}

async fn a_message_that_was_visible_stays_visible_when_the_clock_is_set_back(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 10)]).await;
    h.pass(secs(20));
    let fetched = h.fetched_turn().await;
    h.set_clock_back(secs(3_600));
    h.send(signal("i", "after")).await;
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    assert_eq!(fetched_messages(&h).await, [timers[0].clone(), signal("i", "after")]);
}

async fn a_timer_due_during_a_turn_comes_before_what_was_sent_after_it(h: CaseHarness) {
    let timers = with_timers(&h, &[(2, 10)]).await;
    h.send(signal("i", "go")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [signal("i", "go")]);
    h.pass(secs(9));
    h.send(signal("i", "before")).await;
    h.pass(secs(2));
    h.send(signal("i", "after")).await;
    SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    let order = [signal("i", "before"), timers[0].clone(), signal("i", "after")];
    assert_eq!(fetched_messages(&h).await, order);
}

async fn a_timer_that_is_visible_before_it_fires_arrives_then(h: CaseHarness) {
    h.create("i").await;
    let early = timer("i", 2, h.now_ms() + 100_000);
    h.send_later(early.clone(), secs(1)).await;
    h.pass(secs(1));
    h.send(signal("i", "after")).await;
    assert_eq!(fetched_messages(&h).await, [early, signal("i", "after")]);
}
