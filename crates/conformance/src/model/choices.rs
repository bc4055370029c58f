//! The values that operations are made of.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Union};

use super::op::{INSTANCES, Op};
use super::op_parts::{Handler, Item, NewEvent, Token};
use super::store_summary::StoreSummary;
use super::tracked_store::TrackedStore;

/// One of several operations, with its weight.
pub(super) type Choice = (u32, BoxedStrategy<Op>);

/// One that exists, more often than not.
pub(super) fn known_instance(summary: &StoreSummary) -> BoxedStrategy<&'static str> {
    if summary.known.is_empty() {
        return instance().boxed();
    }
    Union::new_weighted(vec![(3, select(summary.known.clone()).boxed()), (2, instance().boxed())]).boxed()
}

pub(super) fn instance() -> impl Strategy<Value = &'static str> + Clone {
    select(&INSTANCES[..])
}

/// How long a lock or a lease lasts; 0 ends at once.
pub(super) fn lasting_ms() -> impl Strategy<Value = u64> {
    Union::new_weighted(vec![(12, Just(30_000)), (3, Just(5_000)), (2, Just(1_000)), (1, Just(0))])
}

pub(super) fn delay_ms() -> impl Strategy<Value = Option<u64>> {
    weighted(0.2, select(&[0, 1, 1_000, 5_000, 60_000][..]))
}

/// The handler that work is given back for the lack of.
pub(super) fn missing() -> impl Strategy<Value = Option<Handler>> {
    weighted(0.4, handler())
}

/// The handlers of a fetch, if it says what it has.
pub(super) fn handlers() -> impl Strategy<Value = Option<Vec<Handler>>> {
    weighted(0.6, vec(handler(), 0..3))
}

fn handler() -> impl Strategy<Value = Handler> {
    select(&[Handler::One, Handler::Two, Handler::TwoExactly][..])
}

pub(super) fn execution() -> impl Strategy<Value = u64> {
    Union::new_weighted(vec![(6, Just(1_u64)), (4, Just(2)), (2, Just(3)), (1, Just(7))])
}

/// A moment, counted from the beginning.
pub(super) fn moment_ms() -> impl Strategy<Value = u64> {
    select(&[0_u64, 1, 1_000, 5_000, 30_000, 100_000, 1_000_000][..])
}

/// Mostly a token whose lock has not ended; sometimes another one.
pub(super) fn token(
    live: Vec<Token>,
    kind: fn(usize) -> Token,
    other: fn(usize) -> Token,
) -> BoxedStrategy<Token> {
    let any_age = (0..6_usize).prop_map(kind).boxed();
    let other_kind = (0..3_usize).prop_map(other).boxed();
    let mut tokens = vec![(2, any_age), (1, other_kind), (1, Just(Token::NeverIssued).boxed())];
    if !live.is_empty() {
        tokens.push((24, select(live).boxed()));
    }
    Union::new_weighted(tokens).boxed()
}

pub(super) fn turn_token(tracked: &TrackedStore) -> BoxedStrategy<Token> {
    token(tracked.live_turns(), Token::Turn, Token::Work)
}

pub(super) fn work_token(tracked: &TrackedStore) -> BoxedStrategy<Token> {
    token(tracked.live_works(), Token::Work, Token::Turn)
}

pub(super) fn event() -> impl Strategy<Value = NewEvent> {
    let key = || select(&["k", "key two", ""][..]);
    let value = select(&["v", "value two", ""][..]);
    Union::new_weighted(vec![
        (4, Just(NewEvent::Scheduled).boxed()),
        (2, Just(NewEvent::Started).boxed()),
        (1, (0..3_usize).prop_map(NewEvent::StartedCarrying).boxed()),
        (1, Just(NewEvent::Completed).boxed()),
        (1, Just(NewEvent::Failed).boxed()),
        (1, Just(NewEvent::ContinuedAsNew).boxed()),
        (3, select(&["s", "status two", ""][..]).prop_map(NewEvent::StatusSet).boxed()),
        (1, Just(NewEvent::StatusCleared).boxed()),
        (7, (key(), value).prop_map(|(key, value)| NewEvent::KeySet(key, value)).boxed()),
        (2, key().prop_map(NewEvent::KeyCleared).boxed()),
        (1, Just(NewEvent::KeysCleared).boxed()),
    ])
}

/// Events with ids from `next_id` on; sometimes with one that is 0, or there already, or far ahead.
pub(super) fn events(next_id: u64, at_most: usize) -> impl Strategy<Value = Vec<(u64, NewEvent)>> {
    let spoilt = weighted(0.1, (any::<u8>(), select(vec![0, 1, next_id, next_id + 20])));
    (proptest::collection::vec(event(), 0..=at_most), spoilt).prop_map(move |(events, spoilt)| {
        let mut events: Vec<(u64, NewEvent)> = (next_id..).zip(events).collect();
        if let Some((at, id)) = spoilt
            && !events.is_empty()
        {
            let at = usize::from(at) % events.len();
            events[at].0 = id;
        }
        // Only the first event of an execution is a start: the contract says nothing of any other history.
        for (id, event) in &mut events {
            if *id != 1 && matches!(event, NewEvent::Started | NewEvent::StartedCarrying(_)) {
                *event = NewEvent::Scheduled;
            }
        }
        events
    })
}

/// Two sessions that many activities share, and some that few do: those end.
fn session() -> impl Strategy<Value = &'static str> {
    select(&["s1", "s1", "s2", "s3", "s4", "s5", "s6"][..])
}

pub(super) fn activity() -> impl Strategy<Value = Item> {
    let session = weighted(0.4, session());
    let tag = weighted(0.25, select(&["gpu", "cpu"][..]));
    (instance(), 1..3_u64, 1..7_u64, session, tag).prop_map(|(instance, execution, id, session, tag)| {
        Item::Activity { instance, execution, id, session, tag }
    })
}

/// The parent that an instance may have.
pub(super) fn parent_of(instance: &str) -> Option<&'static str> {
    match instance {
        "c" => Some("a"),
        "d" => Some("c"),
        _ => None,
    }
}

/// Any message, for a known instance more often than not.
pub(super) fn message(summary: &StoreSummary) -> BoxedStrategy<Item> {
    let known = || known_instance(summary);
    let of = |item: fn(&'static str) -> Item| known().prop_map(item).boxed();
    let starts = if summary.known.len() < 3 { 30 } else { 4 };
    let start = instance().prop_map(|instance| match parent_of(instance) {
        Some(parent) => Item::StartChild(instance, parent),
        None => Item::Start(instance),
    });
    Union::new_weighted(vec![
        (starts, start.boxed()),
        (1, of(Item::StartUnversioned)),
        (2, of(Item::NextExecution)),
        (6, of(Item::Signal)),
        (3, of(Item::QueueMessage)),
        (2, of(Item::Cancel)),
        (2, (known(), moment_ms()).prop_map(|(instance, at_ms)| Item::Timer { instance, at_ms }).boxed()),
        (1, (known(), 1..7_u64).prop_map(|(instance, id)| Item::ActivityDone(instance, id)).boxed()),
        (1, (known(), 1..7_u64).prop_map(|(instance, id)| Item::ActivityBroke(instance, id)).boxed()),
        (1, of(Item::ChildDone)),
        (1, of(Item::ChildBroke)),
    ])
    .boxed()
}

/// Mostly the first, one time in so many the second.
pub(super) fn mostly(
    one_in: u32,
    usual: impl Strategy<Value = Item> + 'static,
    odd: impl Strategy<Value = Item> + 'static,
) -> impl Strategy<Value = Item> {
    Union::new_weighted(vec![(one_in - 1, usual.boxed()), (1, odd.boxed())])
}
