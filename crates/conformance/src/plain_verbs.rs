//! Every plain verb of `Provider` does what the verb of the store does.
//!
//! On a provider that is a store this is a test of the blanket implementation, on any other one of the adapter.

use std::time::Duration;

use everturn_core::{Event, ExecutionStatus, SemverRange};
use everturn_provider::store::{TurnFetch, WorkFetch};
use everturn_provider::{DispatcherCapabilityFilter, SessionFetchConfig, TagFilter};

use semver::Version;

use crate::events;
use crate::harness::{
    ActivityId, CaseHarness, LOCK, PAST_LOCK, expect_error, expect_lock_lost, expect_permanent_error, secs,
};
use crate::image::image_of_instances;
use crate::items::{
    activity, activity_completed, activity_in_session, activity_tagged, signal, start, timer,
};
use crate::sample_turn::SampleTurn;

cases! { $ plain_verbs as plain_verbs_cases:
    name_version_time_and_limit_are_those_of_the_store,
    fetch_orchestration_item_is_a_fetch_of_one_turn,
    fetch_orchestration_item_filters_like_fetch_turns,
    fetch_orchestration_item_finds_nothing_where_fetch_turns_does,
    ack_orchestration_item_writes_what_commit_turn_does,
    ack_orchestration_item_is_refused_like_commit_turn,
    abandon_orchestration_item_is_abandon_turn,
    enqueue_for_orchestrator_is_a_submission_of_one_message,
    enqueue_for_worker_and_append_with_execution_are_raw_writes,
    fetch_work_item_is_a_fetch_of_one_activity,
    fetch_work_item_filters_like_fetch_work,
    ack_work_item_is_settle_work_with_an_end,
    abandon_work_item_is_settle_work_with_an_abandon,
    the_renewals_of_one_lock_are_renew,
    renew_session_lock_is_renew,
    cleanup_orphaned_sessions_is_sweep,
    read_and_read_with_execution_are_read_execution,
    the_plain_reads_are_those_of_the_store,
    as_management_capability_is_admin,
}

async fn name_version_time_and_limit_are_those_of_the_store(h: CaseHarness) {
    let plain = h.provider();
    assert_eq!((plain.name(), plain.version()), (h.name(), h.version()));
    assert_eq!(plain.payload_bytes_max(), h.limits().payload_bytes_max);
    assert_eq!(plain.now_ms(), h.now_ms());
    h.pass(secs(5));
    assert_eq!(plain.now_ms(), h.now_ms());
}

async fn fetch_orchestration_item_is_a_fetch_of_one_turn(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(2, events::kv_set("k", "v")).continuing_as_new(3)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2)).await;
    h.send(signal("i", "a")).await;
    h.send(signal("i", "b")).await;
    h.send(start("other")).await;
    let (plain, token, attempts) =
        h.provider().fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().expect("i is ready");
    h.release_turn(&token, None, true).await.unwrap();
    let turn = h.fetched_turn().await;
    assert_eq!(format!("{plain:?}"), format!("{:?}", turn.item), "history, messages and keys are the same");
    assert_eq!((turn.item.instance.as_str(), attempts, turn.attempt_count), ("i", 1, 1));
    SampleTurn::of("i", 2).commit(&h, &turn.lock_token).await.unwrap();
    let next = h.provider().fetch_orchestration_item(LOCK, secs(1), None).await.unwrap().expect("the other");
    assert_eq!(next.0.instance, "other");
    h.pass(PAST_LOCK);
    assert_eq!(h.fetched_turn().await.attempt_count, 2, "the lock lasted as long as was asked");
}

async fn fetch_orchestration_item_filters_like_fetch_turns(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).pinned(Version::new(2, 0, 0))).await;
    h.send(signal("i", "a")).await;
    let range = |from, to| DispatcherCapabilityFilter {
        supported_engine_versions: vec![SemverRange::new(Version::new(from, 0, 0), Version::new(to, 0, 0))],
    };
    for (filter, accepts) in [(range(0, 1), false), (range(2, 3), true)] {
        let plain = h.provider().fetch_orchestration_item(LOCK, Duration::ZERO, Some(&filter)).await.unwrap();
        assert_eq!(plain.is_some(), accepts);
        if let Some((_, token, _)) = plain {
            h.release_turn(&token, None, true).await.unwrap();
        }
        let turn = h.fetch_turn(&TurnFetch::new(LOCK, Duration::ZERO).with_filter(filter)).await.unwrap();
        assert_eq!(turn.is_some(), accepts);
    }
}

async fn fetch_orchestration_item_finds_nothing_where_fetch_turns_does(h: CaseHarness) {
    assert!(h.provider().fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().is_none());
    h.send(start("i")).await;
    let turn = h.fetched_turn().await;
    assert!(h.provider().fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().is_none());
    h.provider().abandon_orchestration_item(&turn.lock_token, None, false).await.unwrap();
    let (_, _, attempts) =
        h.provider().fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().expect("released");
    assert_eq!(attempts, 2);
}

/// Everything that can be seen of two instances, which are the same but for their names.
async fn assert_alike(h: &CaseHarness, one: &str, other: &str) {
    let seen = image_of_instances(h, &[one]).await.replace(one, "INSTANCE");
    let expected = image_of_instances(h, &[other]).await.replace(other, "INSTANCE");
    assert_eq!(seen, expected);
}

/// A turn that decides one of everything, and ends as the status says.
fn full_turn(instance: &str, status: ExecutionStatus) -> SampleTurn {
    SampleTurn::beginning(instance, 1)
        .event(2, events::kv_set("k", "v"))
        .event(3, events::custom_status(Some("status")))
        .event(4, events::scheduled())
        .activity(activity(instance, 4))
        .activity(activity(instance, 5))
        .cancelling(5)
        .message(signal(instance, "next"))
        .message(timer(instance, 6, 1_900_000_000_000))
        .parent("parent")
        .pinned(Version::new(1, 2, 3))
        .status(status, "output")
}

async fn ack_orchestration_item_writes_what_commit_turn_does(h: CaseHarness) {
    let statuses = [
        ExecutionStatus::Running,
        ExecutionStatus::Completed,
        ExecutionStatus::Failed,
        ExecutionStatus::ContinuedAsNew,
    ];
    for (n, status) in statuses.into_iter().enumerate() {
        let (by_plain, by_store) = (format!("plain verb {n}"), format!("store verb {n}"));
        for instance in [&by_plain, &by_store] {
            h.send(start(instance)).await;
        }
        let (one, other) = (h.fetched_turn().await, h.fetched_turn().await);
        assert_eq!(one.item.instance, by_plain);
        full_turn(&by_plain, status).ack(h.provider(), &one.lock_token).await.unwrap();
        full_turn(&by_store, status).commit(&h, &other.lock_token).await.unwrap();
        assert_alike(&h, &by_plain, &by_store).await;
        let (one, other) = (h.fetched_turn().await, h.fetched_turn().await);
        assert_eq!(one.item.messages, [signal(&by_plain, "next")]);
        assert_eq!(other.item.messages, [signal(&by_store, "next")]);
        assert_eq!(h.fetched_work().await.item, activity(&by_plain, 4));
        assert_eq!(h.fetched_work().await.item, activity(&by_store, 4));
        assert!(h.next_work().await.is_none(), "the cancelled one is gone");
    }
}

async fn ack_orchestration_item_is_refused_like_commit_turn(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let turn = h.fetched_turn().await;
    let plain = h.provider();
    let empty = || SampleTurn::of("i", 1);
    expect_lock_lost(empty().ack(plain, "no such token").await);
    expect_error(empty().event(1, events::scheduled()).ack(plain, &turn.lock_token).await);
    empty().ack(plain, &turn.lock_token).await.unwrap();
    expect_lock_lost(empty().ack(plain, &turn.lock_token).await);
    expect_lock_lost(empty().commit(&h, &turn.lock_token).await);
    assert_eq!(h.event_ids("i").await, [1]);
}

async fn abandon_orchestration_item_is_abandon_turn(h: CaseHarness) {
    h.send(start("i")).await;
    for (ignore_attempt, attempts) in [(false, 1), (true, 2), (false, 2)] {
        let turn = h.fetched_turn().await;
        assert_eq!(turn.attempt_count, attempts);
        h.provider()
            .abandon_orchestration_item(&turn.lock_token, Some(secs(10)), ignore_attempt)
            .await
            .unwrap();
        expect_lock_lost(h.provider().abandon_orchestration_item(&turn.lock_token, None, false).await);
        h.pass(secs(9));
        assert!(h.next_turn().await.is_none(), "the delay holds");
        h.pass(secs(2));
    }
    assert_eq!(h.fetched_turn().await.attempt_count, 3);
}

async fn enqueue_for_orchestrator_is_a_submission_of_one_message(h: CaseHarness) {
    let plain = h.provider();
    plain.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    plain.enqueue_for_orchestrator(signal("i", "late"), Some(secs(5))).await.unwrap();
    expect_permanent_error(plain.enqueue_for_orchestrator(activity("i", 1), None).await);
    let turn = h.fetched_turn().await;
    assert_eq!(turn.item.messages, [start("i")]);
    SampleTurn::beginning("i", 1).commit(&h, &turn.lock_token).await.unwrap();
    assert!(h.next_turn().await.is_none());
    h.pass(secs(6));
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "late")]);
}

async fn enqueue_for_worker_and_append_with_execution_are_raw_writes(h: CaseHarness) {
    let event = |instance: &str| Event::stamped(2, instance, 1, None, 1, events::scheduled());
    for instance in ["plain", "store"] {
        h.create(instance).await;
    }
    h.provider().append_with_execution("plain", 1, vec![event("plain")]).await.unwrap();
    h.append_events("store", 1, vec![event("store")]).await.unwrap();
    assert_alike(&h, "plain", "store").await;
    expect_error(h.provider().append_with_execution("plain", 1, vec![event("plain")]).await);
    h.provider().enqueue_for_worker(activity("plain", 2)).await.unwrap();
    h.queue(activity("store", 2)).await;
    assert_eq!(h.fetched_work().await.item, activity("plain", 2));
    assert_eq!(h.fetched_work().await.item, activity("store", 2));
    expect_permanent_error(h.provider().enqueue_for_worker(signal("i", "a")).await);
}

async fn fetch_work_item_is_a_fetch_of_one_activity(h: CaseHarness) {
    let plain = h.provider();
    assert!(plain.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap().is_none());
    h.queue(activity("i", 1)).await;
    h.queue(activity("i", 2)).await;
    let fetched = plain.fetch_work_item(LOCK, secs(1), None, &TagFilter::Any).await.unwrap();
    let (item, token, attempts) = fetched.expect("an activity waits");
    assert_eq!((item, attempts), (activity("i", 1), 1));
    assert_eq!(h.fetched_work().await.item, activity("i", 2));
    h.release_work(&token, None, false).await.unwrap();
    let again = h.fetched_work().await;
    assert_eq!((again.activity_id(), again.attempt_count), (1, 2));
    h.pass(PAST_LOCK);
    let fetched = plain.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    assert_eq!(fetched.expect("the locks expired").2, 3);
}

async fn fetch_work_item_filters_like_fetch_work(h: CaseHarness) {
    h.queue(activity_tagged("i", 1, "gpu")).await;
    h.queue(activity_in_session("i", 2, "s")).await;
    h.queue(activity("i", 3)).await;
    let owner = SessionFetchConfig { owner_id: "worker".to_owned(), lock_timeout: LOCK };
    let gpu = TagFilter::tags(["gpu"]);
    let fetches = [(Some(&owner), &TagFilter::DefaultOnly, 2), (None, &gpu, 1), (None, &TagFilter::Any, 3)];
    for (session, tags, expected) in fetches {
        let (item, token, _) = h
            .provider()
            .fetch_work_item(LOCK, Duration::ZERO, session, tags)
            .await
            .unwrap()
            .expect("one waits");
        assert_eq!(crate::items::activity_id(&item), expected);
        h.release_work(&token, None, true).await.unwrap();
        let fetch =
            WorkFetch::new(LOCK, Duration::ZERO).with_session(session.cloned()).with_tags(tags.clone());
        assert_eq!(h.fetch_one_work(&fetch).await.unwrap().expect("one waits").activity_id(), expected);
    }
    h.queue(activity_in_session("i", 4, "s")).await;
    assert!(h.next_work_as("another", LOCK).await.is_none(), "the session was claimed");
}

async fn ack_work_item_is_settle_work_with_an_end(h: CaseHarness) {
    h.create("i").await;
    for id in 1..=2 {
        h.queue(activity("i", id)).await;
    }
    let (one, other) = (h.fetched_work().await, h.fetched_work().await);
    let plain = h.provider();
    expect_permanent_error(plain.ack_work_item(&one.lock_token, Some(signal("i", "a"))).await);
    plain.ack_work_item(&one.lock_token, Some(activity_completed("i", 1))).await.unwrap();
    plain.ack_work_item(&other.lock_token, None).await.unwrap();
    expect_lock_lost(plain.ack_work_item(&one.lock_token, Some(activity_completed("i", 1))).await);
    expect_lock_lost(h.end_work(&other.lock_token, None).await);
    assert_eq!(h.fetched_turn().await.item.messages, [activity_completed("i", 1)]);
    h.pass(PAST_LOCK);
    assert!(h.next_work().await.is_none());
}

async fn abandon_work_item_is_settle_work_with_an_abandon(h: CaseHarness) {
    h.queue(activity("i", 1)).await;
    for (ignore_attempt, attempts) in [(false, 1), (true, 2), (false, 2)] {
        let work = h.fetched_work().await;
        assert_eq!(work.attempt_count, attempts);
        h.provider().abandon_work_item(&work.lock_token, Some(secs(10)), ignore_attempt).await.unwrap();
        expect_lock_lost(h.provider().abandon_work_item(&work.lock_token, None, false).await);
        h.pass(secs(9));
        assert!(h.next_work().await.is_none(), "the delay holds");
        h.pass(secs(2));
    }
    assert_eq!(h.fetched_work().await.attempt_count, 3);
}

async fn the_renewals_of_one_lock_are_renew(h: CaseHarness) {
    h.send(start("i")).await;
    h.queue(activity("i", 1)).await;
    let (turn, work) = (h.fetched_turn().await, h.fetched_work().await);
    let plain = h.provider();
    h.pass(secs(20));
    plain.renew_orchestration_item_lock(&turn.lock_token, LOCK).await.unwrap();
    plain.renew_work_item_lock(&work.lock_token, LOCK).await.unwrap();
    expect_lock_lost(plain.renew_orchestration_item_lock(&work.lock_token, LOCK).await);
    expect_lock_lost(plain.renew_work_item_lock(&turn.lock_token, LOCK).await);
    h.pass(secs(20));
    assert!(h.next_turn().await.is_none() && h.next_work().await.is_none(), "both are still locked");
    h.pass(secs(11));
    assert!(h.next_turn().await.is_some() && h.next_work().await.is_some(), "both expired");
}

async fn renew_session_lock_is_renew(h: CaseHarness) {
    for (id, name, owner) in [(1, "s", "a"), (2, "t", "b")] {
        h.queue(activity_in_session("i", id, name)).await;
        assert_eq!(h.next_work_as(owner, LOCK).await.unwrap().activity_id(), id);
    }
    h.pass(secs(20));
    assert_eq!(h.provider().renew_session_lock(&["a", "c"], LOCK, 3 * LOCK).await.unwrap(), 1);
    h.pass(secs(20));
    for (id, name) in [(3, "s"), (4, "t")] {
        h.queue(activity_in_session("i", id, name)).await;
    }
    let mut taken = Vec::new();
    while let Some(work) = h.next_work_as("d", LOCK).await {
        taken.push(work.activity_id());
    }
    assert_eq!(taken, [2, 4], "the lease of session t ended, that of s was extended");
}

async fn cleanup_orphaned_sessions_is_sweep(h: CaseHarness) {
    for cleanup_first in [true, false] {
        h.queue(activity_in_session("i", 1, "s")).await;
        let work = h.next_work_as("a", LOCK).await.unwrap();
        h.end_work(&work.lock_token, None).await.unwrap();
        h.pass(PAST_LOCK);
        let removed = if cleanup_first {
            h.provider().cleanup_orphaned_sessions(LOCK).await.unwrap()
        } else {
            h.sweep_sessions(LOCK).await.unwrap()
        };
        assert_eq!(removed, 1);
        assert_eq!(h.provider().cleanup_orphaned_sessions(LOCK).await.unwrap(), 0);
    }
}

async fn read_and_read_with_execution_are_read_execution(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    let plain = h.provider();
    assert_eq!(plain.read("i").await.unwrap(), h.history("i").await.unwrap());
    for execution_id in 1..=4 {
        let read = plain.read_with_execution("i", execution_id).await.unwrap();
        assert_eq!(read, h.history_of("i", execution_id).await.unwrap());
    }
    assert_eq!(plain.read("unknown").await.unwrap(), []);
    h.damage_event("i", 3, 1).await;
    expect_error(plain.read("i").await);
}

async fn the_plain_reads_are_those_of_the_store(h: CaseHarness) {
    let turn = SampleTurn::beginning("i", 1)
        .event(2, events::kv_set("k", "v"))
        .event(3, events::custom_status(Some("status")));
    h.begin("i", turn).await;
    let plain = h.provider();
    for instance in ["i", "unknown"] {
        for last_seen in 0..=1 {
            let status = h.read_custom_status(instance, last_seen).await.unwrap();
            let expected = status.map(|status| (status.text, status.version));
            assert_eq!(plain.get_custom_status(instance, last_seen).await.unwrap(), expected);
        }
        for key in ["k", "missing"] {
            let expected = h.read_kv_value(instance, key).await.unwrap();
            assert_eq!(plain.get_kv_value(instance, key).await.unwrap(), expected);
        }
        let expected = h.read_kv_values(instance).await.unwrap();
        assert_eq!(plain.get_kv_all_values(instance).await.unwrap(), expected);
        let expected = h.read_stats(instance).await.unwrap();
        assert_eq!(plain.get_instance_stats(instance).await.unwrap(), expected);
    }
    assert_eq!(plain.get_kv_value("i", "k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(plain.get_custom_status("i", 0).await.unwrap(), Some((Some("status".to_owned()), 1)));
}

async fn as_management_capability_is_admin(h: CaseHarness) {
    h.create("i").await;
    let admin = h.provider().as_management_capability().expect("the provider has a management side");
    assert_eq!(admin.list_instances().await.unwrap(), ["i"]);
    assert_eq!(h.admin().list_instances().await.unwrap(), ["i"]);
}
