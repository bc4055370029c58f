//! Where an instance stands, and waiting for it to change.

use std::time::{Duration, Instant};

use everturn_core::{ErrorDetails, OrchestrationStatus};

use crate::events;
use crate::harness::{Harness, refusal, secs};
use crate::items::{NAME, VERSION, start};
use crate::turn::Turn;

cases! { $ watch as watch_cases:
    an_unknown_instance_is_not_found,
    a_running_instance_shows_its_custom_status,
    a_completed_instance_shows_its_output,
    a_failed_instance_shows_its_details,
    the_latest_execution_decides,
    between_continue_as_new_and_its_successor_it_runs,
    a_damaged_end_is_an_error_not_a_status,
    a_deleted_instance_is_not_found,
    a_change_before_the_wait_is_not_missed,
    a_change_during_the_wait_ends_it,
    a_value_ends_the_wait,
    a_deletion_ends_the_wait,
    every_watcher_is_told,
    a_wait_ends_by_itself,
    the_name_is_read_without_the_history,
}

async fn an_unknown_instance_is_not_found(h: Harness) {
    assert_eq!(h.read_status("nobody").await.unwrap(), OrchestrationStatus::NotFound);
    h.send(start("i")).await;
    assert_eq!(h.read_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    h.fetched().await;
    assert_eq!(h.read_status("i").await.unwrap(), OrchestrationStatus::NotFound);
}

async fn a_running_instance_shows_its_custom_status(h: Harness) {
    h.create("i").await;
    let expected = OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
    h.turn("i", Turn::of("i", 1).event(2, events::custom_status(Some("half way")))).await;
    let expected =
        OrchestrationStatus::Running { custom_status: Some("half way".to_owned()), custom_status_version: 1 };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
}

async fn a_completed_instance_shows_its_output(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).event(2, events::custom_status(Some("end"))).completing(3, "out"))
        .await;
    let expected = OrchestrationStatus::Completed {
        output: "out".to_owned(),
        custom_status: Some("end".to_owned()),
        custom_status_version: 1,
    };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
}

async fn a_failed_instance_shows_its_details(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).failing(2, "boom")).await;
    let expected = OrchestrationStatus::Failed {
        details: ErrorDetails::orchestration_failed("boom"),
        custom_status: None,
        custom_status_version: 0,
    };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
}

async fn the_latest_execution_decides(h: Harness) {
    h.create_with_executions("i", 3).await;
    let expected = OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
    h.turn("i", Turn::of("i", 3).completing(2, "third")).await;
    let status = h.read_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "third"));
}

async fn between_continue_as_new_and_its_successor_it_runs(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).continuing_as_new(2)).await;
    assert!(matches!(h.read_status("i").await.unwrap(), OrchestrationStatus::Running { .. }));
}

async fn a_damaged_end_is_an_error_not_a_status(h: Harness) {
    h.begin("i", Turn::beginning("i", 1).failing(2, "boom")).await;
    h.damage_event("i", 1, 2).await;
    refusal(h.read_status("i").await);
}

async fn a_deleted_instance_is_not_found(h: Harness) {
    h.create_completed("i").await;
    h.admin().delete_instance("i", false).await.unwrap();
    assert_eq!(h.read_status("i").await.unwrap(), OrchestrationStatus::NotFound);
}

/// Shorter than the second after which a woken watch looks by itself.
const WOKEN: Duration = Duration::from_millis(800);

async fn a_change_before_the_wait_is_not_missed(h: Harness) {
    h.create("i").await;
    let mut watch = h.watch_instance("i");
    h.turn("i", Turn::of("i", 1).completing(2, "ok")).await;
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the change was already there");
    assert!(h.read_status("i").await.unwrap().is_terminal());
}

async fn a_change_during_the_wait_ends_it(h: Harness) {
    h.create("i").await;
    let mut watch = h.watch_instance("i");
    let provider = h.provider();
    let waiting = tokio::spawn(async move {
        while !provider.read_status("i").await.unwrap().is_terminal() {
            watch.changed(secs(30)).await;
        }
    });
    h.turn("i", Turn::of("i", 1).completing(2, "ok")).await;
    tokio::time::timeout(WOKEN, waiting).await.expect("the commit wakes the watch").unwrap();
}

async fn a_value_ends_the_wait(h: Harness) {
    h.create("i").await;
    let mut watch = h.watch_instance("i");
    h.turn("i", Turn::of("i", 1).event(2, events::kv_set("key", "value"))).await;
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the commit wakes the watch");
}

async fn a_deletion_ends_the_wait(h: Harness) {
    h.create_completed("i").await;
    let mut watch = h.watch_instance("i");
    h.admin().delete_instance("i", false).await.unwrap();
    tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the deletion wakes the watch");
}

async fn every_watcher_is_told(h: Harness) {
    h.create("i").await;
    let watches: Vec<_> = (0..20).map(|_| h.watch_instance("i")).collect();
    h.turn("i", Turn::of("i", 1).event(2, events::custom_status(Some("told")))).await;
    for mut watch in watches {
        tokio::time::timeout(WOKEN, watch.changed(secs(30))).await.expect("the commit wakes every watch");
    }
}

async fn a_wait_ends_by_itself(h: Harness) {
    let mut watch = h.watch_instance("i");
    let began = Instant::now();
    watch.changed(Duration::from_millis(20)).await;
    watch.changed(secs(30)).await;
    assert!(began.elapsed() < secs(10), "it looks again now and then");
}

async fn the_name_is_read_without_the_history(h: Harness) {
    assert_eq!(h.read_orchestration_name("nobody").await.unwrap(), None);
    h.create("i").await;
    let expected = Some((NAME.to_owned(), VERSION.to_owned()));
    assert_eq!(h.read_orchestration_name("i").await.unwrap(), expected);
}
