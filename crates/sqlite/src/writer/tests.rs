use everturn_provider::encoded::StoredActivity;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::store::{
    LentInstance, LockKind, LockRenewal, NewMessage, Renewal, Settlement, Stamp, Submission, TurnAbandon,
    TurnCommit, WarmView,
};
use everturn_provider::{Clock, ManualClock, ProviderError, TagFilter};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::{BatchLimits, Writer, WriterShared, WriterStep};
use crate::abandon_turn::AbandonTurn;
use crate::command_queue::{Command, CommandQueue, CommandSource};
use crate::commit_turn::CommitTurn;
use crate::fetch_turns::TurnAnswer;
use crate::fetch_work::WorkAnswer;
use crate::operation::{BatchOrder, PendingOperation, Scope, Verb, VerbFailure};
use crate::options::Synchronous;
use crate::parked_fetches::{ParkedTurnFetch, ParkedWorkFetch};
use crate::raw_writes::EnqueueWork;
use crate::renew::Renew;
use crate::settle_work::SettleWork;
use crate::submit::Submit;
use crate::{pragmas, schema};

mod deferred_expiry;
mod fair_share;
mod open_batch;
mod passed_over_steps;
mod several_turns;
mod slices;
mod unreadable_pages;

/// How long workers hold an activity.
const LOCK: Duration = Duration::from_secs(30);

type Answer<T> = oneshot::Receiver<Result<T, ProviderError>>;

/// Commands that come while a batch is open, made when the writer asks for them.
#[derive(Default)]
struct Script<'a> {
    opened: usize,
    commands: VecDeque<Box<dyn FnOnce() -> Vec<Command> + 'a>>,
    /// Commands that arrive while operations run.
    arriving: VecDeque<Box<dyn FnOnce() -> Vec<Command> + 'a>>,
}

impl CommandSource for Script<'_> {
    fn open(&mut self, _window: Duration) {
        self.opened += 1;
    }

    fn next(&mut self) -> Option<Vec<Command>> {
        self.commands.pop_front().map(|commands| commands())
    }

    fn arrived_within(&mut self, _wait: Duration) -> Vec<Command> {
        self.arriving.pop_front().map(|commands| commands()).unwrap_or_default()
    }
}

/// A writer over a database in memory, without a thread.
fn writer(operations_max: usize) -> Writer {
    writer_and_clock(operations_max).0
}

fn writer_and_clock(operations_max: usize) -> (Writer, Arc<ManualClock>) {
    let mut conn = Connection::open_in_memory().unwrap();
    pragmas::set_up_writer(&conn, false, Synchronous::Full).unwrap();
    schema::migrate(&mut conn).unwrap();
    let limits = BatchLimits { operations_max, payload_bytes_max: 1 << 20 };
    let clock = Arc::new(ManualClock::new(1_000_000));
    let (commands, shared) = (Arc::new(CommandQueue::default()), Arc::new(WriterShared::default()));
    let writer_clock = Arc::clone(&clock) as _;
    let busy_timeout = Duration::from_secs(1);
    let writer = Writer::new(conn, None, writer_clock, busy_timeout, commands, shared, limits).unwrap();
    (writer, clock)
}

fn call<V: Verb>(writer: &mut Writer, verb: V) -> Answer<V::Answer> {
    let (reply, answer) = oneshot::channel();
    writer.accept(Command::Run(Box::new(PendingOperation::new(verb, Some(reply)))));
    answer
}

fn drive(writer: &mut Writer) {
    while writer.step(&mut Script::default()) == WriterStep::Done {}
}

/// Takes what came into the command queue: work that was returned unread.
fn collect(writer: &mut Writer) -> usize {
    let commands = writer.commands.take(Some(Duration::ZERO), false).commands;
    let count = commands.len();
    commands.into_iter().for_each(|command| writer.accept(command));
    count
}

fn activity(id: u64, input_bytes: usize) -> EnqueueWork {
    let item = WorkItem::ActivityExecute {
        instance: "a".to_owned(),
        execution_id: 1,
        id,
        name: "pay".to_owned(),
        input: "x".repeat(input_bytes),
        session_id: None,
        tag: None,
    };
    EnqueueWork(StoredActivity::encode("test", &item).unwrap())
}

fn message(item: WorkItem, delay: Option<Duration>) -> Submit {
    Submit::encode(&Submission::of(NewMessage::delayed(item, delay))).unwrap()
}

fn start() -> Submit {
    start_after(None)
}

fn start_after(delay: Option<Duration>) -> Submit {
    start_of("a", delay)
}

fn start_of(instance: &str, delay: Option<Duration>) -> Submit {
    let start = WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "order".to_owned(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    message(start, delay)
}

fn signal() -> Submit {
    signal_of("a")
}

fn signal_of(instance: &str) -> Submit {
    let instance = instance.to_owned();
    message(WorkItem::ExternalRaised { instance, name: "go".to_owned(), data: String::new() }, None)
}

/// The answer to a fetch of one turn.
struct OneTurn(Answer<Option<Vec<TurnAnswer>>>);

impl OneTurn {
    fn try_recv(&mut self) -> Result<Result<Option<TurnAnswer>, ProviderError>, TryRecvError> {
        let one = |mut turns: Vec<TurnAnswer>| {
            assert_eq!(turns.len(), 1);
            turns.remove(0)
        };
        self.0.try_recv().map(|answer| answer.map(|turns| turns.map(one)))
    }
}

fn turn_fetch(writer: &mut Writer, id: u64, warm: Option<Arc<dyn WarmView>>) -> OneTurn {
    OneTurn(turns_fetch(writer, id, 1, warm))
}

fn turns_fetch(
    writer: &mut Writer,
    id: u64,
    turns_max: usize,
    warm: Option<Arc<dyn WarmView>>,
) -> Answer<Option<Vec<TurnAnswer>>> {
    let (reply, answer) = oneshot::channel();
    let lock_timeout = Duration::from_secs(30);
    writer.accept(Command::FetchTurn(ParkedTurnFetch {
        id,
        once: false,
        turns_max,
        lock_timeout,
        range: None,
        warm,
        handlers: None,
        reply,
    }));
    answer
}

fn work_fetch(writer: &mut Writer, id: u64) -> Answer<Option<WorkAnswer>> {
    let (reply, answer) = oneshot::channel();
    let lock_timeout = LOCK;
    let tags = TagFilter::DefaultOnly;
    writer.accept(Command::FetchWork(ParkedWorkFetch {
        id,
        once: false,
        lock_timeout,
        session: None,
        session_places: None,
        tags,
        handlers: None,
        reply,
    }));
    answer
}

fn commit(answer: &TurnAnswer, event_id: u64, clock: &dyn Clock) -> CommitTurn {
    let kind = EventKind::ExternalEvent { name: "go".to_owned(), data: String::new() };
    let instance = &answer.turn.instance_id;
    let activity = WorkItem::ActivityExecute {
        instance: instance.clone(),
        execution_id: 1,
        id: event_id,
        name: "pay".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    let mut turn = TurnCommit::new(answer.turn.token.clone(), 1);
    turn.history_delta = vec![Event::stamped(event_id, instance, 1, None, 1, kind)];
    turn.worker_items = vec![activity.into()];
    turn.update.orchestration_name = Some("order".to_owned());
    turn.update.orchestration_version = Some("1.0.0".to_owned());
    turn.stamp = Some(Stamp(event_id));
    CommitTurn::encode(CommitTurn::NAME, &turn, clock).unwrap()
}

/// A runtime that has every instance in memory, whatever its stamp.
struct AlwaysWarm;

impl WarmView for AlwaysWarm {
    fn lend(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> Option<LentInstance> {
        Some(LentInstance::new(()))
    }

    fn holds(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> bool {
        true
    }
}

/// Starts the instance and commits its first turn, so that the next one can be warm.
fn warm_up(writer: &mut Writer) {
    warm_up_of(writer, "a");
}

fn warm_up_of(writer: &mut Writer, instance: &str) {
    let mut started = call(writer, start_of(instance, None));
    let mut turn = turn_fetch(writer, 0, None);
    drive(writer);
    started.try_recv().unwrap().unwrap();
    let mut answer = turn.try_recv().unwrap().unwrap().unwrap();
    let clock = Arc::clone(&writer.db.clock);
    let mut committed = call(writer, commit(&answer, 1, &*clock));
    drive(writer);
    committed.try_recv().unwrap().unwrap();
    answer.guard.disarm();
    let mut work = work_fetch(writer, 1);
    drive(writer);
    work.try_recv().unwrap().unwrap().unwrap().guard.disarm();
}

fn commits(writer: &Writer) -> u64 {
    writer.shared.commits.load(Ordering::Relaxed)
}

fn queued(writer: &Writer) -> i64 {
    writer.db.conn.query_row("SELECT count(*) FROM everturn_worker_queue", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_full_disk_in_the_middle_of_a_batch_fails_only_the_operation_that_needs_the_space() {
    let mut writer = writer(512);
    let pages: i64 = writer.db.conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    writer.db.conn.pragma_update(None, "max_page_count", pages + 20).unwrap();
    let mut small = call(&mut writer, activity(1, 10));
    let mut large = call(&mut writer, activity(2, 400_000));
    let mut other = call(&mut writer, activity(3, 10));
    drive(&mut writer);
    small.try_recv().unwrap().unwrap();
    other.try_recv().unwrap().unwrap();
    let refused = large.try_recv().unwrap().unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(queued(&writer), 2);
    assert!(writer.db.conn.is_autocommit());

    writer.db.conn.pragma_update(None, "max_page_count", pages + 2_000).unwrap();
    let mut again = call(&mut writer, activity(2, 400_000));
    drive(&mut writer);
    again.try_recv().unwrap().unwrap();
    assert_eq!(queued(&writer), 3);
}

#[test]
fn a_lost_batch_answers_no_fetch_with_what_it_had_assigned() {
    let mut writer = writer(512);
    let mut waiting = work_fetch(&mut writer, 7);
    let pages: i64 = writer.db.conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    writer.db.conn.pragma_update(None, "max_page_count", pages + 20).unwrap();
    let small = call(&mut writer, activity(1, 10));
    let large = call(&mut writer, activity(2, 400_000));
    drive(&mut writer);
    drop((small, large));
    // The activity of the first operation was assigned once, in a transaction that was committed.
    let answer = waiting.try_recv().unwrap().unwrap().unwrap();
    let token: String = writer
        .db
        .conn
        .query_row("SELECT lock_token FROM everturn_worker_queue", [], |row| row.get(0))
        .unwrap();
    assert_eq!(answer.work.token, token);
}

#[test]
fn an_early_turn_its_commit_and_the_next_activity_share_one_commit() {
    let mut writer = writer(512);
    warm_up(&mut writer);
    writer.db.set_commit_time(Duration::from_millis(1));
    let mut turn = turn_fetch(&mut writer, 10, Some(Arc::new(AlwaysWarm)));
    let mut work = work_fetch(&mut writer, 11);
    let mut signalled = call(&mut writer, signal());
    let before = commits(&writer);
    let clock = Arc::clone(&writer.db.clock);
    let mut committed = None;
    let mut script = Script::default();
    script.commands.push_back(Box::new(|| {
        // Nothing is durable yet, and only the turn has begun.
        assert!(signalled.try_recv().is_err() && work.try_recv().is_err());
        let mut answer = turn.try_recv().unwrap().unwrap().unwrap();
        assert!(answer.turn.lent.is_some());
        answer.guard.disarm();
        let (reply, receiver) = oneshot::channel();
        committed = Some(receiver);
        vec![Command::Run(Box::new(PendingOperation::new(commit(&answer, 2, &*clock), Some(reply))))]
    }));
    assert_eq!(writer.step(&mut script), WriterStep::Done);
    assert_eq!(script.opened, 1);
    drop(script);
    assert_eq!(commits(&writer) - before, 1);
    signalled.try_recv().unwrap().unwrap();
    committed.unwrap().try_recv().unwrap().unwrap();
    assert!(work.try_recv().unwrap().unwrap().is_some());
}

#[test]
fn a_cold_turn_is_answered_only_after_the_commit() {
    let mut writer = writer(512);
    writer.db.set_commit_time(Duration::from_millis(1));
    let mut turn = turn_fetch(&mut writer, 1, Some(Arc::new(AlwaysWarm)));
    let _started = call(&mut writer, start());
    let mut script = Script::default();
    script.commands.push_back(Box::new(Vec::new));
    writer.step(&mut script);
    assert_eq!(script.opened, 0, "nothing began early");
    let answer = turn.try_recv().unwrap().unwrap().unwrap();
    assert!(answer.turn.lent.is_none(), "an instance without a commit is never warm");
}

#[test]
fn an_early_turn_of_a_lost_batch_cannot_commit() {
    let mut writer = writer(512);
    warm_up(&mut writer);
    writer.db.set_commit_time(Duration::from_millis(1));
    let mut turn = turn_fetch(&mut writer, 10, Some(Arc::new(AlwaysWarm)));
    let _signalled = call(&mut writer, signal());
    let pages: i64 = writer.db.conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    writer.db.conn.pragma_update(None, "max_page_count", pages + 20).unwrap();
    let mut script = Script::default();
    script.commands.push_back(Box::new(|| {
        vec![Command::Run(Box::new(PendingOperation::new(activity(9, 400_000), None)))]
    }));
    writer.step(&mut script);
    drop(script);
    let mut answer = turn.try_recv().unwrap().unwrap().unwrap();
    let clock = Arc::clone(&writer.db.clock);
    let mut committed = call(&mut writer, commit(&answer, 2, &*clock));
    answer.guard.disarm();
    drive(&mut writer);
    assert!(committed.try_recv().unwrap().unwrap_err().is_lock_lost());
    // The message is there as if it had not been fetched.
    let mut again = turn_fetch(&mut writer, 12, None);
    drive(&mut writer);
    assert!(again.try_recv().unwrap().unwrap().is_some());
    let attempts: i64 = writer
        .db
        .conn
        .query_row("SELECT attempt_count FROM everturn_orchestrator_queue", [], |row| row.get(0))
        .unwrap();
    assert_eq!(attempts, 1);
}

#[test]
fn an_instance_is_not_assigned_again_in_the_batch_that_ended_its_turn() {
    let mut writer = writer(512);
    warm_up(&mut writer);
    let mut turn = turn_fetch(&mut writer, 10, None);
    let _signalled = call(&mut writer, signal());
    drive(&mut writer);
    let mut answer = turn.try_recv().unwrap().unwrap().unwrap();
    answer.guard.disarm();
    // A second message arrives under the lock; the commit and a new fetch come together.
    let _late = call(&mut writer, signal());
    drive(&mut writer);
    let clock = Arc::clone(&writer.db.clock);
    let mut committed = call(&mut writer, commit(&answer, 2, &*clock));
    let mut next = turn_fetch(&mut writer, 11, None);
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    committed.try_recv().unwrap().unwrap();
    assert!(next.try_recv().is_err(), "not in the same batch");
    assert_eq!(writer.next_wake(), Some(Duration::ZERO), "but in the next");
    drive(&mut writer);
    assert!(next.try_recv().unwrap().unwrap().is_some());
}

#[test]
fn an_answer_dropped_unread_returns_the_work_with_its_attempt() {
    let mut writer = writer(512);
    let waiting = work_fetch(&mut writer, 1);
    let _queued = call(&mut writer, activity(1, 10));
    drive(&mut writer);
    drop(waiting);
    assert_eq!(collect(&mut writer), 1);
    drive(&mut writer);
    let (attempts, ready): (i64, bool) = writer
        .db
        .conn
        .query_row("SELECT attempt_count, ready FROM everturn_worker_queue", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((attempts, ready), (0, true));
}

/// During an outage every write fails.
fn set_outage(writer: &Writer, out: bool) {
    writer.db.conn.pragma_update(None, "query_only", out).unwrap();
}

#[test]
fn work_that_is_returned_during_an_outage_is_free_after_it() {
    let mut writer = writer(512);
    let waiting = work_fetch(&mut writer, 1);
    let _queued = call(&mut writer, activity(1, 10));
    drive(&mut writer);
    drop(waiting);
    collect(&mut writer);
    set_outage(&writer, true);
    drive(&mut writer);
    set_outage(&writer, false);
    writer.tick();
    drive(&mut writer);
    let mut next = work_fetch(&mut writer, 2);
    drive(&mut writer);
    next.try_recv().unwrap().unwrap().expect("the lock is released");
    let attempts: i64 = writer
        .db
        .conn
        .query_row("SELECT attempt_count FROM everturn_worker_queue", [], |row| row.get(0))
        .unwrap();
    assert_eq!(attempts, 1);
}

/// Takes long to become durable.
struct Slow(Arc<ManualClock>, Duration);

impl Verb for Slow {
    type Answer = ();
    const NAME: &'static str = "slow";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, _scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        Ok(())
    }

    fn committed(&self, _answer: &Self::Answer) {
        self.0.advance(self.1);
    }
}

#[test]
fn work_whose_lock_is_half_spent_is_assigned_although_the_batch_that_renews_it_is_lost() {
    let (mut writer, clock) = writer_and_clock(512);
    let mut waiting = work_fetch(&mut writer, 1);
    let _queued = call(&mut writer, activity(1, 10));
    let _slow = call(&mut writer, Slow(Arc::clone(&clock), LOCK * 2 / 3));
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    assert!(waiting.try_recv().is_err(), "its lock is renewed first");
    set_outage(&writer, true);
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    assert!(waiting.try_recv().is_err());
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Idle, "the writer pauses");
    set_outage(&writer, false);
    writer.tick();
    drive(&mut writer);
    let answer = waiting.try_recv().unwrap().unwrap().unwrap();
    clock.advance(LOCK * 2 / 3);
    let now = writer.db.now();
    let end = SettleWork::encode(&Settlement::end(&answer.work.token, None), now).unwrap();
    let mut ended = call(&mut writer, end);
    drive(&mut writer);
    ended.try_recv().unwrap().expect("the lock counts from its renewal on");
}

#[test]
fn work_whose_lock_has_aged_is_renewed_before_the_fetch_is_answered() {
    let (mut writer, clock) = writer_and_clock(512);
    let mut waiting = work_fetch(&mut writer, 1);
    let _queued = call(&mut writer, activity(1, 10));
    let _slow = call(&mut writer, Slow(Arc::clone(&clock), Duration::from_secs(1)));
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    assert!(waiting.try_recv().is_err());
    drive(&mut writer);
    let answer = waiting.try_recv().unwrap().unwrap().unwrap();
    // The worker counts the lock from now on.
    clock.advance(LOCK - Duration::from_millis(100));
    let end = SettleWork::encode(&Settlement::end(&answer.work.token, None), writer.db.now()).unwrap();
    let mut ended = call(&mut writer, end);
    drive(&mut writer);
    ended.try_recv().unwrap().unwrap();
}

/// Ends the transaction it runs in, as an error of the disk does.
struct EndsTransaction;

impl Verb for EndsTransaction {
    type Answer = ();
    const NAME: &'static str = "ends_transaction";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        scope.conn.execute_batch("ROLLBACK")?;
        Ok(())
    }
}

#[test]
fn a_transaction_that_ended_unasked_loses_the_batch_and_nothing_is_stored_twice() {
    let mut writer = writer(512);
    let mut before = call(&mut writer, activity(1, 10));
    let mut ends = call(&mut writer, EndsTransaction);
    let mut after = call(&mut writer, activity(2, 10));
    drive(&mut writer);
    before.try_recv().unwrap().unwrap();
    after.try_recv().unwrap().unwrap();
    assert!(ends.try_recv().unwrap().unwrap_err().is_retryable());
    assert_eq!(queued(&writer), 2);
}

struct Panics;

impl Verb for Panics {
    type Answer = ();
    const NAME: &'static str = "panics";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        scope.conn.execute("DELETE FROM everturn_worker_queue", [])?;
        panic!("on purpose");
    }
}

#[test]
fn a_writer_that_panics_twice_in_a_row_takes_no_more_work() {
    let mut writer = writer(512);
    let mut before = call(&mut writer, activity(1, 10));
    drive(&mut writer);
    before.try_recv().unwrap().unwrap();
    let mut panics = call(&mut writer, Panics);
    let mut waiting = turn_fetch(&mut writer, 1, None);
    drive(&mut writer);
    assert!(panics.try_recv().unwrap().is_err());
    assert!(!waiting.try_recv().unwrap().err().unwrap().is_retryable());
    assert_eq!(queued(&writer), 1, "what it did was rolled back");
    let mut after = call(&mut writer, activity(2, 10));
    let refused = after.try_recv().unwrap().unwrap_err();
    assert!(!refused.is_retryable() && refused.message.contains("panicked"), "{refused}");
}

/// Is refused after it has written, although it claims to check first.
struct RefusedLate;

impl Verb for RefusedLate {
    type Answer = ();
    const NAME: &'static str = "refused_late";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        scope.conn.execute("DELETE FROM everturn_worker_queue", [])?;
        Err(ProviderError::permanent("", "no").into())
    }
}

#[test]
fn an_operation_that_is_refused_late_is_undone_and_the_others_are_kept() {
    let mut writer = writer(512);
    let mut first = call(&mut writer, activity(1, 10));
    let mut refused = call(&mut writer, RefusedLate);
    let mut last = call(&mut writer, activity(2, 10));
    drive(&mut writer);
    first.try_recv().unwrap().unwrap();
    last.try_recv().unwrap().unwrap();
    let refused = refused.try_recv().unwrap().unwrap_err();
    assert_eq!((refused.message.as_str(), refused.is_retryable()), ("no", false));
    assert_eq!(queued(&writer), 2);
}

#[test]
fn a_full_batch_leaves_the_rest_for_the_next_and_serves_parked_fetches_between() {
    let mut writer = writer(2);
    let mut answers: Vec<_> = (1..=5).map(|id| call(&mut writer, activity(id, 10))).collect();
    let mut waiting = work_fetch(&mut writer, 1);
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    assert_eq!(answers.iter_mut().filter_map(|answer| answer.try_recv().ok()).count(), 2);
    assert!(waiting.try_recv().is_err());
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
    assert!(waiting.try_recv().unwrap().unwrap().is_some(), "served before more operations");
    drive(&mut writer);
    assert_eq!(queued(&writer), 5);
}

#[test]
fn an_idle_writer_sleeps_until_it_is_needed() {
    let mut writer = writer(512);
    drive(&mut writer);
    assert_eq!(writer.next_wake(), None);
    let waiting = turn_fetch(&mut writer, 1, None);
    drive(&mut writer);
    assert!(writer.next_wake().unwrap() > Duration::from_millis(100));
    drop(waiting);
    writer.accept(Command::CancelFetch(1));
    assert_eq!(writer.next_wake(), None);
}

#[test]
fn a_renewal_made_in_time_holds_however_late_it_runs() {
    let (mut writer, clock) = writer_and_clock(512);
    let _enqueued = call(&mut writer, activity(1, 1));
    let mut holder = work_fetch(&mut writer, 1);
    drive(&mut writer);
    let held = holder.try_recv().unwrap().unwrap().unwrap();
    let mut other = work_fetch(&mut writer, 2);
    drive(&mut writer);
    let lock = LockRenewal {
        kind: LockKind::WorkItem,
        token: held.work.token.clone(),
        extend_for: Duration::from_millis(held.work.lock_ms),
    };
    let called = writer.db.now();
    let mut renewed = call(&mut writer, Renew { renewal: Renewal::of_locks(vec![lock]), called });
    // A sync takes longer than the lock lasts; the call is queued meanwhile.
    clock.advance(Duration::from_millis(held.work.lock_ms + 1_000));
    drive(&mut writer);
    assert!(renewed.try_recv().unwrap().unwrap().locks.iter().all(Result::is_ok));
    assert!(other.try_recv().is_err(), "the renewed lock was assigned to another worker");
}

#[test]
fn an_outcome_that_waited_with_a_late_renewal_is_recorded() {
    let (mut writer, clock) = writer_and_clock(512);
    let _enqueued = call(&mut writer, activity(1, 1));
    let mut holder = work_fetch(&mut writer, 1);
    drive(&mut writer);
    let mut held = holder.try_recv().unwrap().unwrap().unwrap();
    held.guard.disarm();
    let lock = Duration::from_millis(held.work.lock_ms);
    let lock_renewal =
        LockRenewal { kind: LockKind::WorkItem, token: held.work.token.clone(), extend_for: lock };
    let renewal = Renewal::of_locks(vec![lock_renewal]);
    let called = writer.db.now();
    let mut renewed = call(&mut writer, Renew { renewal, called });
    // The writer is busy; meanwhile the lock would have ended, and the activity ends.
    clock.advance(lock + Duration::from_millis(1));
    let end = SettleWork::encode(&Settlement::end(&held.work.token, None), writer.db.now()).unwrap();
    let mut ended = call(&mut writer, end);
    drive(&mut writer);
    assert!(renewed.try_recv().unwrap().unwrap().locks.iter().all(Result::is_ok));
    ended.try_recv().unwrap().expect("the renewal was made in time");
    assert_eq!(queued(&writer), 0);
}

/// Parks a fetch for each kind of work; there is none.
fn with_parked_fetches(writer: &mut Writer) -> (OneTurn, Answer<Option<WorkAnswer>>) {
    let fetches = (turn_fetch(writer, 90, None), work_fetch(writer, 91));
    drive(writer);
    fetches
}

#[test]
fn the_writer_wakes_for_a_message_that_becomes_visible() {
    let mut writer = writer(512);
    let delay = Duration::from_millis(300);
    let _sent = call(&mut writer, start_after(Some(delay)));
    let _fetches = with_parked_fetches(&mut writer);
    assert_eq!(writer.next_wake(), Some(delay));
}

#[test]
fn the_writer_wakes_for_the_end_of_a_lock() {
    let (mut writer, clock) = writer_and_clock(512);
    let _queued = call(&mut writer, activity(1, 10));
    let mut held = work_fetch(&mut writer, 1);
    drive(&mut writer);
    let _held = held.try_recv().unwrap().unwrap().unwrap();
    let (_turn, mut next) = with_parked_fetches(&mut writer);
    clock.advance(LOCK - Duration::from_millis(300));
    writer.tick();
    drive(&mut writer);
    assert_eq!(writer.next_wake(), Some(Duration::from_millis(300)));
    clock.advance(Duration::from_millis(300));
    writer.tick();
    drive(&mut writer);
    next.try_recv().unwrap().unwrap().expect("the lock has ended");
}

/// More instances than one look compares, all of them watched.
fn watch_many(shared: &WriterShared) -> Vec<tokio::sync::watch::Receiver<u64>> {
    (0..65).map(|nth| shared.watches.watch(&format!("watched-{nth}"))).collect()
}

#[test]
fn a_commit_elsewhere_during_a_batch_is_looked_for_after_it() {
    let mut writer = writer(512);
    warm_up(&mut writer);
    writer.db.set_commit_time(Duration::from_millis(1));
    let shared = Arc::clone(&writer.shared);
    let _watches = watch_many(&shared);
    shared.watches.note_foreign_commit();
    let _turn = turn_fetch(&mut writer, 10, Some(Arc::new(AlwaysWarm)));
    let _signalled = call(&mut writer, signal());
    let mut script = Script::default();
    script.commands.push_back(Box::new(|| vec![Command::CommittedElsewhere]));
    script.commands.push_back(Box::new(|| {
        // An error of a read would end the transaction, and the operations that follow would be stored twice.
        assert!(shared.watches.needs_look(), "the writer has read for a watch inside the transaction");
        Vec::new()
    }));
    assert_eq!(writer.step(&mut script), WriterStep::Done);
    assert!(script.commands.is_empty(), "the window was open");
    drop(script);
    assert_eq!(writer.next_wake(), Some(Duration::ZERO), "the writer looks at once");
    writer.step(&mut Script::default());
    assert!(!shared.watches.needs_look());
}

#[test]
fn an_operation_begins_no_transaction_of_its_own() {
    let writer = writer(512);
    let lost = writer.db.run_whole(true, |_scope| Ok(true));
    assert!(lost.is_err(), "it was committed by itself");
    assert!(writer.db.conn.is_autocommit());
}

#[test]
fn work_that_is_returned_while_the_file_is_locked_is_free_after_the_next_commit() {
    let mut writer = writer(512);
    let waiting = work_fetch(&mut writer, 1);
    let _queued = call(&mut writer, activity(1, 10));
    drive(&mut writer);
    drop(waiting);
    collect(&mut writer);
    writer.fail_waiting_callers("the database is locked by another process");
    // Commands come without a pause: the writer never ticks.
    let _other = call(&mut writer, activity(2, 10));
    drive(&mut writer);
    let locked: i64 = writer
        .db
        .conn
        .query_row("SELECT count(*) FROM everturn_worker_queue WHERE lock_token IS NOT NULL", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(locked, 0, "the lock is released");
}

#[test]
fn a_turn_that_is_abandoned_in_time_is_delayed_although_its_lock_has_expired_since() {
    let (mut writer, clock) = writer_and_clock(512);
    warm_up(&mut writer);
    let mut turn = turn_fetch(&mut writer, 10, None);
    let _signalled = call(&mut writer, signal());
    drive(&mut writer);
    let mut answer = turn.try_recv().unwrap().unwrap().unwrap();
    answer.guard.disarm();
    let abandon = TurnAbandon::new(answer.turn.token.clone()).with_delay(Some(LOCK));
    let abandon = AbandonTurn { abandon, called: writer.db.now() };
    // A worker's fetch is parked, so that locks expire, and none that could take the instance over.
    clock.advance(LOCK * 2);
    let _work = work_fetch(&mut writer, 11);
    drive(&mut writer);
    let mut abandoned = call(&mut writer, abandon);
    drive(&mut writer);
    abandoned.try_recv().unwrap().expect("the call was made in time");
    let mut next = turn_fetch(&mut writer, 12, None);
    drive(&mut writer);
    assert!(next.try_recv().is_err(), "it is delayed");
    clock.advance(LOCK);
    writer.tick();
    drive(&mut writer);
    assert!(next.try_recv().unwrap().unwrap().is_some());
}

#[test]
fn a_new_watch_makes_the_writer_look_for_commits_at_once() {
    let mut writer = writer(512);
    drive(&mut writer);
    writer.accept(Command::Watched);
    assert!(writer.look_wanted, "a stream of new watches would leave no pause in which it looks");
}
