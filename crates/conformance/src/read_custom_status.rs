//! The custom status is what the code last said of itself, with a version that only grows.

use everturn_provider::store::CustomStatus;

use crate::events;
use crate::harness::{Harness, custom_status, expect_error};
use crate::items::signal;
use crate::turn_draft::TurnDraft;

cases! { $ read_custom_status as read_custom_status_cases:
    a_new_instance_has_none,
    an_unknown_instance_has_none,
    setting_stores_the_value_and_raises_the_version,
    clearing_stores_none_and_raises_the_version,
    acks_without_status_events_keep_both,
    one_ack_is_one_step_and_the_last_value_wins,
    it_is_told_only_if_the_version_is_greater,
    it_survives_continue_as_new_and_the_end,
    each_instance_has_its_own,
    a_refused_ack_does_not_set_it,
    an_empty_text_is_a_status,
}

const CLEARED: Option<CustomStatus> = Some(CustomStatus { text: None, version: 2 });

async fn a_new_instance_has_none(h: Harness) {
    h.create("i").await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
}

async fn an_unknown_instance_has_none(h: Harness) {
    assert_eq!(h.read_custom_status("nobody", 0).await.unwrap(), None);
    assert_eq!(h.read_custom_status("nobody", 7).await.unwrap(), None);
}

async fn setting_stores_the_value_and_raises_the_version(h: Harness) {
    h.begin("i", TurnDraft::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
    h.turn("i", TurnDraft::of("i", 1).event(3, events::custom_status(Some("two")))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("two", 2));
}

async fn clearing_stores_none_and_raises_the_version(h: Harness) {
    h.begin("i", TurnDraft::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    h.turn("i", TurnDraft::of("i", 1).event(3, events::custom_status(None))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), CLEARED);
    assert_eq!(h.read_custom_status("i", 1).await.unwrap(), CLEARED);
    assert_eq!(h.read_custom_status("i", 2).await.unwrap(), None);
}

async fn acks_without_status_events_keep_both(h: Harness) {
    h.begin("i", TurnDraft::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    h.turn("i", TurnDraft::of("i", 1).event(3, events::scheduled())).await;
    h.turn("i", TurnDraft::of("i", 1)).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
}

async fn one_ack_is_one_step_and_the_last_value_wins(h: Harness) {
    let turn = TurnDraft::beginning("i", 1)
        .event(2, events::custom_status(Some("one")))
        .event(3, events::custom_status(None))
        .event(4, events::custom_status(Some("three")));
    h.begin("i", turn).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("three", 1));
}

async fn it_is_told_only_if_the_version_is_greater(h: Harness) {
    h.begin("i", TurnDraft::beginning("i", 1).event(2, events::custom_status(Some("one")))).await;
    assert_eq!(h.read_custom_status("i", 1).await.unwrap(), None);
    assert_eq!(h.read_custom_status("i", 2).await.unwrap(), None);
    assert_eq!(h.read_custom_status("i", u64::MAX).await.unwrap(), None);
    h.turn("i", TurnDraft::of("i", 1).event(3, events::custom_status(Some("two")))).await;
    assert_eq!(h.read_custom_status("i", 1).await.unwrap(), custom_status("two", 2));
}

async fn it_survives_continue_as_new_and_the_end(h: Harness) {
    let turn = TurnDraft::beginning("i", 1).event(2, events::custom_status(Some("one"))).continuing_as_new(3);
    h.begin("i", turn).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
    h.take_turn("i", TurnDraft::beginning("i", 2)).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("one", 1));
    h.turn("i", TurnDraft::of("i", 2).event(2, events::custom_status(Some("two"))).completing(3, "ok")).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("two", 2));
}

async fn each_instance_has_its_own(h: Harness) {
    h.begin("a", TurnDraft::beginning("a", 1).event(2, events::custom_status(Some("of a")))).await;
    h.create("b").await;
    assert_eq!(h.read_custom_status("b", 0).await.unwrap(), None);
    assert_eq!(h.read_custom_status("a", 0).await.unwrap(), custom_status("of a", 1));
}

async fn a_refused_ack_does_not_set_it(h: Harness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    let turn =
        TurnDraft::of("i", 1).event(2, events::custom_status(Some("never"))).event(1, events::scheduled());
    expect_error(turn.commit(&h, &fetched.lock_token).await);
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
}

async fn an_empty_text_is_a_status(h: Harness) {
    h.begin("i", TurnDraft::beginning("i", 1).event(2, events::custom_status(Some("")))).await;
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), custom_status("", 1));
}
