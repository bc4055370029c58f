//! `read_stats`: the size of an instance's current execution.

use crate::events;
use crate::harness::CaseHarness;
use crate::items::{NAME, VERSION, start};
use crate::sample_turn::SampleTurn;

cases! { $ read_stats as read_stats_cases:
    stats_of_an_unknown_instance_are_none,
    stats_count_events_and_bytes_of_the_current_execution,
    stats_count_carried_messages,
    stats_count_live_keys,
}

async fn stats_of_an_unknown_instance_are_none(h: CaseHarness) {
    assert_eq!(h.read_stats("unknown").await.unwrap(), None);
    h.send(start("i")).await;
    assert_eq!(h.read_stats("i").await.unwrap(), None);
}

async fn stats_count_events_and_bytes_of_the_current_execution(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2)).await;
    let one = h.read_stats("i").await.unwrap().unwrap();
    assert_eq!(one.history_event_count, 1);
    assert!(one.history_size_bytes > 0);
    let payload = "x".repeat(10_000);
    h.turn("i", SampleTurn::of("i", 2).completing(2, &payload)).await;
    let two = h.read_stats("i").await.unwrap().unwrap();
    assert_eq!(two.history_event_count, 2);
    let grown = two.history_size_bytes - one.history_size_bytes;
    assert!((10_000..20_000).contains(&grown), "an event of 10,000 bytes added {grown}");
}

async fn stats_count_carried_messages(h: CaseHarness) {
    let turn =
        SampleTurn::of("i", 1).event(1, events::started_carrying(&["a", "b", "c"])).named(NAME, VERSION);
    h.begin("i", turn).await;
    assert_eq!(h.read_stats("i").await.unwrap().unwrap().queue_pending_count, 3);
    h.create("none").await;
    assert_eq!(h.read_stats("none").await.unwrap().unwrap().queue_pending_count, 0);
}

async fn stats_count_live_keys(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, events::kv_set("a", "12345"))
        .event(3, events::kv_set("b", "ä"));
    h.begin("i", turn).await;
    let stats = h.read_stats("i").await.unwrap().unwrap();
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (2, 7), "of an unfinished execution");
    h.turn("i", SampleTurn::of("i", 1).continuing_as_new(4)).await;
    let turn = SampleTurn::beginning("i", 2)
        .event(2, events::kv_set("a", "1"))
        .event(3, events::kv_cleared("b"))
        .event(4, events::kv_set("c", "22"));
    h.take_turn("i", turn).await;
    let stats = h.read_stats("i").await.unwrap().unwrap();
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (2, 3), "of the merged view");
    h.turn("i", SampleTurn::of("i", 2).completing(5, "ok")).await;
    let stats = h.read_stats("i").await.unwrap().unwrap();
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (2, 3), "after completion");
}
