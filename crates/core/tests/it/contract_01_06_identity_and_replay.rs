//! Contract 01 §6.1: who runs, and whether it is replaying.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_core::turn::TurnOutcome;

use crate::stage::{Stage, done, fired, signal};

#[test]
fn context_knows_whose_orchestration_it_is() {
    let mut stage = Stage::new(|ctx, input| async move {
        Ok(format!(
            "{} {} {} {} {input}",
            ctx.instance_id(),
            ctx.execution_id(),
            ctx.orchestration_name(),
            ctx.orchestration_version()
        ))
    })
    .execution(4);
    assert_eq!(stage.turn([]).outcome, TurnOutcome::Completed { output: "order 4 Ship 1.2.0 in".into() });
}

#[test]
fn logging_is_never_called_enabled() {
    let mut stage = Stage::new(|ctx, _| async move { Ok(ctx.is_logging_enabled().to_string()) });
    assert_eq!(stage.turn([]).outcome, TurnOutcome::Completed { output: "false".into() });
}

#[test]
fn statistics_are_a_stub() {
    let mut stage = Stage::new(|ctx, _| async move { Ok(format!("{:?}", ctx.get_system_stats())) });
    assert_eq!(stage.turn([]).outcome, TurnOutcome::Completed { output: "None".into() });
}

/// Stations of the code, and whether it was replaying there.
type Notes = Arc<Mutex<Vec<(&'static str, bool)>>>;

/// Code that notes `is_replaying` at each of its stations.
fn watched() -> (Stage, Notes) {
    let notes = Notes::default();
    let shared = Arc::clone(&notes);
    let stage = Stage::new(move |ctx, _| {
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
    (stage, notes)
}

#[test]
fn first_turn_is_never_replaying() {
    let (stage, notes) = watched();
    stage.cold_only().turn([]);
    assert_eq!(*notes.lock().unwrap(), [("begin", false)]);
}

#[test]
fn replaying_ends_after_the_poll_owed_to_the_last_recorded_event() {
    let (stage, notes) = watched();
    let mut stage = stage.cold_only();
    stage.turn([]);
    stage.turn([done(2, "")]);
    notes.lock().unwrap().clear();
    stage.turn([done(3, "")]);
    assert_eq!(*notes.lock().unwrap(), [("begin", true), ("after A", true), ("after B", false)]);
    notes.lock().unwrap().clear();
    stage.turn([fired(6)]);
    assert_eq!(
        *notes.lock().unwrap(),
        [("begin", true), ("after A", true), ("after B", true), ("after timer", false)]
    );
}

#[test]
fn turn_that_brings_nothing_new_is_all_replay() {
    let (stage, notes) = watched();
    let mut stage = stage.cold_only();
    stage.turn([]);
    stage.turn([done(2, "")]);
    notes.lock().unwrap().clear();
    stage.turn([]);
    assert_eq!(*notes.lock().unwrap(), [("begin", true), ("after A", true)]);
}

#[test]
fn instance_kept_in_memory_is_never_replaying() {
    let (stage, notes) = watched();
    let mut stage = stage.warm_only();
    stage.turn([]);
    stage.turn([done(2, "")]);
    stage.turn([done(3, "")]);
    stage.turn([fired(6)]);
    stage.turn([signal("end", "")]);
    let replayed: Vec<_> = notes.lock().unwrap().iter().map(|(_, replaying)| *replaying).collect();
    assert_eq!(replayed, [false; 5]);
}
