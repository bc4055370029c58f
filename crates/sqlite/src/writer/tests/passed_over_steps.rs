//! Instances that are passed over while their runtime takes a step of them.

use std::sync::atomic::AtomicU32;

use super::*;

/// A runtime that takes a step of every instance for so many looks; no step writes anything.
struct SteppingFor(AtomicU32);

impl WarmView for SteppingFor {
    fn lend(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> Option<LentInstance> {
        None
    }

    fn is_stepping(&self, _instance: &str) -> bool {
        let left = self.0.load(Ordering::SeqCst);
        self.0.store(left.saturating_sub(1), Ordering::SeqCst);
        left > 0
    }
}

fn stepping(looks: u32) -> Option<Arc<dyn WarmView>> {
    Some(Arc::new(SteppingFor(AtomicU32::new(looks))))
}

#[test]
fn an_instance_whose_step_ends_without_a_commit_is_assigned_within_milliseconds() {
    let (mut writer, clock) = writer_and_clock(512);
    let mut turn = turn_fetch(&mut writer, 1, stepping(1));
    let _started = call(&mut writer, start());
    drive(&mut writer);
    assert!(turn.try_recv().is_err(), "its step is under way");
    let pause = writer.next_wake().unwrap();
    assert!((1..=5).contains(&pause.as_millis()), "{pause:?}");
    clock.advance(pause);
    writer.tick();
    drive(&mut writer);
    let mut answer = turn.try_recv().unwrap().unwrap().unwrap();
    answer.guard.disarm();
    assert!(writer.next_wake().is_none(), "nothing is looked for any more");
}

#[test]
fn looks_at_an_instance_whose_step_takes_long_become_rare_and_are_at_most_a_tenth_of_a_second_apart() {
    let (mut writer, clock) = writer_and_clock(512);
    let mut turn = turn_fetch(&mut writer, 1, stepping(10));
    let _started = call(&mut writer, start());
    let mut pauses = Vec::new();
    loop {
        drive(&mut writer);
        if turn.try_recv().is_ok() {
            break;
        }
        let pause = writer.next_wake().unwrap();
        pauses.push(pause.as_millis());
        clock.advance(pause);
        writer.tick();
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 100, 100, 100, 100, 100]);
}
