//! What was committed is there after the store was opened again. A store that cannot be opened again has no such cases.

use std::time::Duration;

use everturn_core::SemverRange;
use everturn_provider::{DispatcherCapabilityFilter, TagFilter};
use semver::Version;

use crate::events;
use crate::harness::{ActivityId, CaseHarness, PAST_LOCK, secs};
use crate::image::image;
use crate::items::{activity, activity_in_session, activity_tagged, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ restart as restart_cases:
    everything_committed_can_be_read,
    messages_come_in_their_order_with_their_attempts,
    delays_go_on,
    activities_keep_order_tag_and_session,
    a_pin_is_kept,
    the_kv_base_and_delta_are_kept_apart,
    work_locked_at_the_end_comes_again_with_its_attempt_counted,
    new_work_comes_after_old_work,
}

async fn everything_committed_can_be_read(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    let turn = SampleTurn::of("i", 3)
        .event(2, events::kv_set("k", "v"))
        .event(3, events::custom_status(Some("status")));
    h.turn("i", turn).await;
    h.create_completed("j").await;
    h.create_completed_child("child", "j").await;
    let before = image(&h, &["i", "j", "child"]).await;
    let Some(h) = h.reopened().await else { return };
    assert_eq!(image(&h, &["i", "j", "child"]).await, before);
}

async fn messages_come_in_their_order_with_their_attempts(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    for _ in 0..2 {
        let fetched = h.fetched_turn().await;
        h.release_turn(&fetched.lock_token, None, false).await.unwrap();
    }
    h.send(signal("i", "b")).await;
    let Some(h) = h.reopened().await else { return };
    h.send(signal("i", "c")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [signal("i", "a"), signal("i", "b"), signal("i", "c")]);
    assert_eq!(fetched.attempt_count, 3);
    assert_eq!(fetched.item.history.len(), 1);
}

async fn delays_go_on(h: CaseHarness) {
    h.send_later(start("i"), secs(60)).await;
    let Some(h) = h.reopened().await else { return };
    assert!(h.next_turn().await.is_none());
    h.pass(secs(61));
    assert_eq!(h.fetched_turn().await.item.instance, "i");
}

async fn activities_keep_order_tag_and_session(h: CaseHarness) {
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity_tagged("i", 2, "gpu")).await;
    h.queue(activity("i", 3)).await;
    h.queue(activity("i", 4)).await;
    let Some(h) = h.reopened().await else { return };
    assert_eq!(h.drain_work().await, [3, 4]);
    assert_eq!(h.next_work_tagged(&TagFilter::tags(["gpu"])).await.unwrap().activity_id(), 2);
    assert_eq!(h.next_work_as("a", secs(60)).await.unwrap().activity_id(), 1);
}

async fn a_pin_is_kept(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).pinned(Version::new(2, 0, 0))).await;
    h.send(signal("i", "a")).await;
    let Some(h) = h.reopened().await else { return };
    let ones = SemverRange::new(Version::new(1, 0, 0), Version::new(1, 9, 0));
    let filter = DispatcherCapabilityFilter { supported_engine_versions: vec![ones] };
    assert!(h.next_turn_filtered(&filter).await.is_none());
    assert!(h.next_turn().await.is_some());
}

async fn the_kv_base_and_delta_are_kept_apart(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::kv_set("base", "1")).continuing_as_new(3))
        .await;
    let turn = SampleTurn::beginning("i", 2)
        .event(2, events::kv_set("delta", "2"))
        .event(3, events::kv_cleared("base"));
    h.take_turn("i", turn).await;
    h.send(signal("i", "a")).await;
    let Some(h) = h.reopened().await else { return };
    assert_eq!(h.read_kv_value("i", "base").await.unwrap(), None);
    assert_eq!(h.read_kv_value("i", "delta").await.unwrap().as_deref(), Some("2"));
    let snapshot = h.fetched_turn().await.item.kv_snapshot;
    assert_eq!(snapshot.keys().collect::<Vec<_>>(), ["base"]);
}

async fn work_locked_at_the_end_comes_again_with_its_attempt_counted(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    h.fetched_turn().await;
    h.fetched_work().await;
    let Some(h) = h.reopened().await else { return };
    h.pass(PAST_LOCK);
    assert_eq!(h.fetched_turn().await.attempt_count, 2);
    assert_eq!(h.fetched_work().await.attempt_count, 2);
}

async fn new_work_comes_after_old_work(h: CaseHarness) {
    h.send(start("old")).await;
    h.queue(activity("i", 1)).await;
    let Some(h) = h.reopened().await else { return };
    h.send(start("new")).await;
    h.queue(activity("i", 2)).await;
    assert_eq!(h.fetched_turn().await.item.instance, "old");
    assert_eq!(h.fetched_turn().await.item.instance, "new");
    assert_eq!(h.drain_work().await, [1, 2]);
    let waited = h.next_turn_within(Duration::from_millis(10)).await.unwrap();
    assert!(waited.is_none());
}
