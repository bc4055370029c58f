//! `read_kv_value` and `read_kv_values`: the key-value store of an instance, within one execution.

use std::collections::BTreeMap;

use crate::events::{kv_all_cleared, kv_cleared, kv_set};
use crate::harness::{CaseHarness, expect_error};
use crate::items::signal;
use crate::sample_turn::SampleTurn;

cases! { $ read_kv_values as read_kv_values_cases:
    a_written_value_is_readable,
    the_last_value_wins,
    an_empty_value_is_a_value,
    a_value_of_64_kib_round_trips,
    odd_keys_are_kept_apart,
    clearing_one_key_leaves_the_others,
    clearing_a_missing_key_is_no_error,
    clearing_all_leaves_nothing,
    a_key_set_after_clear_all_in_one_commit_stays,
    a_key_set_before_clear_all_in_one_commit_goes,
    a_cleared_key_can_be_set_again,
    unknown_keys_and_instances_have_no_value,
    the_same_key_on_two_instances_is_independent,
    a_refused_commit_writes_no_key,
    a_hundred_and_fifty_keys_are_kept,
}

pub(crate) async fn value(h: &CaseHarness, instance: &str, key: &str) -> Option<String> {
    h.read_kv_value(instance, key).await.unwrap()
}

pub(crate) async fn all(h: &CaseHarness, instance: &str) -> BTreeMap<String, String> {
    h.read_kv_values(instance).await.unwrap().into_iter().collect()
}

pub(crate) fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn a_written_value_is_readable(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "v"))).await;
    assert_eq!(value(&h, "i", "k").await.as_deref(), Some("v"));
    assert_eq!(all(&h, "i").await, pairs(&[("k", "v")]));
}

async fn the_last_value_wins(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "1")).event(3, kv_set("k", "2"))).await;
    assert_eq!(value(&h, "i", "k").await.as_deref(), Some("2"));
    h.turn("i", SampleTurn::of("i", 1).event(4, kv_set("k", "3"))).await;
    assert_eq!(all(&h, "i").await, pairs(&[("k", "3")]));
}

async fn an_empty_value_is_a_value(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", ""))).await;
    assert_eq!(value(&h, "i", "k").await.as_deref(), Some(""));
}

async fn a_value_of_64_kib_round_trips(h: CaseHarness) {
    let large = "ä".repeat(32 * 1024);
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", &large))).await;
    assert_eq!(value(&h, "i", "k").await, Some(large));
}

async fn odd_keys_are_kept_apart(h: CaseHarness) {
    let keys = ["with space", "ünï🦀", "a.b.c", "a/b/c", "A/B/C", "quote'\"", "a%b", "", " "];
    let mut turn = SampleTurn::beginning("i", 1);
    for (key, id) in keys.into_iter().zip(2..) {
        turn = turn.event(id, kv_set(key, &format!("value of {key}")));
    }
    h.begin("i", turn).await;
    for key in keys {
        assert_eq!(value(&h, "i", key).await, Some(format!("value of {key}")));
    }
    assert_eq!(all(&h, "i").await.len(), keys.len());
}

async fn clearing_one_key_leaves_the_others(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("a", "1")).event(3, kv_set("b", "2"))).await;
    h.turn("i", SampleTurn::of("i", 1).event(4, kv_cleared("a"))).await;
    assert_eq!(value(&h, "i", "a").await, None);
    assert_eq!(all(&h, "i").await, pairs(&[("b", "2")]));
}

async fn clearing_a_missing_key_is_no_error(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_cleared("missing")).event(3, kv_all_cleared()))
        .await;
    assert_eq!(all(&h, "i").await, pairs(&[]));
}

async fn clearing_all_leaves_nothing(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("a", "1")).event(3, kv_set("b", "2"))).await;
    h.turn("i", SampleTurn::of("i", 1).event(4, kv_all_cleared())).await;
    assert_eq!(all(&h, "i").await, pairs(&[]));
}

async fn a_key_set_after_clear_all_in_one_commit_stays(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("old", "1"))).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, kv_all_cleared()).event(4, kv_set("new", "2"))).await;
    assert_eq!(all(&h, "i").await, pairs(&[("new", "2")]));
}

async fn a_key_set_before_clear_all_in_one_commit_goes(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "1")).event(3, kv_all_cleared())).await;
    assert_eq!(all(&h, "i").await, pairs(&[]));
}

async fn a_cleared_key_can_be_set_again(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "1")).event(3, kv_cleared("k"))).await;
    assert_eq!(value(&h, "i", "k").await, None);
    h.turn("i", SampleTurn::of("i", 1).event(4, kv_set("k", "2"))).await;
    assert_eq!(value(&h, "i", "k").await.as_deref(), Some("2"));
}

async fn unknown_keys_and_instances_have_no_value(h: CaseHarness) {
    h.create("i").await;
    assert_eq!(value(&h, "i", "k").await, None);
    assert_eq!(value(&h, "unknown", "k").await, None);
    assert_eq!(all(&h, "i").await, pairs(&[]));
    assert_eq!(all(&h, "unknown").await, pairs(&[]));
}

async fn the_same_key_on_two_instances_is_independent(h: CaseHarness) {
    h.begin("a", SampleTurn::beginning("a", 1).event(2, kv_set("k", "of a"))).await;
    h.begin("b", SampleTurn::beginning("b", 1).event(2, kv_set("k", "of b"))).await;
    assert_eq!(value(&h, "a", "k").await.as_deref(), Some("of a"));
    h.turn("a", SampleTurn::of("a", 1).event(3, kv_all_cleared())).await;
    assert_eq!(value(&h, "a", "k").await, None);
    assert_eq!(value(&h, "b", "k").await.as_deref(), Some("of b"));
}

async fn a_refused_commit_writes_no_key(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "1"))).await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    let turn = SampleTurn::of("i", 1)
        .event(3, kv_all_cleared())
        .event(4, kv_set("n", "2"))
        .event(1, kv_cleared("k"));
    expect_error(turn.commit(&h, &fetched.lock_token).await);
    assert_eq!(all(&h, "i").await, pairs(&[("k", "1")]));
}

async fn a_hundred_and_fifty_keys_are_kept(h: CaseHarness) {
    let mut turn = SampleTurn::beginning("i", 1);
    for id in 2..152 {
        turn = turn.event(id, kv_set(&format!("key {id}"), "v"));
    }
    h.begin("i", turn).await;
    assert_eq!(all(&h, "i").await.len(), 150);
}
