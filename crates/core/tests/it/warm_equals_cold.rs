//! Random programs fed with random messages: kept in memory or replayed, they write the same history.
//!
//! The harness compares every turn of the two. This module makes the messages that answer the programs, and checks what
//! holds for any history.

use std::collections::{BTreeSet, HashMap, HashSet};

use everturn_core::turn::{Turn, TurnOutcome};
use everturn_core::{ErrorDetails, Event, EventKind, KvEntry, WorkItem};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::harness::{
    Harness, HarnessClock, activity_completed, activity_failed, cancel, child_completed, child_failed,
    queue_message, signal, timer_fired, to_execution,
};
use crate::random_combinations::Combination;
use crate::random_programs::{MAX_PAYLOAD, Program, ProgramStep, programs, run};

/// The next message. Numbers choose among the open work items.
#[derive(Debug, Clone)]
enum NextMessage {
    Succeed(usize),
    Fail(usize),
    Repeat(usize),
    Signal(u8),
    Queue(u8),
    Stale,
    Cancel,
}

fn message_batches() -> impl Strategy<Value = Vec<Vec<NextMessage>>> {
    let answer = prop_oneof![
        12 => any::<usize>().prop_map(NextMessage::Succeed),
        3 => any::<usize>().prop_map(NextMessage::Fail),
        1 => any::<usize>().prop_map(NextMessage::Repeat),
        4 => (0..2u8).prop_map(NextMessage::Signal),
        4 => (0..2u8).prop_map(NextMessage::Queue),
        1 => Just(NextMessage::Stale),
    ];
    let batches = prop::collection::vec(prop::collection::vec(answer, 0..5), 0..12);
    // In one case of ten, a cancel at the end of a batch.
    (batches, prop::option::weighted(0.1, any::<prop::sample::Index>())).prop_map(
        |(mut batches, cancelled)| {
            if let Some(index) = cancelled.filter(|_| !batches.is_empty()) {
                index.get_mut(&mut batches).push(NextMessage::Cancel);
            }
            batches
        },
    )
}

/// Stands in for workers, timers, children and clients: open work items, and the answers given so far.
#[derive(Default)]
struct Environment {
    execution_id: u64,
    open: Vec<WorkItem>,
    answered: Vec<WorkItem>,
    counter: u32,
}

impl Environment {
    fn take(&mut self, turn: &Turn) {
        self.open.extend(turn.worker_items.iter().cloned());
        let own = turn.orchestrator_items.iter().filter(|item| match item {
            WorkItem::TimerFired { .. } => true,
            WorkItem::StartOrchestration { parent_instance, .. } => parent_instance.is_some(),
            _ => false,
        });
        self.open.extend(own.cloned());
    }

    fn answer(&mut self, choice: usize, fail: bool) -> Option<WorkItem> {
        if self.open.is_empty() {
            return None;
        }
        let item = self.open.remove(choice % self.open.len());
        self.counter += 1;
        let text = format!("r{}", self.counter);
        let answer = match item {
            WorkItem::ActivityExecute { id, .. } if fail => activity_failed(id, &text),
            WorkItem::ActivityExecute { id, .. } => activity_completed(id, &text),
            WorkItem::TimerFired { id, .. } => timer_fired(id),
            WorkItem::StartOrchestration { parent_id, .. } if fail => {
                child_failed(parent_id?, ErrorDetails::orchestration_failed(text))
            }
            WorkItem::StartOrchestration { parent_id, .. } => child_completed(parent_id?, &text),
            _ => return None,
        };
        let answer = to_execution(self.execution_id, answer);
        self.answered.push(answer.clone());
        Some(answer)
    }

    fn message(&mut self, next: &NextMessage) -> Option<WorkItem> {
        self.counter += 1;
        match next {
            NextMessage::Succeed(choice) => self.answer(*choice, false),
            NextMessage::Fail(choice) => self.answer(*choice, true),
            NextMessage::Repeat(choice) if self.answered.is_empty() => self.answer(*choice, false),
            NextMessage::Repeat(choice) => Some(self.answered[choice % self.answered.len()].clone()),
            NextMessage::Signal(name) => Some(signal(&format!("s{name}"), &format!("d{}", self.counter))),
            NextMessage::Queue(name) => {
                Some(queue_message(&format!("q{name}"), &format!("d{}", self.counter)))
            }
            NextMessage::Stale => Some(to_execution(self.execution_id + 7, activity_completed(2, "stale"))),
            NextMessage::Cancel => Some(cancel("enough")),
        }
    }
}

/// One execution of a program, with its environment and its key-value store.
struct ProgramExecution {
    harness: Harness,
    environment: Environment,
    kv: HashMap<String, KvEntry>,
}

impl ProgramExecution {
    fn new(program: &Program, execution_id: u64, kv: HashMap<String, KvEntry>, start: EventKind) -> Self {
        let program = program.clone();
        let harness = Harness::new(move |ctx, input| run(program.clone(), ctx, input))
            .execution(execution_id)
            .payload_max(MAX_PAYLOAD)
            .kv_snapshot(kv.clone())
            .start_event(|kind| *kind = start);
        Self { harness, environment: Environment { execution_id, ..Environment::default() }, kv }
    }

    fn turn(&mut self, messages: Vec<WorkItem>) -> Turn {
        let turn = self.harness.turn_with(messages);
        assert!(!is_nondeterminism(&turn.outcome), "{:?}", turn.outcome);
        self.environment.take(&turn);
        remember(&mut self.kv, &turn.history_delta);
        self.check(&turn);
        turn
    }

    /// Checks what holds for any history of any program.
    fn check(&self, turn: &Turn) {
        let history = self.harness.history();
        let ids: Vec<u64> = history.iter().map(|event| event.event_id).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "ids go up: {ids:?}");
        let terminals = history.iter().filter(|event| event.is_terminal()).count();
        assert_eq!(terminals, usize::from(turn.outcome != TurnOutcome::Continue));
        let mut ended = HashSet::new();
        for event in history {
            let completes = matches!(
                event.kind,
                EventKind::ActivityCompleted { .. }
                    | EventKind::ActivityFailed { .. }
                    | EventKind::TimerFired { .. }
                    | EventKind::SubOrchestrationCompleted { .. }
                    | EventKind::SubOrchestrationFailed { .. }
            );
            assert!(!completes || ended.insert(event.source_event_id), "completed twice: {event:?}");
        }
        check_closings(history, turn.outcome != TurnOutcome::Continue);
        if turn.outcome == TurnOutcome::Continue {
            let again = self.harness.replayed().take_turn(vec![], &HarnessClock::of_turn(99));
            assert_eq!(again.outcome, TurnOutcome::Continue);
            assert_eq!(again.history_delta, [], "replaying what was committed decides nothing new");
            assert!(again.worker_items.is_empty() && again.orchestrator_items.is_empty());
            assert!(again.cancelled_children.is_empty());
        }
    }
}

/// Everything is cancelled at most once, and at the end no activity is left open.
fn check_closings(history: &[Event], ended: bool) {
    let mut cancelled = HashSet::new();
    let mut open = HashSet::new();
    for event in history {
        match event.kind {
            EventKind::ActivityScheduled { .. } => drop(open.insert(event.event_id)),
            EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. } => {
                open.remove(&event.source_event_id.unwrap());
            }
            EventKind::ActivityCancelRequested { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscriptionCancelled { .. } => {
                open.remove(&event.source_event_id.unwrap());
                assert!(cancelled.insert(event.source_event_id), "cancelled twice: {event:?}");
            }
            _ => {}
        }
    }
    assert!(!ended || open.is_empty(), "left open: {open:?}");
}

/// Updates the key-value store of the instance as a provider does.
fn remember(kv: &mut HashMap<String, KvEntry>, delta: &[Event]) {
    for event in delta {
        match &event.kind {
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let entry = KvEntry { value: value.clone(), last_updated_at_ms: *last_updated_at_ms };
                kv.insert(key.clone(), entry);
            }
            EventKind::KeyValueCleared { key } => drop(kv.remove(key)),
            EventKind::KeyValuesCleared => kv.clear(),
            _ => {}
        }
    }
}

fn is_nondeterminism(outcome: &TurnOutcome) -> bool {
    matches!(outcome, TurnOutcome::Failed { details } if details.category() == "configuration")
}

fn start(input: &str, carried: Vec<(String, String)>, status: Option<String>) -> EventKind {
    EventKind::OrchestrationStarted {
        name: "Ship".into(),
        version: "1.2.0".into(),
        input: input.into(),
        parent_instance: Some("parent".into()),
        parent_id: Some(3),
        parent_execution_id: Some(1),
        carry_forward_events: (!carried.is_empty()).then_some(carried),
        initial_custom_status: status,
    }
}

/// Runs a program in its environment, with all its successors. Returns how its turns ended.
fn run_program(program: &Program, batches: &[Vec<NextMessage>]) -> BTreeSet<&'static str> {
    let mut execution = ProgramExecution::new(program, 1, HashMap::new(), start("0", vec![], None));
    let mut waiting: Vec<WorkItem> = vec![];
    let mut batches = batches.iter();
    let mut seen = BTreeSet::new();
    loop {
        let turn = execution.turn(std::mem::take(&mut waiting));
        match &turn.outcome {
            TurnOutcome::Continue => seen.insert("waits"),
            TurnOutcome::ContinuedAsNew { .. } => seen.insert("continues as new"),
            TurnOutcome::Completed { .. } => seen.insert("completes"),
            TurnOutcome::Failed { .. } => seen.insert("fails"),
            TurnOutcome::Cancelled { .. } => seen.insert("is cancelled"),
        };
        if let Some(item @ WorkItem::ContinueAsNew { .. }) = turn.orchestrator_items.first() {
            (execution, waiting) = successor(program, &execution, item);
            continue;
        }
        let ended = turn.outcome != TurnOutcome::Continue;
        let Some(batch) = batches.next().filter(|_| !ended) else { return seen };
        waiting = batch.iter().filter_map(|next| execution.environment.message(next)).collect();
    }
}

/// The next execution of an instance, and the messages that it gets.
fn successor(
    program: &Program,
    execution: &ProgramExecution,
    item: &WorkItem,
) -> (ProgramExecution, Vec<WorkItem>) {
    let WorkItem::ContinueAsNew { input, carry_forward_events, initial_custom_status, .. } = item else {
        panic!("not a successor: {item:?}")
    };
    let carried = carry_forward_events.iter().map(|(name, data)| queue_message(name, data)).collect();
    let start = start(input, carry_forward_events.clone(), initial_custom_status.clone());
    (
        ProgramExecution::new(program, execution.environment.execution_id + 1, execution.kv.clone(), start),
        carried,
    )
}

/// The combinations that a program has, by name.
fn combinations_in(program: &Program) -> impl Iterator<Item = &'static str> {
    program.iter().filter_map(|step| match step {
        ProgramStep::Combined(combination) => Some(match combination {
            Combination::JoinAll(_) => "join_all",
            Combination::Unordered(_) => "FuturesUnordered",
            Combination::Buffered(..) => "buffer_unordered",
            Combination::SelectAll(..) => "select_all",
            Combination::TokioJoin(..) => "tokio::join!",
            Combination::Yielding(..) => "yields",
            Combination::GiveUpRead(..) => "gives up a read",
            Combination::Channel(_) => "channel",
            Combination::Retries => "retries",
        }),
        _ => None,
    })
}

#[test]
fn programs_with_every_combination_complete() {
    let mut runner = TestRunner::deterministic();
    let mut completed = BTreeSet::new();
    for _ in 0..1000 {
        let program = programs().new_tree(&mut runner).unwrap().current();
        let batches = message_batches().new_tree(&mut runner).unwrap().current();
        if run_program(&program, &batches).contains("completes") {
            completed.extend(combinations_in(&program));
        }
    }
    assert_eq!(completed.len(), 9, "only these were in programs that completed: {completed:?}");
}

#[test]
fn random_programs_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..1000 {
        let program = programs().new_tree(&mut runner).unwrap().current();
        let batches = message_batches().new_tree(&mut runner).unwrap().current();
        seen.extend(run_program(&program, &batches));
    }
    let every = ["completes", "continues as new", "fails", "is cancelled", "waits"];
    assert_eq!(seen, every.into_iter().collect());
}

proptest! {
    // PROPTEST_CASES raises the number of cases.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1500),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_write_the_same_history_warm_and_cold(program in programs(), batches in message_batches()) {
        run_program(&program, &batches);
    }

    #[test]
    fn stored_history_reads_back_as_it_was_written(program in programs(), batches in message_batches()) {
        let mut execution = ProgramExecution::new(&program, 1, HashMap::new(), start("9", vec![], None));
        execution.turn(vec![]);
        for batch in &batches {
            if execution.harness.history().iter().any(Event::is_terminal) {
                break;
            }
            let messages: Vec<WorkItem> = batch.iter().filter_map(|next| execution.environment.message(next)).collect();
            execution.turn(messages);
        }
        let json = serde_json::to_string(execution.harness.history()).unwrap();
        let read: Vec<Event> = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(read, execution.harness.history());
    }

    #[test]
    fn splitting_a_batch_never_makes_a_history_unreplayable(program in programs(), batches in message_batches()) {
        let single: Vec<Vec<NextMessage>> = batches.into_iter().flatten().map(|next| vec![next]).collect();
        run_program(&program, &single);
    }
}
