//! `watch` fires when clients can see a change of an instance.

use std::time::{Duration, Instant};

use crate::events;
use crate::harness::{CaseHarness, secs};
use crate::sample_turn::SampleTurn;

cases! { $ watch as watch_cases:
    a_change_before_the_wait_is_not_missed,
    a_change_during_the_wait_ends_it,
    a_value_ends_the_wait,
    a_deletion_ends_the_wait,
    every_watch_fires,
    a_wait_without_a_change_ends_when_its_time_is_over,
}

/// Far longer than a wake-up takes, far shorter than the waits of these cases.
const WOKEN: Duration = Duration::from_secs(5);

async fn a_change_before_the_wait_is_not_missed(h: CaseHarness) {
    h.create("i").await;
    let mut watch = h.watch("i");
    h.turn("i", SampleTurn::of("i", 1).completing(2, "ok")).await;
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the change was already there");
    assert!(h.read_status("i").await.unwrap().is_terminal());
}

async fn a_change_during_the_wait_ends_it(h: CaseHarness) {
    h.create("i").await;
    let mut watch = h.watch("i");
    let store = h.store();
    let waiting = tokio::spawn(async move {
        while !store.read_status("i").await.unwrap().is_terminal() {
            watch.changed(secs(30)).await;
        }
    });
    h.turn("i", SampleTurn::of("i", 1).completing(2, "ok")).await;
    tokio::time::timeout(WOKEN, waiting).await.expect("the commit wakes the watch").unwrap();
}

async fn a_value_ends_the_wait(h: CaseHarness) {
    h.create("i").await;
    let mut watch = h.watch("i");
    h.turn("i", SampleTurn::of("i", 1).event(2, events::kv_set("key", "value"))).await;
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the commit wakes the watch");
}

async fn a_deletion_ends_the_wait(h: CaseHarness) {
    h.create_completed("i").await;
    let mut watch = h.watch("i");
    h.admin().delete_instance("i", false).await.unwrap();
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the deletion wakes the watch");
}

async fn every_watch_fires(h: CaseHarness) {
    h.create("i").await;
    let watches: Vec<_> = (0..20).map(|_| h.watch("i")).collect();
    h.turn("i", SampleTurn::of("i", 1).event(2, events::custom_status(Some("new")))).await;
    for mut watch in watches {
        tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the commit wakes every watch");
    }
}

async fn a_wait_without_a_change_ends_when_its_time_is_over(h: CaseHarness) {
    let mut watch = h.watch("i");
    let began = Instant::now();
    watch.changed(Duration::from_millis(20)).await;
    watch.changed_or_after(Duration::from_millis(20)).await;
    assert!(began.elapsed() < secs(10), "the caller asked for less");
}
