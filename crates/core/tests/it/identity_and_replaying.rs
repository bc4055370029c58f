//! What the context says about its orchestration, and `is_replaying`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, activity_completed, signal, timer_fired};

#[test]
fn context_knows_its_orchestration() {
    let mut harness = Harness::new(|ctx, input| async move {
        Ok(format!(
            "{} {} {} {} {input}",
            ctx.instance_id(),
            ctx.execution_id(),
            ctx.orchestration_name(),
            ctx.orchestration_version()
        ))
    })
    .execution(4);
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Completed { output: "order 4 Ship 1.2.0 in".into() });
}

#[test]
fn logging_is_never_called_enabled() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.is_logging_enabled().to_string()) });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Completed { output: "false".into() });
}

#[test]
fn statistics_are_a_stub() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(format!("{:?}", ctx.get_system_stats())) });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Completed { output: "None".into() });
}

/// Places in the code, and whether it was replaying there.
type Notes = Arc<Mutex<Vec<(&'static str, bool)>>>;

/// Code that notes `is_replaying` at each of these places.
fn watched() -> (Harness, Notes) {
    let notes = Notes::default();
    let shared = Arc::clone(&notes);
    let harness = Harness::new(move |ctx, _| {
        let notes = Arc::clone(&shared);
        async move {
            let note = |station| notes.lock().unwrap().push((station, ctx.is_replaying()));
            note("begin");
            let first = async {
                ctx.schedule_activity("A", "").await.unwrap();
                note("after A");
            };
            let second = async {
                ctx.schedule_activity("B", "").await.unwrap();
                note("after B");
            };
            ctx.join2(first, second).await;
            ctx.schedule_timer(Duration::ZERO).await;
            note("after timer");
            ctx.schedule_wait("end").await;
            note("after wait");
            Ok(String::new())
        }
    });
    (harness, notes)
}

#[test]
fn first_turn_is_never_replaying() {
    let (harness, notes) = watched();
    harness.cold_only().turn([]);
    assert_eq!(*notes.lock().unwrap(), [("begin", false)]);
}

#[test]
fn replaying_ends_after_the_poll_owed_to_the_last_recorded_event() {
    let (harness, notes) = watched();
    let mut harness = harness.cold_only();
    harness.turn([]);
    harness.turn([activity_completed(2, "")]);
    notes.lock().unwrap().clear();
    harness.turn([activity_completed(3, "")]);
    assert_eq!(*notes.lock().unwrap(), [("begin", true), ("after A", true), ("after B", false)]);
    notes.lock().unwrap().clear();
    harness.turn([timer_fired(6)]);
    assert_eq!(
        *notes.lock().unwrap(),
        [("begin", true), ("after A", true), ("after B", true), ("after timer", false)]
    );
}

#[test]
fn turn_that_brings_nothing_new_is_all_replay() {
    let (harness, notes) = watched();
    let mut harness = harness.cold_only();
    harness.turn([]);
    harness.turn([activity_completed(2, "")]);
    notes.lock().unwrap().clear();
    harness.turn([]);
    assert_eq!(*notes.lock().unwrap(), [("begin", true), ("after A", true)]);
}

#[test]
fn instance_kept_in_memory_is_never_replaying() {
    let (harness, notes) = watched();
    let mut harness = harness.warm_only();
    harness.turn([]);
    harness.turn([activity_completed(2, "")]);
    harness.turn([activity_completed(3, "")]);
    harness.turn([timer_fired(6)]);
    harness.turn([signal("end", "")]);
    let replayed: Vec<_> = notes.lock().unwrap().iter().map(|(_, replaying)| *replaying).collect();
    assert_eq!(replayed, [false; 5]);
}
