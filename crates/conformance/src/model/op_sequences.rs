//! Which sequences of operations are tried: the in-memory provider's state decides what is worth trying next.

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::strategy::{BoxedStrategy, Just, Strategy, Union};
use proptest_state_machine::ReferenceStateMachine;

use super::op::Op;
use super::store_summary::StoreSummary;
use super::tracked_store::TrackedStore;
use super::{choices_of_histories, choices_of_turns, choices_of_works};

/// The in-memory provider after some operations.
pub(crate) struct Reference {
    pub(crate) tracked: TrackedStore,
    applied: Vec<Op>,
}

impl Reference {
    /// An empty store.
    pub(crate) fn new() -> Self {
        Self { tracked: TrackedStore::in_memory(), applied: Vec::new() }
    }

    fn apply(&mut self, op: &Op) {
        at_once(self.tracked.apply(op));
        self.applied.push(op.clone());
    }
}

impl Clone for Reference {
    /// A store of its own that went through the same.
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        for op in &self.applied {
            copy.apply(op);
        }
        copy
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").field("applied", &self.applied).finish_non_exhaustive()
    }
}

/// The result of a future that never waits: the in-memory provider's, asked not to.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the in-memory provider waited although it was asked not to"),
    }
}

/// Sequences of operations that start on an empty store.
pub(crate) struct OpSequences;

impl ReferenceStateMachine for OpSequences {
    type State = Reference;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Reference> {
        // Made anew each time: a strategy is shared, a store must not be.
        Just(()).prop_map(|()| Reference::new()).boxed()
    }

    fn transitions(state: &Reference) -> BoxedStrategy<Op> {
        let tracked = &state.tracked;
        let summary = StoreSummary::at(tracked);
        let mut choices = choices_of_turns::choices(tracked, &summary);
        choices.extend(choices_of_works::choices(tracked, &summary));
        choices.extend(choices_of_histories::choices(&summary));
        Union::new_weighted(choices).boxed()
    }

    fn apply(mut state: Reference, op: &Op) -> Reference {
        state.apply(op);
        state
    }
}
