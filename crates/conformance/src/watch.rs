//! `watch` fires when clients can see a change of an instance.

use std::time::{Duration, Instant};

use crate::events;
use crate::harness::{Harness, secs};
use crate::turn_draft::TurnDraft;

cases! { $ watch as watch_cases:
    a_change_before_the_wait_is_not_missed,
    a_change_during_the_wait_ends_it,
    a_value_ends_the_wait,
    a_deletion_ends_the_wait,
    every_watcher_is_told,
    a_wait_ends_by_itself,
}

/// Shorter than the second after which a woken watch looks by itself.
const WOKEN: Duration = Duration::from_millis(800);

async fn a_change_before_the_wait_is_not_missed(h: Harness) {
    h.create("i").await;
    let mut watch = h.watch("i");
    h.turn("i", TurnDraft::of("i", 1).completing(2, "ok")).await;
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the change was already there");
    assert!(h.read_status("i").await.unwrap().is_terminal());
}

async fn a_change_during_the_wait_ends_it(h: Harness) {
    h.create("i").await;
    let mut watch = h.watch("i");
    let store = h.store();
    let waiting = tokio::spawn(async move {
        while !store.read_status("i").await.unwrap().is_terminal() {
            watch.changed(secs(30)).await;
        }
    });
    h.turn("i", TurnDraft::of("i", 1).completing(2, "ok")).await;
    tokio::time::timeout(WOKEN, waiting).await.expect("the commit wakes the watch").unwrap();
}

async fn a_value_ends_the_wait(h: Harness) {
    h.create("i").await;
    let mut watch = h.watch("i");
    h.turn("i", TurnDraft::of("i", 1).event(2, events::kv_set("key", "value"))).await;
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the commit wakes the watch");
}

async fn a_deletion_ends_the_wait(h: Harness) {
    h.create_completed("i").await;
    let mut watch = h.watch("i");
    h.admin().delete_instance("i", false).await.unwrap();
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the deletion wakes the watch");
}

async fn every_watcher_is_told(h: Harness) {
    h.create("i").await;
    let watches: Vec<_> = (0..20).map(|_| h.watch("i")).collect();
    h.turn("i", TurnDraft::of("i", 1).event(2, events::custom_status(Some("told")))).await;
    for mut watch in watches {
        tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the commit wakes every watch");
    }
}

async fn a_wait_ends_by_itself(h: Harness) {
    let mut watch = h.watch("i");
    let began = Instant::now();
    watch.changed(Duration::from_millis(20)).await;
    watch.changed(secs(30)).await;
    assert!(began.elapsed() < secs(10), "it looks again now and then");
}
