//! A provider under test beside the in-memory one.

use std::sync::Arc;

use everturn_provider::store::Feature;
use everturn_provider::{ManualClock, MemoryProvider, Provider};

use super::answer::AnswerKind;
use super::op::{INSTANCES, Op};
use super::op_parts::{Filter, Tags};
use super::op_sequences::at_once;
use super::tracked_store::{BEGINNING_MS, TrackedStore};
use crate::factory::ProviderFactory;
use crate::image::image_of;
use crate::plain_provider::PlainProvider;

/// What can be seen is compared after each so many operations, and at the end.
const LOOK_EVERY: usize = 12;
/// Longer than any lock, lease, delay or timer of an operation.
const PAST_EVERYTHING_MS: u64 = 100_000_000;

/// Two providers that must answer alike.
pub(super) struct Comparison<F> {
    reference: TrackedStore,
    subject: TrackedStore,
    applied: usize,
    /// The store of the subject lives as long as its factory.
    _factory: F,
}

impl<F: ProviderFactory> Comparison<F> {
    pub(super) async fn open(factory: F) -> Self {
        let clock = factory.clock();
        clock.set_wall_ms(BEGINNING_MS);
        let subject = TrackedStore::of(factory.open().await, clock);
        let reference = reference(subject.store().supports(Feature::WarmInstances));
        Self { reference, subject, applied: 0, _factory: factory }
    }

    /// Carries out an operation on both; an error says how the answers differ.
    pub(super) async fn apply(&mut self, op: &Op) -> Result<AnswerKind, String> {
        let expected = at_once(self.reference.apply(op));
        let answered = self.subject.apply(op).await;
        let is_alike = if op.is_malformed() { answered.kind == expected.kind } else { answered == expected };
        if !is_alike {
            return Err(format!("{op:?}\nexpected {expected:?}\nanswered {answered:?}"));
        }
        self.applied += 1;
        if self.applied.is_multiple_of(LOOK_EVERY) {
            self.look().await?;
        }
        Ok(expected.kind)
    }

    /// Compares all that can be seen.
    async fn look(&self) -> Result<(), String> {
        let expected = at_once(image_of(self.reference.store(), &INSTANCES));
        let seen = image_of(self.subject.store(), &INSTANCES).await;
        if seen == expected {
            return Ok(());
        }
        Err(format!("the store after {} operations\nexpected\n{expected}\nseen\n{seen}", self.applied))
    }

    /// Compares all that can be seen, then all that is still queued.
    pub(super) async fn end(mut self) -> Result<(), String> {
        self.look().await?;
        self.apply(&Op::Pass { ms: PAST_EVERYTHING_MS }).await?;
        let lock_ms = PAST_EVERYTHING_MS;
        let fetch =
            Op::FetchTurns { turns_max: 3, lock_ms, filter: Filter::Everything, kept: false, handlers: None };
        while self.apply(&fetch).await? == AnswerKind::Done {}
        let owner = Some(("the last worker", lock_ms));
        let fetch = Op::FetchWork { work_max: 3, lock_ms, owner, tags: Tags::AnyTag, handlers: None };
        while self.apply(&fetch).await? == AnswerKind::Done {}
        self.look().await
    }
}

/// The in-memory provider; behind the adapter if the subject keeps no instances warm.
fn reference(has_warm_instances: bool) -> TrackedStore {
    if has_warm_instances {
        return TrackedStore::in_memory();
    }
    let clock = Arc::new(ManualClock::new(BEGINNING_MS));
    let memory: Arc<dyn Provider> = Arc::new(MemoryProvider::with_clock(clock.clone()));
    TrackedStore::of(Arc::new(PlainProvider::over(memory)), clock)
}
