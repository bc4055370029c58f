//! `fetch_turns` locks the instances with the oldest messages and returns everything that their turns need.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everturn_core::{Event, WorkItem};
use everturn_provider::store::{FetchedTurn, TurnFetch};

use crate::events;
use crate::harness::{CaseHarness, LOCK, PAST_LOCK, secs};
use crate::items::{
    NAME, VERSION, activity_completed, signal, start, start_child, start_without_version, timer,
};
use crate::sample_turn::SampleTurn;

cases! { $ fetch_turns as fetch_turns_cases:
    an_empty_store_gives_none,
    a_start_is_fetchable_although_no_instance_exists,
    a_start_without_version_is_fetchable,
    the_instance_exists_only_after_a_commit,
    the_version_is_the_metadatas_not_the_starts,
    a_child_is_created_only_by_its_own_commit,
    ten_instances_fetched_concurrently_come_once_each,
    many_tasks_on_one_instance_have_one_winner,
    forty_tasks_over_twenty_instances_get_none_twice,
    messages_arriving_under_lock_come_later_in_order,
    a_lock_on_one_instance_never_blocks_another,
    the_oldest_visible_message_decides_which_instance_comes,
    all_visible_messages_come_in_insertion_order,
    messages_tagged_by_an_expired_lock_come_again_with_newer_ones,
    a_delayed_timer_is_invisible_until_due,
    a_delayed_message_does_not_come_with_visible_ones,
    the_history_is_that_of_the_current_execution_ordered_by_id,
    the_full_history_comes_with_every_fetch,
    never_more_instances_come_than_were_asked_for,
    one_ready_instance_is_enough_for_a_fetch_of_many,
    a_fetch_of_many_takes_the_oldest_first,
    each_instance_of_a_batch_has_its_own_token_and_messages,
    an_instance_that_was_fetched_before_comes_alone,
    instances_of_a_batch_are_released_and_expire_one_by_one,
    lock_left_is_at_most_the_lock_timeout_and_not_zero,
}

async fn an_empty_store_gives_none(h: CaseHarness) {
    assert!(h.next_turn().await.is_none());
}

async fn a_start_is_fetchable_although_no_instance_exists(h: CaseHarness) {
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.instance, "i");
    assert_eq!(fetched.item.orchestration_name, NAME);
    assert_eq!(fetched.item.version, VERSION);
    assert_eq!(fetched.item.execution_id, 1);
    assert_eq!(fetched.item.history, []);
    assert_eq!(fetched.item.messages, [start("i")]);
    assert_eq!(fetched.item.history_error, None);
    assert!(fetched.item.kv_snapshot.is_empty());
    assert_eq!(fetched.attempt_count, 1);
}

async fn a_start_without_version_is_fetchable(h: CaseHarness) {
    h.send(start_without_version("i")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.orchestration_name, NAME);
    assert_eq!(fetched.item.version, "unknown");
    assert_eq!(fetched.item.messages, [start_without_version("i")]);
}

async fn the_instance_exists_only_after_a_commit(h: CaseHarness) {
    h.send(start("i")).await;
    assert!(h.admin().list_instances().await.unwrap().is_empty());
    let fetched = h.fetched_turn().await;
    assert!(h.admin().list_instances().await.unwrap().is_empty());
    SampleTurn::beginning("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.admin().list_instances().await.unwrap(), ["i"]);
}

async fn the_version_is_the_metadatas_not_the_starts(h: CaseHarness) {
    h.send(start("i")).await;
    let turn =
        SampleTurn::of("i", 1).event(1, events::started_as("Renamed", "3.2.1")).named("Renamed", "3.2.1");
    h.take_turn("i", turn).await;
    assert_eq!(h.admin().get_instance_info("i").await.unwrap().orchestration_version, "3.2.1");
    h.send(signal("i", "a")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.version, "3.2.1");
    assert_eq!(fetched.item.orchestration_name, "Renamed");
}

async fn a_child_is_created_only_by_its_own_commit(h: CaseHarness) {
    h.begin("parent", SampleTurn::beginning("parent", 1).message(start_child("child", "parent"))).await;
    assert_eq!(h.admin().list_instances().await.unwrap(), ["parent"]);
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.instance, "child");
    assert_eq!(fetched.item.messages, [start_child("child", "parent")]);
    SampleTurn::beginning("child", 1).parent("parent").commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.admin().list_instances().await.unwrap(), ["child", "parent"]);
    assert_eq!(h.admin().list_children("parent").await.unwrap(), ["child"]);
}

/// Fetches once in each of so many tasks, and counts how often each instance came.
async fn fetch_in_tasks(h: &CaseHarness, tasks: usize) -> BTreeMap<String, usize> {
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let store = h.store();
            tokio::spawn(async move { store.next_turn().await })
        })
        .collect();
    let mut times = BTreeMap::new();
    for task in tasks {
        if let Some(turn) = task.await.unwrap() {
            *times.entry(turn.item.instance).or_default() += 1;
        }
    }
    times
}

async fn ten_instances_fetched_concurrently_come_once_each(h: CaseHarness) {
    for n in 0..10 {
        h.send(start(&format!("i{n}"))).await;
    }
    let times = fetch_in_tasks(&h, 10).await;
    let expected: BTreeMap<_, _> = (0..10).map(|n| (format!("i{n}"), 1)).collect();
    assert_eq!(times, expected);
}

async fn many_tasks_on_one_instance_have_one_winner(h: CaseHarness) {
    for name in ["a", "b", "c"] {
        h.send(signal("i", name)).await;
    }
    h.send(start("i")).await;
    assert_eq!(fetch_in_tasks(&h, 20).await, BTreeMap::from([("i".to_owned(), 1)]));
}

async fn forty_tasks_over_twenty_instances_get_none_twice(h: CaseHarness) {
    for n in 0..20 {
        h.send(start(&format!("i{n:02}"))).await;
    }
    let times = fetch_in_tasks(&h, 40).await;
    let expected: BTreeMap<_, _> = (0..20).map(|n| (format!("i{n:02}"), 1)).collect();
    assert_eq!(times, expected);
}

async fn messages_arriving_under_lock_come_later_in_order(h: CaseHarness) {
    h.send(start("i")).await;
    let first = h.fetched_turn().await;
    for name in ["a", "b", "c"] {
        h.send(signal("i", name)).await;
        assert!(h.next_turn().await.is_none(), "the instance is locked");
    }
    h.release_turn(&first.lock_token, None, false).await.unwrap();
    let messages = h.fetched_turn().await.item.messages;
    assert_eq!(messages, [start("i"), signal("i", "a"), signal("i", "b"), signal("i", "c")]);
}

async fn a_lock_on_one_instance_never_blocks_another(h: CaseHarness) {
    h.send(start("a")).await;
    h.send(start("b")).await;
    assert_eq!(h.fetched_turn().await.item.instance, "a");
    h.send(signal("a", "waits")).await;
    let b = h.fetched_turn().await;
    assert_eq!(b.item.instance, "b");
    SampleTurn::beginning("b", 1).commit(&h, &b.lock_token).await.unwrap();
    h.send(signal("b", "later")).await;
    let b = h.fetched_turn().await;
    assert_eq!(b.item.messages, [signal("b", "later")]);
    assert!(h.next_turn().await.is_none());
}

async fn the_oldest_visible_message_decides_which_instance_comes(h: CaseHarness) {
    for instance in ["z", "m", "a"] {
        h.send(start(instance)).await;
    }
    h.send(signal("z", "more")).await;
    for instance in ["z", "m", "a"] {
        assert_eq!(h.fetched_turn().await.item.instance, instance);
    }
}

async fn all_visible_messages_come_in_insertion_order(h: CaseHarness) {
    h.create("i").await;
    let sent: Vec<WorkItem> = (0..25).map(|n| signal("i", &format!("signal {n}"))).collect();
    for item in &sent {
        h.send(item.clone()).await;
    }
    assert_eq!(h.fetched_turn().await.item.messages, sent);
}

async fn messages_tagged_by_an_expired_lock_come_again_with_newer_ones(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    h.fetched_turn().await;
    h.send(signal("i", "b")).await;
    h.pass(PAST_LOCK);
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [signal("i", "a"), signal("i", "b")]);
    SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert!(h.next_turn().await.is_none());
    assert_eq!(h.messages_waiting().await, 0);
}

async fn a_delayed_timer_is_invisible_until_due(h: CaseHarness) {
    h.create("i").await;
    let due = timer("i", 2, h.now_ms() + 5_000);
    h.send_later(due.clone(), secs(5)).await;
    assert!(h.next_turn().await.is_none());
    h.pass(Duration::from_millis(4_999));
    assert!(h.next_turn().await.is_none());
    h.pass(Duration::from_millis(2));
    assert_eq!(h.fetched_turn().await.item.messages, [due]);
}

async fn a_delayed_message_does_not_come_with_visible_ones(h: CaseHarness) {
    h.create("i").await;
    h.send_later(signal("i", "late"), secs(5)).await;
    h.send(signal("i", "now")).await;
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [signal("i", "now")]);
    h.pass(secs(6));
    SampleTurn::of("i", 1).commit(&h, &fetched.lock_token).await.unwrap();
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "late")]);
}

async fn the_history_is_that_of_the_current_execution_ordered_by_id(h: CaseHarness) {
    h.create_with_executions("i", 2).await;
    let late = Event::stamped(5, "i", 2, None, 1, events::signalled("late"));
    let early = Event::stamped(3, "i", 2, None, 1, events::signalled("early"));
    h.append_events("i", 2, vec![late]).await.unwrap();
    h.append_events("i", 2, vec![early]).await.unwrap();
    h.send(signal("i", "go")).await;
    let item = h.fetched_turn().await.item;
    assert_eq!(item.execution_id, 2);
    let ids: Vec<_> = item.history.iter().map(|event| (event.execution_id, event.event_id)).collect();
    assert_eq!(ids, [(2, 1), (2, 3), (2, 5)]);
}

async fn the_full_history_comes_with_every_fetch(h: CaseHarness) {
    h.create("i").await;
    for event_id in 2..=6 {
        h.turn("i", SampleTurn::of("i", 1).event(event_id, events::scheduled())).await;
    }
    h.send(activity_completed("i", 6)).await;
    let item = h.fetched_turn().await.item;
    assert_eq!(item.history, h.history("i").await.unwrap());
    assert_eq!(item.history.len(), 6);
    assert_eq!(item.messages, [activity_completed("i", 6)]);
}

/// Asks for up to so many instances.
async fn fetch_batch(h: &CaseHarness, turns_max: usize) -> Vec<FetchedTurn> {
    let fetch = TurnFetch::new(LOCK, Duration::ZERO).with_turns_max(turns_max);
    let turns = h.fetch_turns(&fetch).await.unwrap();
    assert!(turns.len() <= turns_max, "{} turns came although {turns_max} were asked for", turns.len());
    turns
}

/// Fetches in batches until nothing comes.
async fn drain_in_batches(h: &CaseHarness, turns_max: usize) -> Vec<FetchedTurn> {
    let mut all = Vec::new();
    loop {
        let turns = fetch_batch(h, turns_max).await;
        if turns.is_empty() {
            return all;
        }
        all.extend(turns);
    }
}

async fn never_more_instances_come_than_were_asked_for(h: CaseHarness) {
    for n in 0..10 {
        h.send(start(&format!("i{n}"))).await;
    }
    let turns = drain_in_batches(&h, 3).await;
    let instances: BTreeSet<_> = turns.iter().map(|turn| turn.item.instance.clone()).collect();
    let tokens: BTreeSet<_> = turns.iter().map(|turn| turn.lock_token.clone()).collect();
    assert_eq!((turns.len(), instances.len(), tokens.len()), (10, 10, 10), "each once, with its own token");
}

async fn one_ready_instance_is_enough_for_a_fetch_of_many(h: CaseHarness) {
    assert!(fetch_batch(&h, 50).await.is_empty());
    h.send(start("locked")).await;
    h.fetched_turn().await;
    h.send_later(start("late"), secs(5)).await;
    h.send(start("ready")).await;
    let turns = fetch_batch(&h, 50).await;
    assert_eq!(turns.len(), 1, "the others are locked or not visible");
    assert_eq!(turns[0].item.instance, "ready");
}

async fn a_fetch_of_many_takes_the_oldest_first(h: CaseHarness) {
    for instance in ["z", "m", "a", "k"] {
        h.send(start(instance)).await;
    }
    h.send(signal("z", "more")).await;
    let instances: Vec<_> =
        drain_in_batches(&h, 2).await.into_iter().map(|turn| turn.item.instance).collect();
    assert_eq!(instances, ["z", "m", "a", "k"]);
}

async fn each_instance_of_a_batch_has_its_own_token_and_messages(h: CaseHarness) {
    for instance in ["a", "b", "c"] {
        h.create(instance).await;
        h.turn(instance, SampleTurn::of(instance, 1).event(2, events::signalled(instance))).await;
    }
    for instance in ["a", "b", "c"] {
        h.send(signal(instance, instance)).await;
    }
    let turns = drain_in_batches(&h, 3).await;
    for turn in turns.iter().rev() {
        let instance = turn.item.instance.as_str();
        assert_eq!(turn.item.messages, [signal(instance, instance)]);
        assert_eq!(turn.item.history, h.history(instance).await.unwrap());
        assert_eq!(turn.attempt_count, 1);
        let draft = SampleTurn::of(instance, 1).event(3, events::scheduled());
        draft.commit(&h, &turn.lock_token).await.unwrap();
        assert_eq!(h.event_ids(instance).await, [1, 2, 3]);
    }
    assert_eq!((turns.len(), h.messages_waiting().await), (3, 0));
}

async fn an_instance_that_was_fetched_before_comes_alone(h: CaseHarness) {
    for instance in ["a", "b", "c"] {
        h.send(start(instance)).await;
    }
    let turns = drain_in_batches(&h, 3).await;
    h.release_turn(&turns[0].lock_token, None, true).await.unwrap();
    // The process that has the others ends: their locks expire, the attempts count.
    h.pass(PAST_LOCK);
    for instance in ["d", "e"] {
        h.send(start(instance)).await;
    }
    let mut instances = Vec::new();
    loop {
        let turns = fetch_batch(&h, 3).await;
        let Some(most) = turns.iter().map(|turn| turn.attempt_count).max() else { break };
        assert!(most == 1 || turns.len() == 1, "{} turns come with one at attempt {most}", turns.len());
        instances.extend(turns.into_iter().map(|turn| turn.item.instance));
    }
    assert_eq!(instances, ["a", "b", "c", "d", "e"]);
}

async fn instances_of_a_batch_are_released_and_expire_one_by_one(h: CaseHarness) {
    for instance in ["a", "b", "c"] {
        h.send(start(instance)).await;
    }
    let turns = drain_in_batches(&h, 3).await;
    h.release_turn(&turns[1].lock_token, None, true).await.unwrap();
    let again = h.fetched_turn().await;
    assert_eq!((again.item.instance.as_str(), again.attempt_count), ("b", 1), "only b was released");
    assert!(h.next_turn().await.is_none());
    SampleTurn::beginning("b", 1).commit(&h, &again.lock_token).await.unwrap();
    h.renew_turn(&turns[2].lock_token, 3 * LOCK).await.unwrap();
    h.pass(PAST_LOCK);
    let expired = h.fetched_turn().await;
    assert_eq!((expired.item.instance.as_str(), expired.attempt_count), ("a", 2), "c was renewed");
    assert!(h.next_turn().await.is_none());
    SampleTurn::beginning("c", 1).commit(&h, &turns[2].lock_token).await.unwrap();
}

async fn lock_left_is_at_most_the_lock_timeout_and_not_zero(h: CaseHarness) {
    for n in 0..5 {
        h.send(start(&format!("i{n}"))).await;
    }
    for lock in [secs(30), secs(7)] {
        for turn in h.fetch_turns(&TurnFetch::new(lock, secs(1)).with_turns_max(2)).await.unwrap() {
            assert!(!turn.lock_left.is_zero() && turn.lock_left <= lock, "{:?} of {lock:?}", turn.lock_left);
        }
    }
}
