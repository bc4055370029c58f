//! A fetch that takes several turns.

use super::*;

/// Starts these instances in one batch.
fn start_all(writer: &mut Writer, instances: &[&str]) {
    for instance in instances {
        let _started = call(writer, start_of(instance, None));
    }
    drive(writer);
}

fn taken(fetch: &mut Answer<Option<Vec<TurnAnswer>>>) -> Vec<TurnAnswer> {
    fetch.try_recv().map_or_else(|_| Vec::new(), |answer| answer.unwrap().unwrap())
}

/// How many turns the fetch has, which keeps them.
fn count(fetch: &mut Answer<Option<Vec<TurnAnswer>>>) -> usize {
    let mut turns = taken(fetch);
    turns.iter_mut().for_each(|turn| turn.guard.disarm());
    turns.len()
}

#[test]
fn starts_are_fetched_together_up_to_the_limit() {
    let mut writer = writer(512);
    start_all(&mut writer, &["a", "b", "c", "d", "e"]);
    let mut first = turns_fetch(&mut writer, 1, 3, None);
    drive(&mut writer);
    assert_eq!(count(&mut first), 3);
    let mut second = turns_fetch(&mut writer, 2, 3, None);
    drive(&mut writer);
    assert_eq!(count(&mut second), 2);
}

#[test]
fn all_parked_fetches_get_a_turn_before_one_gets_two() {
    let mut writer = writer(512);
    let mut fetches: Vec<_> = (1..=3).map(|id| turns_fetch(&mut writer, id, 4, None)).collect();
    start_all(&mut writer, &["a", "b", "c", "d"]);
    let mut counts: Vec<_> = fetches.iter_mut().map(count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 2]);
}

#[test]
fn a_start_that_was_fetched_before_comes_alone() {
    let mut writer = writer(512);
    start_all(&mut writer, &["a", "b", "c"]);
    let mut killed = turns_fetch(&mut writer, 1, 3, None);
    drive(&mut writer);
    let turns = taken(&mut killed);
    assert_eq!(turns.len(), 3);
    // Their process ended: the locks expire, the attempts count.
    for mut answer in turns {
        answer.guard.disarm();
        let token = answer.turn.token.clone();
        writer.db.own_locks.release(&token);
    }
    let free = "UPDATE everturn_instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = \
         (SELECT min(seq) FROM everturn_orchestrator_queue AS q WHERE q.instance_key = everturn_instances.instance_key)";
    writer.db.conn.execute(free, []).unwrap();
    writer.db.conn.execute("UPDATE everturn_orchestrator_queue SET tagged = 0", []).unwrap();
    let mut again = turns_fetch(&mut writer, 2, 3, None);
    drive(&mut writer);
    assert_eq!(count(&mut again), 1, "one of them may have ended the process");
}

#[test]
fn an_instance_with_a_history_comes_alone() {
    let mut writer = writer(512);
    warm_up(&mut writer);
    let _signalled = call(&mut writer, signal());
    start_all(&mut writer, &["b", "c"]);
    let mut first = turns_fetch(&mut writer, 10, 3, None);
    drive(&mut writer);
    assert_eq!(count(&mut first), 1, "the oldest message is its own");
    let mut second = turns_fetch(&mut writer, 11, 3, None);
    drive(&mut writer);
    assert_eq!(count(&mut second), 2);
}

fn signal_all(writer: &mut Writer, instances: &[&str]) {
    for instance in instances {
        let _signalled = call(writer, signal_of(instance));
    }
    drive(writer);
}

#[test]
fn instances_in_memory_are_fetched_together_before_the_batch_is_durable() {
    let mut writer = writer(512);
    let instances = ["a", "b", "c", "d", "e"];
    instances.iter().for_each(|instance| warm_up_of(&mut writer, instance));
    signal_all(&mut writer, &instances);
    // A batch waits for turns that began early only if a commit costs something.
    writer.db.set_commit_time(Duration::from_millis(1));
    let mut fetches: Vec<_> =
        (10..12).map(|id| turns_fetch(&mut writer, id, 2, Some(Arc::new(AlwaysWarm)))).collect();
    let mut counts = Vec::new();
    let mut script = Script::default();
    script.commands.push_back(Box::new(|| {
        counts.extend(fetches.iter_mut().map(count));
        Vec::new()
    }));
    writer.step(&mut script);
    drop(script);
    assert_eq!(counts, [2, 2], "both slots have as many, and one instance is left");
    let mut last = turns_fetch(&mut writer, 13, 2, Some(Arc::new(AlwaysWarm)));
    drive(&mut writer);
    assert_eq!(count(&mut last), 1);
}

#[test]
fn starts_and_instances_in_memory_are_not_fetched_together() {
    let mut writer = writer(512);
    ["a", "c"].iter().for_each(|instance| warm_up_of(&mut writer, instance));
    signal_all(&mut writer, &["a"]);
    start_all(&mut writer, &["b"]);
    signal_all(&mut writer, &["c"]);
    for expected in ["a", "b", "c"] {
        let mut fetch = turns_fetch(&mut writer, 10, 3, Some(Arc::new(AlwaysWarm)));
        drive(&mut writer);
        let mut turns = taken(&mut fetch);
        turns.iter_mut().for_each(|turn| turn.guard.disarm());
        let instances: Vec<&str> = turns.iter().map(|answer| answer.turn.instance_id.as_str()).collect();
        assert_eq!(instances, [expected]);
    }
}

#[test]
fn turns_that_are_not_read_return_to_the_queue() {
    let mut writer = writer(512);
    start_all(&mut writer, &["a", "b", "c"]);
    let unread = turns_fetch(&mut writer, 1, 3, None);
    drive(&mut writer);
    drop(unread);
    assert_eq!(collect(&mut writer), 3);
    drive(&mut writer);
    let mut again = turns_fetch(&mut writer, 2, 3, None);
    drive(&mut writer);
    assert_eq!(count(&mut again), 3, "the attempts were taken back");
}

#[test]
fn a_fetch_of_a_lost_batch_is_parked_again() {
    let mut writer = writer(512);
    start_all(&mut writer, &["a", "b", "c"]);
    let mut fetch = turns_fetch(&mut writer, 1, 3, None);
    let pages: i64 = writer.db.conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    writer.db.conn.pragma_update(None, "max_page_count", pages + 20).unwrap();
    let (reply, mut too_large) = oneshot::channel();
    let mut script = Script::default();
    script.arriving.push_back(Box::new(|| {
        vec![Command::Run(Box::new(PendingOperation::new(activity(9, 400_000), Some(reply))))]
    }));
    writer.step(&mut script);
    assert!(too_large.try_recv().unwrap().unwrap_err().is_retryable());
    assert!(fetch.try_recv().is_err(), "its assignments were rolled back");
    writer.tick();
    drive(&mut writer);
    assert_eq!(count(&mut fetch), 3);
}
