//! Which operations on activities are tried next.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Union};

use super::choices::{
    Choice, activity, delay_ms, handlers, instance, lasting_ms, message, missing, moment_ms, mostly,
    turn_token, work_token,
};
use super::op::{INSTANCES, Op};
use super::op_parts::{Item, Settled, Tags, Token};
use super::store_summary::StoreSummary;
use super::tracked_store::{TrackedStore, TrackedWork};

pub(super) fn choices(tracked: &TrackedStore, summary: &StoreSummary) -> Vec<Choice> {
    let is_held = !tracked.live_works().is_empty();
    let is_waiting = summary.activities_wait;
    let enqueue = mostly(10, activity(), message(summary)).prop_map(|item| Op::EnqueueForWorker { item });
    let fetched = || (lasting_ms(), weighted(0.75, (owner(), lease_ms())), tags());
    let fetch = fetched().prop_map(|(lock_ms, owner, tags)| Op::FetchWorkItem { lock_ms, owner, tags });
    let fetch_many =
        (1..4_usize, fetched(), handlers()).prop_map(|(work_max, (lock_ms, owner, tags), handlers)| {
            Op::FetchWork {
                // A lock that ends at once locks nothing: then the same activity comes again and again.
                work_max: if lock_ms == 0 { 1 } else { work_max },
                lock_ms,
                owner,
                tags,
                handlers,
            }
        });
    let abandon = (work_token(tracked), delay_ms(), any::<bool>(), any::<bool>(), missing()).prop_map(
        |(token, delay_ms, refund, is_plain, missing)| {
            if is_plain {
                Op::AbandonWorkItem { token, delay_ms, refund }
            } else {
                // Without a delay a missing handler says nothing.
                let delay_ms = delay_ms.or(missing.map(|_| 5_000));
                Op::SettleWork { token, settled: Settled::Abandoned { delay_ms, refund, missing } }
            }
        },
    );
    let renew = (work_token(tracked), lasting_ms())
        .prop_map(|(token, extend_ms)| Op::RenewWorkItemLock { token, extend_ms });
    let any_token = Union::new(vec![turn_token(tracked), work_token(tracked)]);
    let owners = || vec(owner(), 0..4);
    let renewal = (vec(any_token, 0..4), weighted(0.3, owners()), lasting_ms(), moment_ms());
    let renew_many = renewal.prop_map(|(mut tokens, owners, extend_ms, idle_ms)| {
        // A renewal names each lock once.
        let mut seen = Vec::new();
        tokens.retain(|token| {
            let is_new = !seen.contains(token);
            seen.push(*token);
            is_new
        });
        Op::Renew { tokens, owners, extend_ms, idle_ms }
    });
    let renew_sessions = (owners(), lasting_ms(), moment_ms())
        .prop_map(|(owners, extend_ms, idle_ms)| Op::RenewSessionLock { owners, extend_ms, idle_ms });
    let sweep =
        proptest::option::of(moment_ms()).prop_map(|dead_letter_after_ms| Op::Sweep { dead_letter_after_ms });
    vec![
        (if is_waiting { 5 } else { 10 }, enqueue.boxed()),
        (if is_waiting { 9 } else { 2 }, fetch.boxed()),
        (if is_waiting { 9 } else { 2 }, fetch_many.boxed()),
        (if is_held { 16 } else { 1 }, end(tracked)),
        (if is_held { 9 } else { 1 }, abandon.boxed()),
        (if is_held { 3 } else { 1 }, renew.boxed()),
        (3, renew_many.boxed()),
        (if summary.has_live_lease { 9 } else { 2 }, renew_sessions.boxed()),
        (if summary.has_dead_lease { 90 } else { 1 }, Just(Op::CleanupOrphanedSessions).boxed()),
        (if summary.has_dead_lease { 90 } else { 3 }, sweep.boxed()),
    ]
}

/// The end of an activity: mostly with its own completion, sometimes without one or with a wrong one.
fn end(tracked: &TrackedStore) -> BoxedStrategy<Op> {
    let held: Vec<TrackedWork> =
        (0..6).filter_map(|age| tracked.work_of(Token::Work(age)).cloned()).collect();
    work_token(tracked)
        .prop_flat_map(move |token| {
            let work = match token {
                Token::Work(age) => held.get(age),
                Token::Turn(_) | Token::NeverIssued => None,
            };
            let known = INSTANCES.into_iter().find(|known| work.is_some_and(|work| work.instance == *known));
            let (instance, id) = (known.unwrap_or("a"), work.map_or(1, |work| work.id));
            let outcomes = vec![Item::ActivityDone(instance, id), Item::ActivityBroke(instance, id)];
            let completion = weighted(0.8, mostly(12, select(outcomes), odd_completion()));
            (Just(token), completion, any::<bool>())
        })
        .prop_map(|(token, completion, is_plain)| {
            if is_plain {
                Op::AckWorkItem { token, completion }
            } else {
                Op::SettleWork { token, settled: Settled::Ended(completion) }
            }
        })
        .boxed()
}

/// What cannot complete an activity.
fn odd_completion() -> impl Strategy<Value = Item> {
    let signal = instance().prop_map(Item::Signal);
    Union::new(vec![signal.boxed(), activity().boxed()])
}

/// Leases end sooner than locks, so that sessions change their owners.
fn lease_ms() -> impl Strategy<Value = u64> {
    Union::new_weighted(vec![(2, Just(5_000)), (3, Just(1_000)), (2, Just(30_000)), (2, Just(0))])
}

fn owner() -> impl Strategy<Value = &'static str> {
    select(&["worker one", "worker two"][..])
}

fn tags() -> impl Strategy<Value = Tags> {
    let tag = || select(&["gpu", "cpu"][..]);
    Union::new_weighted(vec![
        (5, Just(Tags::AnyTag).boxed()),
        (4, Just(Tags::Untagged).boxed()),
        (2, tag().prop_map(Tags::Tagged).boxed()),
        (2, tag().prop_map(Tags::UntaggedAnd).boxed()),
        (1, Just(Tags::NoTag).boxed()),
    ])
}
