//! Random programs fed with random messages: kept in memory or replayed, they write the same history.
//!
//! The stage compares every turn of the two. Here the programs, the world that answers them, and the checks that hold
//! for any history are made.

use std::collections::{BTreeSet, HashMap, HashSet};

use everturn_core::turn::{Turn, TurnOutcome};
use everturn_core::{ErrorDetails, Event, EventKind, KvEntry, WorkItem};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::programs::{MAX_PAYLOAD, Program, programs, run};
use crate::stage::{
    Stage, StageClock, broke, cancel, child_broke, child_done, done, fired, queued, signal, to_execution,
};

/// What the world does next. Numbers choose among what is there to be chosen.
#[derive(Debug, Clone)]
enum Deed {
    Succeed(usize),
    Fail(usize),
    Repeat(usize),
    Signal(u8),
    Queue(u8),
    Stale,
    Cancel,
}

fn deeds() -> impl Strategy<Value = Vec<Vec<Deed>>> {
    let deed = prop_oneof![
        12 => any::<usize>().prop_map(Deed::Succeed),
        3 => any::<usize>().prop_map(Deed::Fail),
        1 => any::<usize>().prop_map(Deed::Repeat),
        4 => (0..2u8).prop_map(Deed::Signal),
        4 => (0..2u8).prop_map(Deed::Queue),
        1 => Just(Deed::Stale),
    ];
    let batches = prop::collection::vec(prop::collection::vec(deed, 0..5), 0..12);
    // A cancel now and then, at the end of some batch.
    (batches, prop::option::weighted(0.1, any::<prop::sample::Index>())).prop_map(
        |(mut batches, cancelled)| {
            if let Some(index) = cancelled.filter(|_| !batches.is_empty()) {
                index.get_mut(&mut batches).push(Deed::Cancel);
            }
            batches
        },
    )
}

/// The work that an instance has under way, and what was already answered.
#[derive(Default)]
struct World {
    execution_id: u64,
    open: Vec<WorkItem>,
    answered: Vec<WorkItem>,
    counter: u32,
}

impl World {
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
            WorkItem::ActivityExecute { id, .. } if fail => broke(id, &text),
            WorkItem::ActivityExecute { id, .. } => done(id, &text),
            WorkItem::TimerFired { id, .. } => fired(id),
            WorkItem::StartOrchestration { parent_id, .. } if fail => {
                child_broke(parent_id?, ErrorDetails::orchestration_failed(text))
            }
            WorkItem::StartOrchestration { parent_id, .. } => child_done(parent_id?, &text),
            _ => return None,
        };
        let answer = to_execution(self.execution_id, answer);
        self.answered.push(answer.clone());
        Some(answer)
    }

    fn act(&mut self, deed: &Deed) -> Option<WorkItem> {
        self.counter += 1;
        match deed {
            Deed::Succeed(choice) => self.answer(*choice, false),
            Deed::Fail(choice) => self.answer(*choice, true),
            Deed::Repeat(choice) if self.answered.is_empty() => self.answer(*choice, false),
            Deed::Repeat(choice) => Some(self.answered[choice % self.answered.len()].clone()),
            Deed::Signal(name) => Some(signal(&format!("s{name}"), &format!("d{}", self.counter))),
            Deed::Queue(name) => Some(queued(&format!("q{name}"), &format!("d{}", self.counter))),
            Deed::Stale => Some(to_execution(self.execution_id + 7, done(2, "stale"))),
            Deed::Cancel => Some(cancel("enough")),
        }
    }
}

/// One execution of an instance on its stage.
struct Life {
    stage: Stage,
    world: World,
    kv: HashMap<String, KvEntry>,
}

impl Life {
    fn new(program: &Program, execution_id: u64, kv: HashMap<String, KvEntry>, start: EventKind) -> Self {
        let program = program.clone();
        let stage = Stage::new(move |ctx, input| run(program.clone(), ctx, input))
            .execution(execution_id)
            .payload_max(MAX_PAYLOAD)
            .kv_snapshot(kv.clone())
            .start_event(|kind| *kind = start);
        Self { stage, world: World { execution_id, ..World::default() }, kv }
    }

    fn turn(&mut self, messages: Vec<WorkItem>) -> Turn {
        let turn = self.stage.turn_with(messages);
        assert!(!is_nondeterminism(&turn.outcome), "{:?}", turn.outcome);
        self.world.take(&turn);
        remember(&mut self.kv, &turn.history_delta);
        self.check(&turn);
        turn
    }

    /// What holds for any history, whatever the program.
    fn check(&self, turn: &Turn) {
        let history = self.stage.history();
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
            let again = self.stage.replayed().take_turn(vec![], &StageClock::of_turn(99));
            assert_eq!(again.outcome, TurnOutcome::Continue);
            assert_eq!(again.history_delta, [], "replaying what was committed decides nothing new");
            assert!(again.worker_items.is_empty() && again.orchestrator_items.is_empty());
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

/// Keeps the instance's key-value store as a provider would.
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

/// Plays a program against the world, through as many executions as it asks for. Returns how its turns ended.
fn play(program: &Program, batches: &[Vec<Deed>]) -> BTreeSet<&'static str> {
    let mut life = Life::new(program, 1, HashMap::new(), start("0", vec![], None));
    let mut waiting: Vec<WorkItem> = vec![];
    let mut batches = batches.iter();
    let mut seen = BTreeSet::new();
    loop {
        let turn = life.turn(std::mem::take(&mut waiting));
        match &turn.outcome {
            TurnOutcome::Continue => seen.insert("waits"),
            TurnOutcome::ContinuedAsNew { .. } => seen.insert("continues as new"),
            TurnOutcome::Completed { .. } => seen.insert("completes"),
            TurnOutcome::Failed { .. } => seen.insert("fails"),
            TurnOutcome::Cancelled { .. } => seen.insert("is cancelled"),
        };
        if let Some(item @ WorkItem::ContinueAsNew { .. }) = turn.orchestrator_items.first() {
            (life, waiting) = successor(program, &life, item);
            continue;
        }
        let ended = turn.outcome != TurnOutcome::Continue;
        let Some(batch) = batches.next().filter(|_| !ended) else { return seen };
        waiting = batch.iter().filter_map(|deed| life.world.act(deed)).collect();
    }
}

/// The next execution of an instance, and the messages it inherits.
fn successor(program: &Program, life: &Life, item: &WorkItem) -> (Life, Vec<WorkItem>) {
    let WorkItem::ContinueAsNew { input, carry_forward_events, initial_custom_status, .. } = item else {
        panic!("not a successor: {item:?}")
    };
    let carried = carry_forward_events.iter().map(|(name, data)| queued(name, data)).collect();
    let start = start(input, carry_forward_events.clone(), initial_custom_status.clone());
    (Life::new(program, life.world.execution_id + 1, life.kv.clone(), start), carried)
}

#[test]
fn random_programs_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..1000 {
        let program = programs().new_tree(&mut runner).unwrap().current();
        let batches = deeds().new_tree(&mut runner).unwrap().current();
        seen.extend(play(&program, &batches));
    }
    let every = ["completes", "continues as new", "fails", "is cancelled", "waits"];
    assert_eq!(seen, every.into_iter().collect());
}

proptest! {
    // PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1500),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_write_the_same_history_warm_and_cold(program in programs(), batches in deeds()) {
        play(&program, &batches);
    }

    #[test]
    fn stored_history_reads_back_as_it_was_written(program in programs(), batches in deeds()) {
        let mut life = Life::new(&program, 1, HashMap::new(), start("9", vec![], None));
        life.turn(vec![]);
        for batch in &batches {
            if life.stage.history().iter().any(Event::is_terminal) {
                break;
            }
            let messages: Vec<WorkItem> = batch.iter().filter_map(|deed| life.world.act(deed)).collect();
            life.turn(messages);
        }
        let json = serde_json::to_string(life.stage.history()).unwrap();
        let read: Vec<Event> = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(read, life.stage.history());
    }

    #[test]
    fn splitting_a_batch_never_makes_a_history_unreplayable(program in programs(), batches in deeds()) {
        let single: Vec<Vec<Deed>> = batches.into_iter().flatten().map(|deed| vec![deed]).collect();
        play(&program, &single);
    }
}
