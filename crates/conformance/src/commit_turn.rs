//! `commit_turn` writes everything a turn decided, or nothing.

use everturn_core::{Event, ExecutionStatus, WorkItem};

use crate::events;
use crate::harness::{CaseHarness, PAST_LOCK, expect_error, expect_lock_lost, secs};
use crate::image::image;
use crate::items::{
    NAME, VERSION, activity, activity_completed, child_completed, queue_message, signal, start, start_child,
    timer,
};
use crate::sample_turn::SampleTurn;

cases! { $ commit_turn as commit_turn_cases:
    a_duplicate_event_id_changes_nothing_and_keeps_the_lock,
    a_duplicate_event_id_within_the_delta_is_refused,
    event_id_zero_is_refused,
    a_refused_commit_can_be_followed_by_a_right_one,
    events_activities_and_messages_all_land,
    a_wrong_token_is_refused_and_the_lock_stays,
    two_commits_with_one_token_have_one_success,
    concurrent_commits_with_one_token_have_one_success,
    a_commit_after_expiry_is_refused,
    only_the_fetched_messages_are_removed,
    two_late_messages_come_next,
    an_empty_commit_removes_the_messages,
    the_commit_releases_the_lock,
    listed_activities_disappear_and_others_stay,
    only_the_exact_identity_is_cancelled,
    fifty_activities_are_cancelled_in_one_commit,
    unknown_cancelled_activities_are_ignored,
    an_activity_scheduled_and_cancelled_in_one_commit_is_not_queued,
    timers_become_visible_when_they_are_due,
    children_and_their_results_are_routed,
    a_failure_can_be_committed_over_a_broken_history,
    the_engine_version_is_read_back_unchanged,
    every_status_is_stored_with_output_and_time,
    an_execution_begins_as_running,
    name_and_version_are_updated_but_not_the_parent,
    a_large_turn_lands_whole,
    a_payload_above_the_limit_is_not_the_providers_business,
}

async fn a_duplicate_event_id_changes_nothing_and_keeps_the_lock(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    let before = image(&h, &["i"]).await;
    let turn = SampleTurn::of("i", 1)
        .event(2, events::custom_status(Some("never")))
        .event(3, events::kv_set("never", "seen"))
        .event(1, events::signalled("again"))
        .activity(activity("i", 2))
        .message(signal("j", "never"))
        .named("Never", "9.9.9")
        .status(ExecutionStatus::Completed, "never");
    expect_error(turn.commit(&h, &fetched.lock_token).await);
    assert_eq!(image(&h, &["i"]).await, before);
    assert_eq!(h.history("i").await.unwrap()[0].kind, events::started(), "the first event survives");
    assert!(h.next_turn().await.is_none(), "the instance is still locked");
    assert!(h.next_work().await.is_none());
}

async fn a_duplicate_event_id_within_the_delta_is_refused(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    let turn = SampleTurn::beginning("i", 1).event(2, events::scheduled()).event(2, events::scheduled());
    expect_error(turn.commit(&h, &fetched.lock_token).await);
    assert_eq!(h.history("i").await.unwrap(), []);
    assert!(h.admin().list_instances().await.unwrap().is_empty());
}

async fn event_id_zero_is_refused(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    let before = image(&h, &["i"]).await;
    let turn = SampleTurn::of("i", 1).event(2, events::scheduled()).event(0, events::scheduled());
    expect_error(turn.commit(&h, &fetched.lock_token).await);
    assert_eq!(image(&h, &["i"]).await, before);
}

async fn a_refused_commit_can_be_followed_by_a_right_one(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    expect_error(SampleTurn::of("i", 1).event(1, events::scheduled()).commit(&h, &fetched.lock_token).await);
    SampleTurn::of("i", 1).event(2, events::scheduled()).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.event_ids("i").await, [1, 2]);
    assert!(h.next_turn().await.is_none());
}

async fn events_activities_and_messages_all_land(h: CaseHarness) {
    let mut turn = SampleTurn::beginning("i", 1);
    for event_id in 2..=5 {
        turn = turn.event(event_id, events::scheduled());
    }
    for id in 2..=4 {
        turn = turn.activity(activity("i", id));
    }
    turn = turn.message(signal("i", "first")).message(signal("i", "second"));
    h.begin("i", turn).await;
    assert_eq!(h.event_ids("i").await, [1, 2, 3, 4, 5]);
    assert_eq!(h.drain_work().await, [2, 3, 4]);
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "first"), signal("i", "second")]);
}

async fn a_wrong_token_is_refused_and_the_lock_stays(h: CaseHarness) {
    h.send(start("i")).await;
    h.fetched_turn().await;
    let error = expect_lock_lost(SampleTurn::beginning("i", 1).commit(&h, "no such token").await);
    let text = error.to_string();
    assert!(text.contains("Invalid lock token") || text.contains("lock_token"), "{text}");
    assert!(h.next_turn().await.is_none());
    h.pass(PAST_LOCK);
    assert_eq!(h.fetched_turn().await.item.messages, [start("i")]);
}

async fn two_commits_with_one_token_have_one_success(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    expect_lock_lost(
        SampleTurn::of("i", 1).event(2, events::scheduled()).commit(&h, &fetched.lock_token).await,
    );
    assert_eq!(h.event_ids("i").await, [1]);
}

async fn concurrent_commits_with_one_token_have_one_success(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let token = h.fetched_turn().await.lock_token;
    let commits: Vec<_> = (2..10)
        .map(|event_id| {
            let (store, token) = (h.store(), token.clone());
            let turn =
                SampleTurn::of("i", 1).event(event_id, events::scheduled()).activity(activity("i", event_id));
            tokio::spawn(async move { turn.commit(&store, &token).await.is_ok() })
        })
        .collect();
    let mut successes = 0;
    for commit in commits {
        successes += usize::from(commit.await.unwrap());
    }
    assert_eq!(successes, 1);
    assert_eq!(h.history("i").await.unwrap().len(), 2);
    assert_eq!(h.drain_work().await.len(), 1);
}

async fn a_commit_after_expiry_is_refused(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.pass(PAST_LOCK);
    let before = image(&h, &["i"]).await;
    expect_lock_lost(
        SampleTurn::of("i", 1).event(2, events::scheduled()).commit(&h, &fetched.lock_token).await,
    );
    assert_eq!(image(&h, &["i"]).await, before);
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "a")]);
}

async fn only_the_fetched_messages_are_removed(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "late")).await;
    SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    let next = h.fetched_turn().await;
    assert_eq!(next.item.messages, [signal("i", "late")]);
    assert_eq!(next.attempt_count, 1);
}

async fn two_late_messages_come_next(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    h.send(signal("i", "late")).await;
    h.send(queue_message("i", "later")).await;
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "late"), queue_message("i", "later")]);
}

async fn an_empty_commit_removes_the_messages(h: CaseHarness) {
    h.create("i").await;
    h.turn("i", SampleTurn::of("i", 1)).await;
    assert!(h.next_turn().await.is_none());
    assert_eq!(h.messages_waiting().await, 0);
    assert_eq!(h.event_ids("i").await, [1]);
}

async fn the_commit_releases_the_lock(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).message(signal("i", "own"))).await;
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "own")]);
}

async fn listed_activities_disappear_and_others_stay(h: CaseHarness) {
    let mut turn = SampleTurn::beginning("i", 1);
    for id in 2..=5 {
        turn = turn.activity(activity("i", id));
    }
    h.begin("i", turn).await;
    h.turn("i", SampleTurn::of("i", 1).cancelling(3).cancelling(5)).await;
    assert_eq!(h.drain_work().await, [2, 4]);
}

async fn only_the_exact_identity_is_cancelled(h: CaseHarness) {
    h.create_with_executions("i", 2).await;
    let of_second_execution = WorkItem::ActivityExecute {
        instance: "i".to_owned(),
        execution_id: 2,
        id: 2,
        name: "Charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    h.queue(activity("i", 2)).await;
    h.queue(of_second_execution).await;
    h.queue(activity("j", 2)).await;
    h.turn("i", SampleTurn::of("i", 2).cancelling(2)).await;
    assert_eq!(h.fetched_work().await.item, activity("i", 2));
    assert_eq!(h.fetched_work().await.item, activity("j", 2));
    assert!(h.next_work().await.is_none());
}

async fn fifty_activities_are_cancelled_in_one_commit(h: CaseHarness) {
    let mut turn = SampleTurn::beginning("i", 1);
    for id in 2..=61 {
        turn = turn.activity(activity("i", id));
    }
    h.begin("i", turn).await;
    let mut turn = SampleTurn::of("i", 1);
    for id in 2..=51 {
        turn = turn.cancelling(id);
    }
    h.turn("i", turn).await;
    assert_eq!(h.drain_work().await, (52..=61).collect::<Vec<_>>());
}

async fn unknown_cancelled_activities_are_ignored(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).activity(activity("i", 2))).await;
    h.turn("i", SampleTurn::of("i", 1).cancelling(77).cancelling(78).event(3, events::scheduled())).await;
    h.turn("i", SampleTurn::of("i", 1).cancelling(77)).await;
    assert_eq!(h.event_ids("i").await, [1, 3]);
    assert_eq!(h.drain_work().await, [2]);
}

async fn an_activity_scheduled_and_cancelled_in_one_commit_is_not_queued(h: CaseHarness) {
    let turn =
        SampleTurn::beginning("i", 1).activity(activity("i", 2)).activity(activity("i", 3)).cancelling(2);
    h.begin("i", turn).await;
    assert_eq!(h.drain_work().await, [3]);
}

async fn timers_become_visible_when_they_are_due(h: CaseHarness) {
    let due = timer("i", 2, h.now_ms() + 10_000);
    let overdue = timer("i", 3, h.now_ms() - 10_000);
    h.begin("i", SampleTurn::beginning("i", 1).message(due.clone()).message(overdue.clone())).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [overdue]);
    SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert!(h.next_turn().await.is_none());
    h.pass(secs(9));
    assert!(h.next_turn().await.is_none());
    h.pass(secs(1));
    assert_eq!(h.fetched_turn().await.item.messages, [due]);
}

async fn children_and_their_results_are_routed(h: CaseHarness) {
    h.create("parent").await;
    h.turn("parent", SampleTurn::of("parent", 1).message(start_child("child", "parent"))).await;
    let turn = SampleTurn::beginning("child", 1)
        .parent("parent")
        .completing(2, "ok")
        .message(child_completed("parent"));
    h.take_turn("child", turn).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.instance, "parent");
    assert_eq!(fetched.item.messages, [child_completed("parent")]);
}

async fn a_failure_can_be_committed_over_a_broken_history(h: CaseHarness) {
    h.create("i").await;
    h.damage_event("i", 1, 1).await;
    h.turn("i", SampleTurn::of("i", 1).failing(99_999, "poisoned")).await;
    let info = h.admin().get_instance_info("i").await.unwrap();
    assert_eq!(info.status, "Failed");
    assert_eq!(info.output.as_deref(), Some("poisoned"));
}

async fn the_engine_version_is_read_back_unchanged(h: CaseHarness) {
    h.send(start("i")).await;
    let mut event = Event::stamped(1, "i", 1, None, 123_456, events::started());
    event.engine_version = "7.8.9-beta.1+build".to_owned();
    h.take_turn("i", SampleTurn::of("i", 1).recorded(event.clone()).named(NAME, VERSION)).await;
    assert_eq!(h.history("i").await.unwrap(), [event.clone()]);
    h.send(signal("i", "a")).await;
    assert_eq!(h.fetched_turn().await.item.history, [event]);
}

async fn every_status_is_stored_with_output_and_time(h: CaseHarness) {
    let endings = [
        ("a", SampleTurn::of("a", 1).completing(2, "out"), "Completed", "out"),
        ("b", SampleTurn::of("b", 1).failing(2, "boom"), "Failed", "boom"),
        ("c", SampleTurn::of("c", 1).continuing_as_new(2), "ContinuedAsNew", "next"),
    ];
    for (instance, turn, status, output) in endings {
        h.create(instance).await;
        let began = h.now_ms();
        h.pass(secs(3));
        h.turn(instance, turn).await;
        let info = h.admin().get_execution_info(instance, 1).await.unwrap();
        assert_eq!(info.status, status);
        assert_eq!(info.output.as_deref(), Some(output));
        assert_eq!(info.started_at, began);
        assert_eq!(info.completed_at, Some(began + 3_000));
        assert_eq!(info.event_count, 2);
        let info = h.admin().get_instance_info(instance).await.unwrap();
        assert_eq!((info.status.as_str(), info.output.as_deref()), (status, Some(output)));
        // The successor's start must not be in the way of the next one.
        while h.next_turn().await.is_some() {}
    }
}

async fn an_execution_begins_as_running(h: CaseHarness) {
    h.create("i").await;
    let info = h.admin().get_execution_info("i", 1).await.unwrap();
    assert_eq!(info.status, "Running");
    assert_eq!((info.output, info.completed_at), (None, None));
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().status, "Running");
}

async fn name_and_version_are_updated_but_not_the_parent(h: CaseHarness) {
    h.create("parent").await;
    h.create("other").await;
    h.create_child("child", "parent").await;
    h.turn("child", SampleTurn::of("child", 1).named("Renamed", "2.0.0").parent("other")).await;
    let info = h.admin().get_instance_info("child").await.unwrap();
    assert_eq!((info.orchestration_name.as_str(), info.orchestration_version.as_str()), ("Renamed", "2.0.0"));
    assert_eq!(info.parent_instance_id.as_deref(), Some("parent"));
}

async fn a_large_turn_lands_whole(h: CaseHarness) {
    let mut turn = SampleTurn::beginning("i", 1);
    for id in 2..=500 {
        turn = turn
            .event(id, events::scheduled())
            .activity(activity("i", id))
            .message(activity_completed("i", id));
    }
    h.begin("i", turn).await;
    assert_eq!(h.event_ids("i").await, (1..=500).collect::<Vec<_>>());
    assert_eq!(h.activities_waiting().await, 499);
    assert_eq!(h.fetched_turn().await.item.messages.len(), 499);
}

async fn a_payload_above_the_limit_is_not_the_providers_business(h: CaseHarness) {
    let large = "x".repeat(h.limits().payload_bytes_max.min(9 * 1024 * 1024) + 1);
    h.begin("i", SampleTurn::beginning("i", 1).completing(2, &large)).await;
    assert_eq!(h.history("i").await.unwrap()[1].kind, events::completed(&large));
    h.send(queue_message("i", &large)).await;
    assert_eq!(h.fetched_turn().await.item.messages, [queue_message("i", &large)]);
}
