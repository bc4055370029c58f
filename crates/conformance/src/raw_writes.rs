//! `raw_writes`: events that are appended past the engine, for tests and tools.

use everturn_core::Event;

use crate::events;
use crate::harness::{CaseHarness, expect_error};
use crate::image::image;
use crate::items::{activity, signal};
use crate::sample_turn::SampleTurn;

cases! { $ raw_writes as raw_writes_cases:
    a_missing_execution_is_created,
    events_join_an_existing_execution,
    duplicates_are_refused_and_nothing_is_inserted,
    event_id_zero_is_refused_and_nothing_is_inserted,
    no_queue_lock_status_or_key_changes,
    a_turn_in_flight_keeps_its_lock,
}

fn event(event_id: u64, execution_id: u64) -> Event {
    Event::stamped(event_id, "i", execution_id, None, 1, events::signalled("appended"))
}

async fn a_missing_execution_is_created(h: CaseHarness) {
    h.append_events("i", 1, vec![event(1, 1), event(2, 1)]).await.unwrap();
    assert_eq!(h.history_of("i", 1).await.unwrap(), [event(1, 1), event(2, 1)]);
    assert!(h.admin().list_instances().await.unwrap().is_empty());
}

async fn events_join_an_existing_execution(h: CaseHarness) {
    h.create("i").await;
    h.append_events("i", 1, vec![event(2, 1)]).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1, 2]);
}

async fn duplicates_are_refused_and_nothing_is_inserted(h: CaseHarness) {
    h.create("i").await;
    let before = image(&h, &["i"]).await;
    expect_error(h.append_events("i", 1, vec![event(2, 1), event(1, 1)]).await);
    expect_error(h.append_events("i", 1, vec![event(2, 1), event(2, 1)]).await);
    assert_eq!(image(&h, &["i"]).await, before);
}

async fn event_id_zero_is_refused_and_nothing_is_inserted(h: CaseHarness) {
    h.create("i").await;
    let before = image(&h, &["i"]).await;
    expect_error(h.append_events("i", 1, vec![event(2, 1), event(0, 1)]).await);
    expect_error(h.append_events("j", 1, vec![Event::new("j", 1, None, events::started())]).await);
    assert_eq!(image(&h, &["i"]).await, before);
    assert_eq!(h.history("j").await.unwrap(), []);
}

async fn no_queue_lock_status_or_key_changes(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::kv_set("k", "v")).activity(activity("i", 2)))
        .await;
    h.send(signal("i", "waits")).await;
    let appended = vec![
        Event::stamped(3, "i", 1, None, 1, events::custom_status(Some("new"))),
        Event::stamped(4, "i", 1, None, 1, events::kv_set("k", "other")),
        Event::stamped(5, "i", 1, None, 1, events::completed("done")),
    ];
    h.append_events("i", 1, appended).await.unwrap();
    assert_eq!(h.read_custom_status("i", 0).await.unwrap(), None);
    assert_eq!(h.read_kv_value("i", "k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().status, "Running");
    assert_eq!((h.messages_waiting().await, h.activities_waiting().await), (1, 1));
    assert_eq!(h.fetched_turn().await.attempt_count, 1);
}

async fn a_turn_in_flight_keeps_its_lock(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.append_events("i", 1, vec![event(2, 1)]).await.unwrap();
    assert!(h.next_turn().await.is_none());
    SampleTurn::of("i", 1).event(3, events::scheduled()).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1, 2, 3]);
}
