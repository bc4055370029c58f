//! Locks do not expire while calls of their holders are pending. Nothing else waits for that.

use super::*;

/// So many calls of lock holders that they fill batches of two for a while. Their locks are lost; they are refused.
fn with_pending_holders(writer: &mut Writer) -> Vec<Answer<()>> {
    let called = writer.db.now();
    let settlement = |n: u64| Settlement::abandon(format!("{n}-lost"), None, false);
    (1..=20).map(|n| call(writer, SettleWork::encode(&settlement(n), called).unwrap())).collect()
}

fn steps(writer: &mut Writer, count: usize) {
    for _ in 0..count {
        assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    }
}

#[test]
fn a_message_that_is_due_does_not_wait_for_calls_of_lock_holders() {
    let (mut writer, clock) = writer_and_clock(2);
    let _sent = call(&mut writer, start_after(Some(Duration::from_secs(5))));
    let (mut turn, _work) = with_parked_fetches(&mut writer);
    assert!(writer.next_wake().is_some());
    clock.advance(Duration::from_secs(6));
    let _pending = with_pending_holders(&mut writer);
    // The first batch is full of calls when the message is shown; the second serves the fetch before its calls.
    steps(&mut writer, 2);
    assert!(!writer.pending.is_empty(), "calls of lock holders are still pending");
    assert!(turn.try_recv().unwrap().unwrap().is_some(), "the message is delivered before them");
}

#[test]
fn a_lock_that_is_due_waits_for_calls_of_lock_holders() {
    let (mut writer, clock) = writer_and_clock(2);
    let _queued = call(&mut writer, activity(1, 10));
    let mut held = work_fetch(&mut writer, 1);
    drive(&mut writer);
    let _held = held.try_recv().unwrap().unwrap().unwrap();
    let (_turn, mut next) = with_parked_fetches(&mut writer);
    assert!(writer.next_wake().is_some());
    clock.advance(LOCK + Duration::from_secs(1));
    let _pending = with_pending_holders(&mut writer);
    steps(&mut writer, 5);
    assert!(!writer.pending.is_empty() && next.try_recv().is_err(), "its holder may have called in time");
    drive(&mut writer);
    assert!(next.try_recv().unwrap().unwrap().is_some(), "it expires when no call is pending");
}
