//! A dispatcher gets only executions that it can replay.

use everturn_core::SemverRange;
use everturn_provider::DispatcherCapabilityFilter;
use semver::Version;

use crate::events;
use crate::harness::CaseHarness;
use crate::items::{signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ capability_filter as capability_filter_cases:
    without_a_filter_any_pin_comes,
    a_pin_inside_the_range_comes_and_outside_it_does_not,
    both_bounds_are_inclusive,
    an_unpinned_execution_passes_any_filter,
    an_older_incompatible_instance_is_passed_over_and_stays_unlocked,
    an_empty_list_gives_none,
    only_the_first_range_counts,
    commits_without_a_pin_keep_it,
    a_pin_may_arrive_later_and_a_second_one_overwrites,
    a_successor_uses_its_own_pin,
    concurrent_filtered_fetches_lock_each_instance_once,
    an_excluded_instance_with_broken_history_gives_none,
    being_passed_over_is_no_attempt,
    many_incompatible_instances_starve_no_other,
}

fn version(major: u64, minor: u64) -> Version {
    Version::new(major, minor, 0)
}

fn filter(min: Version, max: Version) -> DispatcherCapabilityFilter {
    DispatcherCapabilityFilter { supported_engine_versions: vec![SemverRange::new(min, max)] }
}

/// Everything of major version 1.
fn ones() -> DispatcherCapabilityFilter {
    filter(version(1, 0), Version::new(1, 99, 99))
}

/// A running instance that is pinned, with a message waiting.
async fn pinned(h: &CaseHarness, instance: &str, pin: Version) {
    h.begin(instance, SampleTurn::beginning(instance, 1).pinned(pin)).await;
    h.send(signal(instance, "go")).await;
}

async fn without_a_filter_any_pin_comes(h: CaseHarness) {
    pinned(&h, "i", version(99, 0)).await;
    assert_eq!(h.fetched_turn().await.item.instance, "i");
}

async fn a_pin_inside_the_range_comes_and_outside_it_does_not(h: CaseHarness) {
    pinned(&h, "i", version(1, 5)).await;
    assert!(h.next_turn_filtered(&filter(version(2, 0), version(3, 0))).await.is_none());
    assert!(h.next_turn_filtered(&filter(version(0, 1), version(1, 4))).await.is_none());
    assert_eq!(h.next_turn_filtered(&ones()).await.unwrap().item.instance, "i");
}

async fn both_bounds_are_inclusive(h: CaseHarness) {
    for pin in [Version::new(1, 2, 3), Version::new(1, 4, 0)] {
        let instance = pin.to_string();
        pinned(&h, &instance, pin).await;
        let bounds = filter(Version::new(1, 2, 3), Version::new(1, 4, 0));
        assert_eq!(h.next_turn_filtered(&bounds).await.unwrap().item.instance, instance);
    }
    for pin in [Version::new(1, 2, 2), Version::new(1, 4, 1), Version::new(1, 10, 0)] {
        let instance = pin.to_string();
        h.begin(&instance, SampleTurn::beginning(&instance, 1).pinned(pin)).await;
        h.send(signal(&instance, "go")).await;
        let bounds = filter(Version::new(1, 2, 3), Version::new(1, 4, 0));
        assert!(h.next_turn_filtered(&bounds).await.is_none(), "{instance} is outside");
        assert_eq!(h.fetched_turn().await.item.instance, instance);
    }
}

async fn an_unpinned_execution_passes_any_filter(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "go")).await;
    assert_eq!(h.next_turn_filtered(&ones()).await.unwrap().item.instance, "i");
    h.send(start("new")).await;
    assert_eq!(h.next_turn_filtered(&ones()).await.unwrap().item.instance, "new");
}

async fn an_older_incompatible_instance_is_passed_over_and_stays_unlocked(h: CaseHarness) {
    h.begin("old", SampleTurn::beginning("old", 1).pinned(version(0, 1))).await;
    h.begin("new", SampleTurn::beginning("new", 1).pinned(version(1, 1))).await;
    h.send(signal("old", "go")).await;
    h.send(signal("new", "go")).await;
    assert_eq!(h.next_turn_filtered(&ones()).await.unwrap().item.instance, "new");
    assert!(h.next_turn_filtered(&ones()).await.is_none());
    assert_eq!(h.fetched_turn().await.item.instance, "old");
}

async fn an_empty_list_gives_none(h: CaseHarness) {
    pinned(&h, "i", version(1, 0)).await;
    let nothing = DispatcherCapabilityFilter { supported_engine_versions: Vec::new() };
    assert!(h.next_turn_filtered(&nothing).await.is_none());
    assert!(!nothing.is_compatible(&version(1, 0)), "the filter itself says so");
    assert!(h.next_turn().await.is_some());
}

async fn only_the_first_range_counts(h: CaseHarness) {
    pinned(&h, "i", version(2, 5)).await;
    let two = DispatcherCapabilityFilter {
        supported_engine_versions: vec![
            SemverRange::new(version(1, 0), version(1, 9)),
            SemverRange::new(version(2, 0), version(2, 9)),
        ],
    };
    assert!(h.next_turn_filtered(&two).await.is_none());
    assert!(
        !two.is_compatible(&version(2, 5)) && two.is_compatible(&version(1, 5)),
        "the filter itself says so"
    );
}

async fn commits_without_a_pin_keep_it(h: CaseHarness) {
    pinned(&h, "i", version(2, 0)).await;
    h.take_turn("i", SampleTurn::of("i", 1).event(2, events::scheduled())).await;
    h.send(signal("i", "go")).await;
    assert!(h.next_turn_filtered(&ones()).await.is_none());
    assert!(h.next_turn().await.is_some());
}

async fn a_pin_may_arrive_later_and_a_second_one_overwrites(h: CaseHarness) {
    h.create("i").await;
    h.turn("i", SampleTurn::of("i", 1).pinned(version(2, 0))).await;
    h.send(signal("i", "go")).await;
    assert!(h.next_turn_filtered(&ones()).await.is_none());
    h.take_turn("i", SampleTurn::of("i", 1).pinned(version(1, 0))).await;
    h.send(signal("i", "go")).await;
    assert!(h.next_turn_filtered(&ones()).await.is_some());
}

async fn a_successor_uses_its_own_pin(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).pinned(version(1, 0)).continuing_as_new(2)).await;
    h.take_turn("i", SampleTurn::beginning("i", 2).pinned(version(2, 0))).await;
    h.send(signal("i", "go")).await;
    assert!(h.next_turn_filtered(&ones()).await.is_none());
    let twos = filter(version(2, 0), version(2, 9));
    assert_eq!(h.next_turn_filtered(&twos).await.unwrap().item.execution_id, 2);
}

async fn concurrent_filtered_fetches_lock_each_instance_once(h: CaseHarness) {
    for n in 0..5 {
        let instance = format!("i{n}");
        h.begin(&instance, SampleTurn::beginning(&instance, 1).pinned(version(1, n))).await;
    }
    for n in 0..5 {
        h.send(signal(&format!("i{n}"), "go")).await;
    }
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let store = h.store();
        tasks.push(tokio::spawn(async move { store.next_turn_filtered(&ones()).await }));
    }
    let mut instances = Vec::new();
    for task in tasks {
        instances.extend(task.await.unwrap().map(|turn| turn.item.instance));
    }
    instances.sort();
    assert_eq!(instances, ["i0", "i1", "i2", "i3", "i4"]);
}

async fn an_excluded_instance_with_broken_history_gives_none(h: CaseHarness) {
    pinned(&h, "i", version(2, 0)).await;
    h.damage_event("i", 1, 1).await;
    assert!(h.next_turn_filtered(&ones()).await.is_none());
    let fetched = h.fetched_turn().await;
    assert!(fetched.item.history_error.is_some());
    assert_eq!(fetched.attempt_count, 1);
}

async fn being_passed_over_is_no_attempt(h: CaseHarness) {
    pinned(&h, "i", version(2, 0)).await;
    for _ in 0..5 {
        assert!(h.next_turn_filtered(&ones()).await.is_none());
    }
    assert_eq!(h.fetched_turn().await.attempt_count, 1);
}

async fn many_incompatible_instances_starve_no_other(h: CaseHarness) {
    for n in 0..150 {
        let instance = format!("old {n}");
        h.begin(&instance, SampleTurn::beginning(&instance, 1).pinned(version(0, 1))).await;
    }
    for n in 0..150 {
        h.send(signal(&format!("old {n}"), "go")).await;
    }
    h.send(start("new")).await;
    assert_eq!(h.next_turn_filtered(&ones()).await.unwrap().item.instance, "new");
}
