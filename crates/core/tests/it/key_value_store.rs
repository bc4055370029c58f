//! The key-value store of an instance.

use everturn_core::EventKind;
use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, STARTED_MS, activity_completed, activity_failed, outcome_of, summarize};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

#[test]
fn writes_are_seen_at_once_and_recorded() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("b", "1");
        ctx.set_kv_value("a", "2");
        ctx.set_kv_value("b", "3");
        let mut all: Vec<_> = ctx.get_kv_all_values().into_iter().collect();
        all.sort();
        Ok(format!("{:?} {:?} {} {all:?}", ctx.get_kv_value("b"), ctx.get_kv_all_keys(), ctx.get_kv_length()))
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, completed(r#"Some("3") ["a", "b"] 2 [("a", "2"), ("b", "3")]"#));
    assert_eq!(summarize(&turn.history_delta)[1..4], ["2 set b=1", "3 set a=2", "4 set b=3"]);
}

#[test]
fn clears_are_seen_at_once_and_recorded() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("a", "1");
        ctx.set_kv_value("b", "1");
        ctx.clear_kv_value("a");
        ctx.clear_kv_value("unknown");
        let after_one = ctx.get_kv_all_keys();
        ctx.clear_all_kv_values();
        Ok(format!("{after_one:?} {}", ctx.get_kv_length()))
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, completed("[\"b\"] 0"));
    assert_eq!(summarize(&turn.history_delta)[3..6], ["4 clear a", "5 clear unknown", "6 clear-all"]);
}

#[test]
fn empty_keys_and_values_are_legal() {
    let outcome = outcome_of(|ctx, _| async move {
        ctx.set_kv_value("", "");
        Ok(format!("{:?} {}", ctx.get_kv_value(""), ctx.get_kv_length()))
    });
    assert_eq!(outcome, completed("Some(\"\") 1"));
}

#[test]
fn read_modify_write_is_the_same_warm_and_cold() {
    let mut harness = Harness::new(|ctx, _| async move {
        for _ in 0..3 {
            let n: u64 = ctx.get_kv_value_typed("n")?.unwrap_or_default();
            ctx.set_kv_value_typed("n", &(n + 1));
            ctx.schedule_activity("A", n.to_string()).await?;
        }
        Ok(ctx.get_kv_value("n").unwrap_or_default())
    })
    .kv([("n", "10", 1)]);
    assert_eq!(summarize(&harness.turn([]).history_delta)[1..], ["2 set n=11", "3 activity A 10"]);
    assert_eq!(
        summarize(&harness.turn([activity_completed(3, "")]).history_delta)[1..],
        ["5 set n=12", "6 activity A 11"]
    );
    assert_eq!(
        summarize(&harness.turn([activity_completed(6, "")]).history_delta)[1..],
        ["8 set n=13", "9 activity A 12"]
    );
    assert_eq!(harness.turn([activity_completed(9, "")]).outcome, completed("13"));
}

#[test]
fn state_begins_with_what_earlier_executions_left() {
    let mut harness = Harness::new(|ctx, _| async move {
        Ok(format!("{:?} {:?}", ctx.get_kv_all_keys(), ctx.get_kv_value("x")))
    })
    .kv([("y", "2", 1), ("x", "1", 1)]);
    assert_eq!(harness.turn([]).outcome, completed(r#"["x", "y"] Some("1")"#));
}

#[test]
fn typed_read_of_what_does_not_fit_names_the_key() {
    let outcome = outcome_of(|ctx, _| async move {
        ctx.set_kv_value("k", "abc");
        let missing: Option<u8> = ctx.get_kv_value_typed("none")?;
        let error = ctx.get_kv_value_typed::<u8>("k").unwrap_err();
        Ok(format!("{missing:?} {error}"))
    });
    let TurnOutcome::Completed { output } = outcome else { panic!("{outcome:?}") };
    assert!(output.starts_with("None KV deserialization error for key 'k': "), "{output}");
}

/// The recorded time of each write.
fn write_times(harness: &Harness) -> Vec<(String, u64)> {
    let times = harness.history().iter().filter_map(|event| match &event.kind {
        EventKind::KeyValueSet { key, last_updated_at_ms, .. } => Some((key.clone(), *last_updated_at_ms)),
        _ => None,
    });
    times.collect()
}

#[test]
fn write_carries_the_time_of_the_last_applied_event() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("first poll", "");
        ctx.schedule_activity("A", "").await?;
        ctx.set_kv_value("after A", "");
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([]);
    harness.turn([activity_completed(3, "")]);
    let completion = harness.history().iter().find(|event| event.event_id == 4).unwrap();
    assert_eq!(completion.timestamp_ms, 2_000_000);
    assert_eq!(
        write_times(&harness),
        [("first poll".to_owned(), STARTED_MS), ("after A".to_owned(), 2_000_000)]
    );
}

#[test]
fn write_after_a_read_from_a_queue_carries_the_time_of_the_subscription() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.dequeue_event("q").await;
        ctx.set_kv_value("k", "");
        Ok(ctx.schedule_wait("w").await)
    });
    harness.turn([crate::harness::queue_message("q", "")]);
    let subscribed = harness.history().iter().find(|event| event.event_id == 3).unwrap();
    assert!(matches!(subscribed.kind, EventKind::QueueSubscribed { .. }));
    assert_eq!(write_times(&harness), [("k".to_owned(), subscribed.timestamp_ms)]);
}

#[test]
fn prune_clears_older_keys_in_order_and_counts_them() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("written now", "");
        let pruned = ctx.prune_kv_values_updated_before(STARTED_MS);
        Ok(format!("{pruned} {:?}", ctx.get_kv_all_keys()))
    })
    .kv([("z", "", 1), ("a", "", 6), ("edge", "", STARTED_MS), ("young", "", 99)]);
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, completed(r#"2 ["edge", "written now", "young"]"#));
    assert_eq!(summarize(&turn.history_delta)[2..4], ["3 clear a", "4 clear z"]);
}

#[test]
fn prune_reaches_keys_of_the_current_turn() {
    let outcome = outcome_of(|ctx, _| async move {
        ctx.set_kv_value("k", "");
        Ok(ctx.prune_kv_values_updated_before(u64::MAX).to_string())
    });
    assert_eq!(outcome, completed("1"));
}

#[test]
fn prune_by_age_decides_the_same_on_replay() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("old", "");
        ctx.schedule_activity("A", "").await?;
        ctx.set_kv_value("new", "");
        let pruned = ctx.prune_kv_values_updated_before(2_000_000);
        ctx.schedule_activity("B", pruned.to_string()).await?;
        Ok(format!("{:?}", ctx.get_kv_all_keys()))
    });
    harness.turn([]);
    let summary = summarize(&harness.turn([activity_completed(3, "")]).history_delta);
    assert_eq!(summary[1..], ["5 set new=", "6 clear old", "7 activity B 1"]);
    assert_eq!(harness.turn([activity_completed(7, "")]).outcome, completed("[\"new\"]"));
}

#[test]
fn read_of_another_instance_is_a_recorded_system_call() {
    let mut harness = Harness::new(|ctx, _| async move {
        let there = ctx.get_kv_value_from_instance("other", "k").await?;
        let absent = ctx.get_kv_value_from_instance("other", "none").await?;
        let typed: Option<u32> = ctx.get_kv_value_from_instance_typed("other", "n").await?;
        Ok(format!("{there:?} {absent:?} {typed:?}"))
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta)[1],
        r#"2 activity __everturn_syscall:get_kv_value {"instance_id":"other","key":"k"}"#
    );
    harness.turn([activity_completed(2, "\"v\"")]);
    harness.turn([activity_completed(4, "null")]);
    assert_eq!(harness.turn([activity_completed(6, "\"5\"")]).outcome, completed("Some(\"v\") None Some(5)"));
}

#[test]
fn failed_read_of_another_instance_is_an_error() {
    let mut harness = Harness::new(|ctx, _| async move {
        Ok(format!("{:?}", ctx.get_kv_value_from_instance("other", "k").await))
    });
    harness.turn([]);
    assert_eq!(harness.turn([activity_failed(2, "gone")]).outcome, completed("Err(\"gone\")"));
}

#[test]
fn typed_read_of_another_instance_that_does_not_fit_is_an_error() {
    let mut harness = Harness::new(|ctx, _| async move {
        Ok(ctx.get_kv_value_from_instance_typed::<u8>("other", "k").await.unwrap_err())
    });
    harness.turn([]);
    let TurnOutcome::Completed { output } = harness.turn([activity_completed(2, "\"abc\"")]).outcome else {
        panic!()
    };
    assert!(output.contains("KV deserialization error for key 'k'"), "{output}");
}

#[test]
fn replay_compares_key_and_value_but_not_the_time() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("k", "v");
        ctx.schedule_activity("A", "").await
    });
    harness.turn([]);
    let mut history = harness.history().to_vec();
    for event in &mut history {
        if let EventKind::KeyValueSet { last_updated_at_ms, .. } = &mut event.kind {
            *last_updated_at_ms = 0;
        }
    }
    let mut replayed = Harness::resumed(history, |ctx, _| async move {
        ctx.set_kv_value("k", "v");
        ctx.schedule_activity("A", "").await
    });
    assert_eq!(replayed.turn([activity_completed(3, "ok")]).outcome, completed("ok"));
}
