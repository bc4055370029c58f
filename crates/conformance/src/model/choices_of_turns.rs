//! Which operations on turns are tried next.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Union};

use super::choices::{
    Choice, activity, delay_ms, events, handlers, instance, lasting_ms, message, missing, mostly, parent_of,
    turn_token,
};
use super::op::Op;
use super::op_parts::{Base, Decided, Filter, Item, Naming, NewEvent, Token};
use super::store_summary::StoreSummary;
use super::tracked_store::{TrackedStore, TrackedTurn};

pub(super) fn choices(tracked: &TrackedStore, summary: &StoreSummary) -> Vec<Choice> {
    let is_held = !tracked.live_turns().is_empty();
    let is_waiting = summary.messages_wait;
    let decided = || {
        let held: Vec<WritableHistories> =
            (0..6).filter_map(|age| WritableHistories::of(tracked, Token::Turn(age))).collect();
        let message = message(summary);
        turn_token(tracked)
            .prop_flat_map(move |token| {
                let turn = match token {
                    Token::Turn(age) => held.get(age),
                    Token::Work(_) | Token::NeverIssued => None,
                };
                (Just(token), decided(turn, &message))
            })
            .boxed()
    };
    let base = Union::new_weighted(vec![
        (3, Just(Base::Unchecked)),
        (5, Just(Base::AsFetched)),
        (1, Just(Base::Stale)),
    ]);
    let ack = decided().prop_map(|(token, decided)| Op::AckOrchestrationItem { token, decided });
    let commit = (decided(), base, 1..100_u64).prop_map(|((token, decided), base, stamp)| Op::CommitTurn {
        token,
        decided,
        base,
        stamp,
    });
    let abandon = (turn_token(tracked), delay_ms(), any::<bool>(), any::<bool>(), missing()).prop_map(
        |(token, delay_ms, refund, is_plain, missing)| {
            if is_plain {
                Op::AbandonOrchestrationItem { token, delay_ms, refund }
            } else {
                // Without a delay a missing handler says nothing.
                let delay_ms = delay_ms.or(missing.map(|_| 5_000));
                Op::AbandonTurn { token, delay_ms, refund, missing }
            }
        },
    );
    let renew = (turn_token(tracked), lasting_ms())
        .prop_map(|(token, extend_ms)| Op::RenewOrchestrationItemLock { token, extend_ms });
    let sent = || (mostly(16, message(summary), activity()), delay_ms());
    let enqueue = sent().prop_map(|(item, delay_ms)| Op::EnqueueForOrchestrator { item, delay_ms });
    let submit = vec(sent(), 1..4).prop_map(|messages| Op::Submit { messages });
    let fetch =
        (lasting_ms(), filter()).prop_map(|(lock_ms, filter)| Op::FetchOrchestrationItem { lock_ms, filter });
    let fetch_turns = (1..4_usize, lasting_ms(), filter(), any::<bool>(), handlers()).prop_map(
        // A lock that ends at once locks nothing: then the same instance comes again and again.
        |(turns_max, lock_ms, filter, kept, handlers)| Op::FetchTurns {
            turns_max: if lock_ms == 0 { 1 } else { turns_max },
            lock_ms,
            filter,
            kept,
            handlers,
        },
    );
    let pass = select(&[1_u64, 999, 1_000, 1_000, 5_000, 5_000, 5_000, 30_000, 31_000][..])
        .prop_map(|ms| Op::Pass { ms });
    // Reads of an empty store find nothing: create something first.
    let is_bare = summary.known.is_empty();
    let eager = if is_bare { 6 } else { 1 };
    vec![
        (if summary.has_idle_lease { 60 } else { 6 }, pass.boxed()),
        (if is_waiting { 5 } else { 12 * eager }, enqueue.boxed()),
        (if is_waiting { 5 } else { 12 * eager }, submit.boxed()),
        (if is_waiting && !is_held { 24 * eager } else { 4 }, fetch.boxed()),
        (if is_waiting && !is_held { 16 * eager } else { 4 }, fetch_turns.boxed()),
        (if is_held { 26 * eager } else { 2 }, ack.boxed()),
        (if is_held { 18 * eager } else { 2 }, commit.boxed()),
        (if is_held { 10 } else { 1 }, abandon.boxed()),
        (if is_held { 4 } else { 1 }, renew.boxed()),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    Union::new_weighted(vec![
        (8, Just(Filter::Everything)),
        (3, Just(Filter::UpTo1)),
        (2, Just(Filter::From2)),
        (1, Just(Filter::UpTo1ThenFrom2)),
        (1, Just(Filter::Nothing)),
    ])
}

/// A fetched turn, and the executions that it may write to.
struct WritableHistories {
    instance: String,
    /// Executions, each with the id of its next event and how often it is chosen. The first is the fetched one.
    executions: Vec<(u32, u64, u64)>,
}

impl WritableHistories {
    fn of(tracked: &TrackedStore, token: Token) -> Option<Self> {
        let TrackedTurn { instance, execution, .. } = tracked.turn_of(token)?;
        let executions = [(10, *execution), (6, execution + 1), (1, 1), (1, execution + 4)];
        let with_next_id =
            |(weight, execution)| (weight, execution, tracked.next_event_id(instance, execution));
        Some(Self { instance: instance.clone(), executions: executions.map(with_next_id).to_vec() })
    }
}

/// What a turn may decide that was fetched like this.
fn decided(turn: Option<&WritableHistories>, message: &BoxedStrategy<Item>) -> BoxedStrategy<Decided> {
    let parent = turn.and_then(|turn| parent_of(&turn.instance));
    let executions = turn.map_or_else(|| vec![(1, 1, 1)], |turn| turn.executions.clone());
    let execution =
        executions.into_iter().map(|(weight, execution, next_id)| (weight, Just((execution, next_id))));
    let message = message.clone();
    Union::new_weighted(execution.collect())
        .prop_flat_map(move |(execution, next_id)| {
            let items = (
                vec(mostly(30, activity(), message.clone()), 0..3),
                vec(mostly(30, message.clone(), activity()), 0..3),
                vec((instance(), 1..3_u64, 1..7_u64), 0..3),
            );
            let metadata = (naming(next_id), weighted(0.8, Just(parent)), pin(), status(), output());
            (Just(execution), history(next_id), items, metadata)
        })
        .prop_map(|(execution, events, items, metadata)| {
            let (worker_items, orchestrator_items, cancelled) = items;
            let (naming, parent, pin, status, output) = metadata;
            Decided {
                execution,
                events,
                worker_items,
                orchestrator_items,
                naming,
                parent: parent.flatten(),
                pin,
                status,
                output: output.filter(|_| status.is_some()),
                cancelled,
            }
        })
        .boxed()
}

/// A delta; the first of an execution mostly begins with its start.
fn history(next_id: u64) -> impl Strategy<Value = Vec<(u64, NewEvent)>> {
    let starts = if next_id == 1 { 0.85 } else { 0.0 };
    (events(next_id, 4), proptest::bool::weighted(starts)).prop_map(|(mut events, starts)| {
        if starts && let Some((1, first)) = events.first_mut() {
            *first = if matches!(first, NewEvent::StartedCarrying(_)) { *first } else { NewEvent::Started };
        }
        events
    })
}

fn naming(next_id: u64) -> impl Strategy<Value = Naming> {
    let (named, unnamed) = if next_id == 1 { (16, 2) } else { (3, 12) };
    Union::new_weighted(vec![
        (unnamed, Just(Naming::Unnamed)),
        (named, Just(Naming::Named)),
        (1, Just(Naming::NameOnly)),
        (1, Just(Naming::VersionOnly)),
    ])
}

fn pin() -> impl Strategy<Value = Option<u64>> {
    weighted(0.3, 1..3_u64)
}

fn status() -> impl Strategy<Value = Option<&'static str>> {
    Union::new_weighted(vec![
        (10, Just(None)),
        (3, Just(Some("Completed"))),
        (2, Just(Some("Failed"))),
        (6, Just(Some("ContinuedAsNew"))),
    ])
}

fn output() -> impl Strategy<Value = Option<&'static str>> {
    weighted(0.7, select(&["output", ""][..]))
}
