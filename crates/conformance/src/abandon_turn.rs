//! `abandon_turn` releases an instance; its messages return to the queue.

use crate::harness::{CaseHarness, PAST_LOCK, expect_lock_lost, secs};
use crate::image::image;
use crate::items::{cancel, queue_message, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ abandon_turn as abandon_turn_cases:
    the_instance_is_fetchable_right_after,
    with_a_delay_it_is_not_fetchable_before,
    the_attempt_is_kept_or_refunded,
    an_unknown_token_fails_and_unlocks_nothing,
    an_expired_token_fails_and_changes_nothing,
    the_refund_does_not_touch_a_row_that_was_invisible_at_fetch,
    the_refund_does_not_touch_a_row_that_came_after_the_fetch,
    the_delay_hides_a_row_that_came_after_the_fetch,
    the_delay_hides_a_row_that_became_visible_after_the_fetch,
    what_is_sent_during_the_delay_waits_and_overtakes_nothing,
    a_start_that_is_given_back_waits_with_what_follows_it,
    a_delay_concerns_no_other_instance,
    a_delay_that_has_ended_does_not_begin_again_when_the_clock_is_set_back,
    a_delay_ends_with_its_instance,
    the_delay_does_not_shorten_anothers,
    nothing_but_the_lock_is_released,
}

async fn the_instance_is_fetchable_right_after(h: CaseHarness) {
    h.send(start("i")).await;
    let first = h.fetched_turn().await;
    h.release_turn(&first.lock_token, None, false).await.unwrap();
    let second = h.fetched_turn().await;
    assert_eq!(second.item.messages, [start("i")]);
    assert_ne!(second.lock_token, first.lock_token);
}

async fn with_a_delay_it_is_not_fetchable_before(h: CaseHarness) {
    h.send(start("i")).await;
    let first = h.fetched_turn().await;
    h.release_turn(&first.lock_token, Some(secs(10)), false).await.unwrap();
    assert!(h.next_turn().await.is_none());
    h.pass(secs(9));
    assert!(h.next_turn().await.is_none());
    h.pass(secs(2));
    assert_eq!(h.fetched_turn().await.item.messages, [start("i")]);
}

async fn the_attempt_is_kept_or_refunded(h: CaseHarness) {
    h.send(start("i")).await;
    let mut seen = Vec::new();
    for ignore_attempt in [false, false, true, true, false] {
        let fetched = h.fetched_turn().await;
        seen.push(fetched.attempt_count);
        h.release_turn(&fetched.lock_token, None, ignore_attempt).await.unwrap();
    }
    assert_eq!(seen, [1, 2, 3, 3, 3]);
    assert_eq!(h.fetched_turn().await.attempt_count, 4);
}

async fn an_unknown_token_fails_and_unlocks_nothing(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    expect_lock_lost(h.release_turn("no such token", None, true).await);
    assert!(h.next_turn().await.is_none());
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
}

async fn an_expired_token_fails_and_changes_nothing(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.pass(PAST_LOCK);
    let before = image(&h, &["i"]).await;
    expect_lock_lost(h.release_turn(&fetched.lock_token, Some(secs(100)), true).await);
    assert_eq!(image(&h, &["i"]).await, before);
    assert_eq!(h.fetched_turn().await.attempt_count, 2, "neither delayed nor refunded");
}

async fn the_refund_does_not_touch_a_row_that_was_invisible_at_fetch(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "visible")).await;
    h.send_later(signal("i", "hidden"), secs(10)).await;
    let first = h.fetched_turn().await;
    assert_eq!(first.item.messages, [signal("i", "visible")]);
    h.release_turn(&first.lock_token, None, false).await.unwrap();
    let second = h.fetched_turn().await;
    h.pass(secs(11));
    h.release_turn(&second.lock_token, None, true).await.unwrap();
    let Some(attempts) = h.message_attempts("i").await else { return };
    assert_eq!(attempts, [1, 0], "the hidden one had no attempt to take back");
}

async fn the_refund_does_not_touch_a_row_that_came_after_the_fetch(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "b")).await;
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "c")).await;
    h.release_turn(&fetched.lock_token, None, true).await.unwrap();
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [signal("i", "a"), signal("i", "b"), signal("i", "c")]);
    assert_eq!(fetched.attempt_count, 2, "the first one counts once, and once for this fetch");
}

async fn the_delay_hides_a_row_that_came_after_the_fetch(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "b")).await;
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    assert!(h.next_turn().await.is_none(), "the instance is delayed, not its rows");
    h.pass(secs(11));
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "a"), signal("i", "b")]);
}

async fn the_delay_hides_a_row_that_became_visible_after_the_fetch(h: CaseHarness) {
    h.create("i").await;
    h.send_later(signal("i", "delayed"), secs(5)).await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.pass(secs(6));
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    assert!(h.next_turn().await.is_none(), "the instance is delayed, not its rows");
    h.pass(secs(11));
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "delayed"), signal("i", "a")]);
}

async fn what_is_sent_during_the_delay_waits_and_overtakes_nothing(h: CaseHarness) {
    h.create("i").await;
    h.send(queue_message("i", "1")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    h.send(queue_message("i", "2")).await;
    assert!(h.next_turn().await.is_none());
    h.pass(secs(5));
    h.send(queue_message("i", "3")).await;
    h.send(cancel("i")).await;
    assert!(h.next_turn().await.is_none());
    h.pass(secs(6));
    let fetched = h.fetched_turn().await;
    let order = [queue_message("i", "1"), queue_message("i", "2"), queue_message("i", "3"), cancel("i")];
    assert_eq!(fetched.item.messages, order);
    assert_eq!(fetched.attempt_count, 2, "one attempt for the delay, however much was sent during it");
}

async fn a_start_that_is_given_back_waits_with_what_follows_it(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    h.send(queue_message("i", "1")).await;
    h.send(signal("i", "a")).await;
    assert!(h.next_turn().await.is_none());
    h.pass(secs(11));
    assert_eq!(h.fetched_turn().await.item.messages, [start("i"), queue_message("i", "1"), signal("i", "a")]);
}

async fn a_delay_concerns_no_other_instance(h: CaseHarness) {
    h.create("i").await;
    h.create("j").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    h.send(signal("j", "a")).await;
    assert_eq!(h.fetched_turn().await.item.instance, "j");
}

async fn a_delay_that_has_ended_does_not_begin_again_when_the_clock_is_set_back(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    h.pass(secs(11));
    let fetched = h.fetched_turn().await;
    h.set_clock_back(secs(3_600));
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "a")]);
}

async fn a_delay_ends_with_its_instance(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, Some(secs(10)), false).await.unwrap();
    h.admin().delete_instance("i", true).await.unwrap();
    h.create("i").await;
}

async fn the_delay_does_not_shorten_anothers(h: CaseHarness) {
    h.create("i").await;
    h.send_later(signal("i", "delayed"), secs(20)).await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "a")]);
}

async fn nothing_but_the_lock_is_released(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let before = image(&h, &["i"]).await;
    let fetched = h.fetched_turn().await;
    h.release_turn(&fetched.lock_token, None, true).await.unwrap();
    assert_eq!(image(&h, &["i"]).await, before);
}
