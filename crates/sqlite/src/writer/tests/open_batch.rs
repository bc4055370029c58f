//! A batch takes commands that arrive while it runs.

use super::*;

fn command(verb: impl Verb) -> Vec<Command> {
    vec![Command::Run(Box::new(PendingOperation::new(verb, None)))]
}

fn queued(writer: &Writer) -> i64 {
    let count = "SELECT count(*) FROM everturn_worker_queue";
    writer.db.conn.query_row(count, [], |row| row.get(0)).unwrap()
}

fn commits(writer: &Writer) -> u64 {
    writer.shared.commits.load(Ordering::Relaxed)
}

#[test]
fn commands_that_arrive_while_it_runs_share_its_commit() {
    let mut writer = writer(512);
    let mut first = call(&mut writer, activity(1, 1));
    let mut script = Script::default();
    script.arriving.push_back(Box::new(|| command(activity(2, 1))));
    script.arriving.push_back(Box::new(|| command(activity(3, 1))));
    writer.step(&mut script);
    first.try_recv().unwrap().unwrap();
    assert_eq!((queued(&writer), commits(&writer)), (3, 1), "three activities in one commit");
    assert_eq!(script.opened, 0, "no early turn was awaited");
}

#[test]
fn it_is_closed_when_it_has_run_for_two_milliseconds() {
    let (mut writer, clock) = writer_and_clock(512);
    let _first = call(&mut writer, activity(1, 1));
    let mut script = Script::default();
    let millisecond = |id: u64| {
        let clock = Arc::clone(&clock);
        move || {
            clock.advance(Duration::from_millis(1));
            command(activity(id, 1))
        }
    };
    for id in 2..6 {
        script.arriving.push_back(Box::new(millisecond(id)));
    }
    writer.step(&mut script);
    assert_eq!((queued(&writer), commits(&writer)), (3, 1), "the first, and two until the time is up");
    assert_eq!(script.arriving.len(), 2);
}

#[test]
fn it_is_closed_when_it_is_full() {
    let mut writer = writer(2);
    let _first = call(&mut writer, activity(1, 1));
    let mut script = Script::default();
    for id in 2..4 {
        script.arriving.push_back(Box::new(move || command(activity(id, 1))));
    }
    writer.step(&mut script);
    assert_eq!((queued(&writer), commits(&writer), script.arriving.len()), (2, 1, 1));
}
