//! The key-value store across executions: completed ones are the base, the current one overwrites it.

use std::collections::BTreeMap;

use everturn_core::KvEntry;
use everturn_provider::management::PruneOptions;

use crate::events::{KV_TIME_MS, kv_all_cleared, kv_cleared, kv_set};
use crate::harness::CaseHarness;
use crate::items::signal;
use crate::read_kv_values::{all, pairs, value};
use crate::sample_turn::SampleTurn;

cases! { $ kv_executions as kv_executions_cases:
    the_snapshot_may_be_empty,
    the_snapshot_has_no_keys_of_the_unfinished_execution,
    the_snapshot_has_the_keys_of_completed_executions_with_their_time,
    the_snapshot_is_of_several_executions,
    cleared_keys_are_absent_from_the_snapshot,
    the_later_execution_wins,
    a_key_set_cleared_and_set_again_works,
    the_merged_view_shows_base_and_live_writes,
    a_live_clear_hides_an_old_value,
    a_live_clear_all_hides_old_values,
    the_live_delta_is_merged_at_completion,
    the_live_delta_is_merged_at_failure,
    pruning_keeps_every_key,
    deleting_removes_base_and_delta,
    deleting_removes_the_childrens_keys,
    a_recreated_instance_has_no_old_keys,
}

/// The snapshot that the next fetch returns; its messages stay locked.
async fn snapshot(h: &CaseHarness) -> BTreeMap<String, KvEntry> {
    h.fetched_turn().await.item.kv_snapshot.into_iter().collect()
}

fn entries(pairs: &[(&str, &str)]) -> BTreeMap<String, KvEntry> {
    let entry = |value: &str| KvEntry { value: value.to_owned(), last_updated_at_ms: KV_TIME_MS };
    pairs.iter().map(|(key, value)| ((*key).to_owned(), entry(value))).collect()
}

async fn the_snapshot_may_be_empty(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[]));
}

async fn the_snapshot_has_no_keys_of_the_unfinished_execution(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "v"))).await;
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[]));
    assert_eq!(all(&h, "i").await, pairs(&[("k", "v")]));
}

async fn the_snapshot_has_the_keys_of_completed_executions_with_their_time(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "v"))).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, kv_set("l", "w")).continuing_as_new(4)).await;
    assert_eq!(snapshot(&h).await, entries(&[("k", "v"), ("l", "w")]));
}

async fn the_snapshot_is_of_several_executions(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("a", "1")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_set("b", "2")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 3).event(2, kv_set("c", "3"))).await;
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[("a", "1"), ("b", "2")]));
}

async fn cleared_keys_are_absent_from_the_snapshot(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, kv_set("a", "1"))
        .event(3, kv_set("b", "2"))
        .continuing_as_new(4);
    h.begin("i", turn).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_cleared("a")).continuing_as_new(3)).await;
    assert_eq!(snapshot(&h).await, entries(&[("b", "2")]));
}

async fn the_later_execution_wins(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "1")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_set("k", "2")).continuing_as_new(3)).await;
    assert_eq!(value(&h, "i", "k").await.as_deref(), Some("2"));
    assert_eq!(snapshot(&h).await, entries(&[("k", "2")]));
}

async fn a_key_set_cleared_and_set_again_works(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "1")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_cleared("k")).continuing_as_new(3)).await;
    assert_eq!(value(&h, "i", "k").await, None);
    h.take_turn("i", SampleTurn::beginning("i", 3).event(2, kv_set("k", "3")).continuing_as_new(3)).await;
    assert_eq!(snapshot(&h).await, entries(&[("k", "3")]));
}

async fn the_merged_view_shows_base_and_live_writes(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, kv_set("a", "1"))
        .event(3, kv_set("b", "1"))
        .continuing_as_new(4);
    h.begin("i", turn).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_set("b", "2")).event(3, kv_set("c", "2")))
        .await;
    assert_eq!(all(&h, "i").await, pairs(&[("a", "1"), ("b", "2"), ("c", "2")]));
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[("a", "1"), ("b", "1")]));
}

async fn a_live_clear_hides_an_old_value(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, kv_set("a", "1"))
        .event(3, kv_set("b", "1"))
        .continuing_as_new(4);
    h.begin("i", turn).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_cleared("a"))).await;
    assert_eq!(value(&h, "i", "a").await, None);
    assert_eq!(all(&h, "i").await, pairs(&[("b", "1")]));
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[("a", "1"), ("b", "1")]), "the base is as it was");
}

async fn a_live_clear_all_hides_old_values(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, kv_set("a", "1"))
        .event(3, kv_set("b", "1"))
        .continuing_as_new(4);
    h.begin("i", turn).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_all_cleared()).event(3, kv_set("b", "2")))
        .await;
    assert_eq!(value(&h, "i", "a").await, None);
    assert_eq!(all(&h, "i").await, pairs(&[("b", "2")]));
    h.turn("i", SampleTurn::of("i", 2).continuing_as_new(4)).await;
    assert_eq!(snapshot(&h).await, entries(&[("b", "2")]));
}

async fn the_live_delta_is_merged_at_completion(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "v"))).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, kv_set("l", "w")).completing(4, "ok")).await;
    assert_eq!(all(&h, "i").await, pairs(&[("k", "v"), ("l", "w")]));
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[("k", "v"), ("l", "w")]));
}

async fn the_live_delta_is_merged_at_failure(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "v"))).await;
    h.turn("i", SampleTurn::of("i", 1).failing(3, "boom")).await;
    assert_eq!(all(&h, "i").await, pairs(&[("k", "v")]));
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[("k", "v")]));
}

async fn pruning_keeps_every_key(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, kv_set("first", "1"))
        .event(3, kv_set("k", "1"))
        .continuing_as_new(4);
    h.begin("i", turn).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_set("k", "2")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 3).event(2, kv_set("live", "3"))).await;
    let options = PruneOptions { keep_last: Some(1), completed_before: None };
    let pruned = h.admin().prune_executions("i", options).await.unwrap();
    assert_eq!(pruned.executions_deleted, 2);
    assert_eq!(all(&h, "i").await, pairs(&[("first", "1"), ("k", "2"), ("live", "3")]));
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[("first", "1"), ("k", "2")]));
}

async fn deleting_removes_base_and_delta(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("base", "1")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).event(2, kv_set("delta", "2"))).await;
    h.begin("other", SampleTurn::beginning("other", 1).event(2, kv_set("base", "kept"))).await;
    h.admin().delete_instance("i", true).await.unwrap();
    assert_eq!(all(&h, "i").await, pairs(&[]));
    assert_eq!(value(&h, "i", "delta").await, None);
    assert_eq!(all(&h, "other").await, pairs(&[("base", "kept")]));
}

async fn deleting_removes_the_childrens_keys(h: CaseHarness) {
    h.create_completed("parent").await;
    h.create_child("child", "parent").await;
    h.turn("child", SampleTurn::of("child", 1).event(2, kv_set("k", "v")).completing(3, "ok")).await;
    h.admin().delete_instance("parent", false).await.unwrap();
    assert_eq!(all(&h, "child").await, pairs(&[]));
}

async fn a_recreated_instance_has_no_old_keys(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, kv_set("k", "v")).completing(3, "ok")).await;
    h.admin().delete_instance("i", false).await.unwrap();
    h.create("i").await;
    assert_eq!(all(&h, "i").await, pairs(&[]));
    h.send(signal("i", "a")).await;
    assert_eq!(snapshot(&h).await, entries(&[]));
}
