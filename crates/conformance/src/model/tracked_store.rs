//! A store with everything that an operation may refer to: the tokens that its fetches returned, and its clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::{LentInstance, Stamp, WarmView};
use everturn_provider::{Clock, ManualClock, MemoryProvider, Provider, ProviderAdmin, store_of};

use super::answer::ComparedAnswer;
use super::op::Op;
use super::op_parts::{Item, Token};
use crate::harness::StoreHandle;
use crate::items;

/// The time at which every sequence begins.
pub(crate) const BEGINNING_MS: u64 = 1_700_000_000_000;
/// Stamps of operations are smaller than this; stamps that a store draws are not.
pub(crate) const GIVEN_STAMPS_MAX: u64 = 1_000;

/// A store and what its fetches returned.
pub(crate) struct TrackedStore {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) store: StoreHandle,
    pub(super) clock: Arc<ManualClock>,
    pub(super) turns: Vec<TrackedTurn>,
    pub(super) works: Vec<TrackedWork>,
    pub(super) kept_turns: Arc<KeptTurns>,
    /// When the leases end that worker fetches got.
    pub(super) leases_ms: Vec<u64>,
    /// The same of sessions of which an activity has ended.
    pub(super) idle_leases_ms: Vec<u64>,
    /// The last look into the orchestrator queue found nothing, and nothing was done since that may change it.
    pub(super) found_nothing: bool,
}

/// A turn that a fetch returned.
#[derive(Debug, Clone)]
pub(crate) struct TrackedTurn {
    pub(crate) token: String,
    pub(crate) instance: String,
    pub(crate) execution: u64,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) locked_until_ms: u64,
    pub(crate) ended: bool,
}

/// An activity that a fetch returned.
#[derive(Debug, Clone)]
pub(crate) struct TrackedWork {
    pub(crate) token: String,
    pub(crate) instance: String,
    pub(crate) id: u64,
    /// Until when its session was leased for it.
    pub(crate) leased_until_ms: Option<u64>,
    pub(crate) locked_until_ms: u64,
    pub(crate) ended: bool,
}

/// What a runtime keeps in memory: the last turn it committed, of each instance.
#[derive(Debug, Default)]
pub(crate) struct KeptTurns {
    kept: Mutex<Vec<(String, u64, Stamp)>>,
    asked: Mutex<Vec<String>>,
    check_ins: AtomicUsize,
}

impl KeptTurns {
    pub(super) fn keep(&self, instance: &str, execution: u64, stamp: Stamp) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(name, ..)| name != instance);
        kept.push((instance.to_owned(), execution, stamp));
        self.check_ins.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn check_ins(&self) -> usize {
        self.check_ins.load(Ordering::SeqCst)
    }

    /// What the store asked for since the last call.
    pub(super) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The view of the kept turns that a fetch passes to the store.
pub(super) struct KeptTurnsView {
    pub(super) kept_turns: Arc<KeptTurns>,
    pub(super) lends: bool,
}

impl WarmView for KeptTurnsView {
    fn lend(&self, instance: &str, execution: u64, stamp: Stamp) -> Option<LentInstance> {
        let asked = format!("{instance} {execution} {}", shown_stamp(Some(stamp)));
        self.kept_turns.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        self.holds(instance, execution, stamp).then(|| LentInstance::new(()))
    }

    fn holds(&self, instance: &str, execution: u64, stamp: Stamp) -> bool {
        let kept = self.kept_turns.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept =
            kept.iter().any(|entry| (entry.0.as_str(), entry.1, entry.2) == (instance, execution, stamp));
        self.lends && is_kept
    }
}

/// A stamp as it can be compared: two stores draw different ones.
pub(super) fn shown_stamp(stamp: Option<Stamp>) -> String {
    match stamp {
        None => "no stamp".to_owned(),
        Some(Stamp(stamp)) if stamp < GIVEN_STAMPS_MAX => format!("stamp {stamp}"),
        Some(_) => "a drawn stamp".to_owned(),
    }
}

impl TrackedStore {
    /// The in-memory provider: the reference.
    pub(crate) fn in_memory() -> Self {
        let clock = Arc::new(ManualClock::new(BEGINNING_MS));
        Self::of(Arc::new(MemoryProvider::with_clock(clock.clone())), clock)
    }

    pub(crate) fn of(provider: Arc<dyn Provider>, clock: Arc<ManualClock>) -> Self {
        let store = StoreHandle::new(store_of(Arc::clone(&provider)));
        Self {
            store,
            provider,
            clock,
            turns: Vec::new(),
            works: Vec::new(),
            kept_turns: Arc::default(),
            leases_ms: Vec::new(),
            idle_leases_ms: Vec::new(),
            found_nothing: false,
        }
    }

    pub(crate) fn store(&self) -> &StoreHandle {
        &self.store
    }

    pub(super) fn admin(&self) -> &dyn ProviderAdmin {
        self.store.admin()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    pub(super) fn pass(&mut self, ms: u64) -> ComparedAnswer {
        self.found_nothing = false;
        self.clock.advance(Duration::from_millis(ms));
        ComparedAnswer::done(self.provider.now_ms())
    }

    pub(super) fn token(&self, token: Token) -> String {
        let found = match token {
            Token::Turn(age) => nth_newest(&self.turns, age).map(|turn| &turn.token),
            Token::Work(age) => nth_newest(&self.works, age).map(|work| &work.token),
            Token::NeverIssued => None,
        };
        found.cloned().unwrap_or_else(|| "never issued".to_owned())
    }

    /// The turn that a token belongs to, if it is one of a turn.
    pub(crate) fn turn_of(&self, token: Token) -> Option<&TrackedTurn> {
        match token {
            Token::Turn(age) => nth_newest(&self.turns, age),
            Token::Work(_) | Token::NeverIssued => None,
        }
    }

    /// The activity that a token belongs to, if it is one of an activity.
    pub(crate) fn work_of(&self, token: Token) -> Option<&TrackedWork> {
        match token {
            Token::Work(age) => nth_newest(&self.works, age),
            Token::Turn(_) | Token::NeverIssued => None,
        }
    }

    /// Records a renewal or the end of a lock.
    pub(super) fn note(&mut self, token: Token, extended_ms: Option<u64>) {
        let locked_until_ms = extended_ms.map(|ms| self.now_ms().saturating_add(ms));
        let (until, ended) = match token {
            Token::Turn(age) => match nth_newest_mut(&mut self.turns, age) {
                Some(turn) => (&mut turn.locked_until_ms, &mut turn.ended),
                None => return,
            },
            Token::Work(age) => match nth_newest_mut(&mut self.works, age) {
                Some(work) => (&mut work.locked_until_ms, &mut work.ended),
                None => return,
            },
            Token::NeverIssued => return,
        };
        match locked_until_ms {
            Some(moment) => *until = moment,
            None => *ended = true,
        }
    }

    /// The tokens of turns whose locks should not have ended.
    pub(crate) fn live_turns(&self) -> Vec<Token> {
        let now_ms = self.now_ms();
        let turns = self.turns.iter().rev().enumerate();
        turns
            .filter(|(_, turn)| !turn.ended && now_ms < turn.locked_until_ms)
            .map(|(age, _)| Token::Turn(age))
            .collect()
    }

    /// The same for activities.
    pub(crate) fn live_works(&self) -> Vec<Token> {
        let now_ms = self.now_ms();
        let works = self.works.iter().rev().enumerate();
        works
            .filter(|(_, work)| !work.ended && now_ms < work.locked_until_ms)
            .map(|(age, _)| Token::Work(age))
            .collect()
    }

    /// Checks that no fetch returned this token before.
    pub(super) fn assert_fresh(&self, token: &str) {
        let known =
            self.turns.iter().map(|turn| &turn.token).chain(self.works.iter().map(|work| &work.token));
        assert!(known.into_iter().all(|known| known != token), "two fetches returned token {token}");
    }

    /// Carries out an operation.
    pub(crate) async fn apply(&mut self, op: &Op) -> ComparedAnswer {
        match op {
            Op::Pass { ms } => self.pass(*ms),
            Op::FetchTurns { .. }
            | Op::CommitTurn { .. }
            | Op::AbandonTurn { .. }
            | Op::Submit { .. }
            | Op::FetchOrchestrationItem { .. }
            | Op::AckOrchestrationItem { .. }
            | Op::AbandonOrchestrationItem { .. }
            | Op::RenewOrchestrationItemLock { .. }
            | Op::EnqueueForOrchestrator { .. } => self.apply_to_turns(op).await,
            Op::FetchWork { .. }
            | Op::SettleWork { .. }
            | Op::Renew { .. }
            | Op::Sweep { .. }
            | Op::EnqueueForWorker { .. }
            | Op::FetchWorkItem { .. }
            | Op::AckWorkItem { .. }
            | Op::AbandonWorkItem { .. }
            | Op::RenewWorkItemLock { .. }
            | Op::RenewSessionLock { .. }
            | Op::CleanupOrphanedSessions => self.apply_to_works(op).await,
            Op::ReadExecution { .. }
            | Op::ReadStatus { .. }
            | Op::ReadOrchestrationName { .. }
            | Op::ReadCustomStatus { .. }
            | Op::ReadKvValue { .. }
            | Op::ReadKvValues { .. }
            | Op::ReadStats { .. }
            | Op::AppendWithExecution { .. }
            | Op::Read { .. }
            | Op::ReadWithExecution { .. }
            | Op::GetCustomStatus { .. }
            | Op::GetKvValue { .. }
            | Op::GetKvAllValues { .. }
            | Op::GetInstanceStats { .. } => self.apply_to_histories(op).await,
            _ => self.administer(op).await,
        }
    }
}

fn nth_newest<T>(list: &[T], age: usize) -> Option<&T> {
    list.iter().rev().nth(age)
}

fn nth_newest_mut<T>(list: &mut [T], age: usize) -> Option<&mut T> {
    list.iter_mut().rev().nth(age)
}

/// The work item that an operation means.
pub(super) fn work_item(item: Item) -> WorkItem {
    match item {
        Item::Start(instance) => items::start(instance),
        Item::StartUnversioned(instance) => items::start_without_version(instance),
        Item::StartChild(instance, parent) => items::start_child(instance, parent),
        Item::NextExecution(instance) => items::continue_as_new(instance),
        Item::Signal(instance) => items::signal(instance, "go"),
        Item::QueueMessage(instance) => items::queue_message(instance, "data"),
        Item::Cancel(instance) => items::cancel(instance),
        Item::Timer { instance, at_ms } => items::timer(instance, 2, BEGINNING_MS + at_ms),
        Item::ActivityDone(instance, id) => items::activity_completed(instance, id),
        Item::ActivityBroke(instance, id) => items::activity_failed(instance, id),
        Item::ChildDone(instance) => items::child_completed(instance),
        Item::ChildBroke(instance) => items::child_failed(instance),
        Item::Activity { instance, execution, id, session, tag } => WorkItem::ActivityExecute {
            instance: instance.to_owned(),
            execution_id: execution,
            id,
            name: "Charge".to_owned(),
            input: format!("input {id}"),
            session_id: session.map(str::to_owned),
            tag: tag.map(str::to_owned),
        },
    }
}
