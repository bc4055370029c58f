//! `read_custom_status`: the text that the orchestration set last, with a version that only grows.

use everturn_provider::store::CustomStatus;

use crate::events;
use crate::harness::{CaseHarness, custom_status, expect_error};
use crate::items::signal;
use crate::sample_turn::SampleTurn;

cases! { $ read_custom_status as read_custom_status_cases:
    a_new_instance_has_none,
    an_unknown_instance_has_none,
    setting_stores_the_value_and_raises_the_version,
    clearing_stores_none_and_raises_the_version,
    commits_without_status_events_keep_both,
    one_commit_is_one_step_and_the_last_value_wins,
    it_is_returned_only_if_the_version_is_greater,
    it_survives_continue_as_new_and_the_end,
    each_instance_has_its_own,
    a_refused_commit_does_not_set_it,
    an_empty_text_is_a_status,
}

const CLEARED: Option<CustomStatus> = Some(CustomStatus { text: None, version: 2 });

async fn a_new_instance_has_none(h: CaseHarness) {
    h.create("i").await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
}

async fn an_unknown_instance_has_none(h: CaseHarness) {
    assert_eq!(h.read_custom_status("unknown", 0).await.unwrap(), None);
    assert_eq!(h.read_custom_status("unknown", 7).await.unwrap(), None);
}

async fn setting_stores_the_value_and_raises_the_version(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
    h.turn("i", SampleTurn::of("i", 1).event(3, events::custom_status(Some("two")))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("two", 2));
}

async fn clearing_stores_none_and_raises_the_version(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, events::custom_status(None))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), CLEARED);
    assert_eq!(h.read_custom_status("i", 1).await.unwrap(), CLEARED);
    assert_eq!(h.read_custom_status("i", 2).await.unwrap(), None);
}

async fn commits_without_status_events_keep_both(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, events::scheduled())).await;
    h.turn("i", SampleTurn::of("i", 1)).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
}

async fn one_commit_is_one_step_and_the_last_value_wins(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, events::custom_status(Some("one")))
        .event(3, events::custom_status(None))
        .event(4, events::custom_status(Some("three")));
    h.begin("i", turn).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("three", 1));
}

async fn it_is_returned_only_if_the_version_is_greater(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    assert_eq!(h.read_custom_status("i", 1).await.unwrap(), None);
    assert_eq!(h.read_custom_status("i", 2).await.unwrap(), None);
    assert_eq!(h.read_custom_status("i", u64::MAX).await.unwrap(), None);
    h.turn("i", SampleTurn::of("i", 1).event(3, events::custom_status(Some("two")))).await;
    assert_eq!(h.read_custom_status("i", 1).await.unwrap(), custom_status("two", 2));
}

async fn it_survives_continue_as_new_and_the_end(h: CaseHarness) {
    let turn =
        SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("one"))).continuing_as_new(3);
    h.begin("i", turn).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
    h.take_turn("i", SampleTurn::beginning("i", 2)).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
    h.turn("i", SampleTurn::of("i", 2).event(2, events::custom_status(Some("two"))).completing(3, "ok"))
        .await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("two", 2));
}

async fn each_instance_has_its_own(h: CaseHarness) {
    h.begin("a", SampleTurn::beginning("a", 1).event(2, events::custom_status(Some("of a")))).await;
    h.create("b").await;
    assert_eq!(h.read_custom_status("b", 0).await.unwrap(), None);
    assert_eq!(h.read_custom_status("a", 0).await.unwrap(), custom_status("of a", 1));
}

async fn a_refused_commit_does_not_set_it(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    let turn =
        SampleTurn::of("i", 1).event(2, events::custom_status(Some("never"))).event(1, events::scheduled());
    expect_error(turn.commit(&h, &fetched.lock_token).await);
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
}

async fn an_empty_text_is_a_status(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("")))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("", 1));
}
