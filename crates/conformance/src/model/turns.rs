//! The operations on the orchestrator queue and its locks.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind, ExecutionStatus, SemverRange};
use everturn_provider::store::{
    ExecutionUpdate, Feature, FetchedTurn, MessageNotes, NewMessage, ParentLink, Stamp, Submission,
    TurnAbandon, TurnCommit, TurnFetch,
};
use everturn_provider::{DispatcherCapabilityFilter, OrchestrationItem, ScheduledActivityIdentifier};
use semver::Version;

use super::answer::ComparedAnswer;
use super::op::Op;
use super::op_parts::{Base, Decided, Filter, Handler, HandlerKeys, Item, Naming, NewEvent, Token};
use super::tracked_store::{
    GIVEN_STAMPS_MAX, KeptTurnsView, TrackedStore, TrackedTurn, shown_stamp, work_item,
};
use crate::events;
use crate::items::{NAME, VERSION};

impl TrackedStore {
    pub(super) async fn apply_to_turns(&mut self, op: &Op) -> ComparedAnswer {
        self.found_nothing = false;
        match op {
            Op::FetchOrchestrationItem { lock_ms, filter } => self.fetch(*lock_ms, *filter).await,
            Op::FetchTurns { turns_max, lock_ms, filter, kept, handlers } => {
                let handlers = handlers.as_deref().filter(|_| self.looks_for_handlers());
                self.fetch_turns(*turns_max, *lock_ms, *filter, *kept, handlers).await
            }
            Op::AckOrchestrationItem { token, decided } => self.ack(*token, decided).await,
            Op::CommitTurn { token, decided, base, stamp } => {
                self.commit(*token, decided, *base, Stamp(*stamp)).await
            }
            Op::AbandonTurn { token, delay_ms, refund, missing } => {
                let missing = missing.filter(|_| self.looks_for_handlers()).map(Handler::orchestration);
                let abandon = TurnAbandon::new(self.token(*token))
                    .with_delay(delay_ms.map(Duration::from_millis))
                    .with_ignored_attempt(*refund)
                    .with_missing_handler(missing);
                let answer = self.store.abandon_turn(&abandon).await;
                self.ended_if(answer.is_ok(), *token);
                ComparedAnswer::accepted(answer)
            }
            Op::Submit { messages } => self.submit(messages).await,
            Op::AbandonOrchestrationItem { token, delay_ms, refund } => {
                let delay = delay_ms.map(Duration::from_millis);
                let name = self.token(*token);
                let answer = self.provider.abandon_orchestration_item(&name, delay, *refund).await;
                self.ended_if(answer.is_ok(), *token);
                ComparedAnswer::accepted(answer)
            }
            Op::RenewOrchestrationItemLock { token, extend_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                let answer =
                    self.provider.renew_orchestration_item_lock(&self.token(*token), extend_for).await;
                if answer.is_ok() {
                    self.note(*token, Some(*extend_ms));
                }
                ComparedAnswer::accepted(answer)
            }
            Op::EnqueueForOrchestrator { item, delay_ms } => {
                let delay = delay_ms.map(Duration::from_millis);
                ComparedAnswer::accepted(
                    self.provider.enqueue_for_orchestrator(work_item(*item), delay).await,
                )
            }
            other => unreachable!("{other:?} is not about turns"),
        }
    }

    pub(super) fn looks_for_handlers(&self) -> bool {
        self.store.supports(Feature::HandlerLookup)
    }

    async fn fetch(&mut self, lock_ms: u64, filter: Filter) -> ComparedAnswer {
        let lock = Duration::from_millis(lock_ms);
        let fetched =
            self.provider.fetch_orchestration_item(lock, Duration::ZERO, capabilities(filter).as_ref()).await;
        match fetched {
            Err(error) => ComparedAnswer::refused(&error),
            Ok(None) => {
                self.found_nothing = true;
                ComparedAnswer::empty("nothing")
            }
            Ok(Some((item, token, attempts))) => {
                self.hold(&item, token, None, lock_ms);
                ComparedAnswer::done((shown_item(item), attempts))
            }
        }
    }

    /// Fetches until there are so many turns or none is left: how many come at once is the store's choice.
    async fn fetch_turns(
        &mut self,
        turns_max: usize,
        lock_ms: u64,
        filter: Filter,
        lends: bool,
        handlers: Option<&[Handler]>,
    ) -> ComparedAnswer {
        let lock = Duration::from_millis(lock_ms);
        let mut fetch = TurnFetch::new(lock, Duration::ZERO);
        fetch.filter = capabilities(filter);
        if let Some(handlers) = handlers {
            let keys = handlers.iter().map(|handler| handler.orchestration()).collect();
            fetch.handlers = Some(Arc::new(HandlerKeys(keys)));
        }
        if self.store.supports(Feature::WarmInstances) {
            fetch.warm = Some(Arc::new(KeptTurnsView { kept_turns: Arc::clone(&self.kept_turns), lends }));
        }
        let mut shown = Vec::new();
        while shown.len() < turns_max {
            fetch.turns_max = turns_max - shown.len();
            let turns = match self.store.fetch_turns(&fetch).await {
                Ok(turns) => turns,
                Err(error) => return ComparedAnswer::refused(&error),
            };
            assert!(turns.len() <= fetch.turns_max, "{} turns for {}", turns.len(), fetch.turns_max);
            if turns.is_empty() {
                self.found_nothing = true;
                break;
            }
            for turn in turns {
                shown.push(self.shown_turn(turn, lock).await);
            }
        }
        let asked = self.kept_turns.take_asked();
        ComparedAnswer::done_unless(shown.is_empty(), (shown, asked))
    }

    async fn shown_turn(&mut self, turn: FetchedTurn, lock: Duration) -> impl Debug + use<> {
        assert!(turn.lock_left <= lock, "{:?} is left of {lock:?}", turn.lock_left);
        let lock_ms = u64::try_from(lock.as_millis()).expect("locks are short");
        self.hold(&turn.item, turn.lock_token, turn.stamp, lock_ms);
        let (stamp, is_warm) = (shown_stamp(turn.stamp), turn.warm.is_some());
        if is_warm {
            // A warm turn may be returned before its lock is stored, and a reader would not see that lock yet. The
            // store answers this call when both are stored.
            let refused = self.store.renew_turn("never issued", lock).await;
            assert!(refused.is_err(), "that lock does not exist");
        }
        (shown_item(turn.item), turn.notes, turn.attempt_count, stamp, is_warm)
    }

    /// Submits messages at once, or one by one if the store takes no more.
    async fn submit(&mut self, messages: &[(Item, Option<u64>)]) -> ComparedAnswer {
        let new_message = |(item, delay_ms): &(Item, Option<u64>)| {
            NewMessage::delayed(work_item(*item), delay_ms.map(Duration::from_millis))
        };
        let all: Vec<NewMessage> = messages.iter().map(new_message).collect();
        let answer = match self.store.submit(&Submission::of_all(all.clone())).await {
            Err(error) if error.is_unsupported() => error,
            answer => return ComparedAnswer::of(answer, ComparedAnswer::done),
        };
        if messages.iter().any(|(item, _)| item.is_activity()) {
            // All or nothing: the messages before the wrong one must not be queued.
            return ComparedAnswer::refused(&answer);
        }
        let mut receipts = Vec::new();
        for message in all {
            match self.store.submit(&Submission::of(message)).await {
                Ok(receipt) => receipts.extend(receipt),
                Err(error) => return ComparedAnswer::refused(&error),
            }
        }
        ComparedAnswer::done(receipts)
    }

    fn hold(&mut self, item: &OrchestrationItem, token: String, stamp: Option<Stamp>, lock_ms: u64) {
        self.assert_fresh(&token);
        self.turns.push(TrackedTurn {
            token,
            instance: item.instance.clone(),
            execution: item.execution_id,
            stamp,
            locked_until_ms: self.now_ms().saturating_add(lock_ms),
            ended: false,
        });
    }

    pub(super) fn ended_if(&mut self, is_ended: bool, token: Token) {
        if is_ended {
            self.note(token, None);
        }
    }

    async fn ack(&mut self, token: Token, decided: &Decided) -> ComparedAnswer {
        let commit = self.turn_commit(token, decided);
        let answer = self
            .provider
            .ack_orchestration_item(
                &commit.lock_token,
                commit.execution_id,
                commit.history_delta,
                commit.worker_items.into_iter().map(|work| work.item).collect(),
                commit.orchestrator_items.into_iter().map(|message| message.item).collect(),
                commit.update.into(),
                commit.cancelled_activities,
            )
            .await;
        self.ended_if(answer.is_ok(), token);
        ComparedAnswer::accepted(answer)
    }

    async fn commit(&mut self, token: Token, decided: &Decided, base: Base, stamp: Stamp) -> ComparedAnswer {
        let base = match base {
            Base::Unchecked => None,
            Base::AsFetched => self.turn_of(token).and_then(|turn| turn.stamp),
            Base::Stale => Some(Stamp(GIVEN_STAMPS_MAX)),
        };
        let mut commit = self.turn_commit(token, decided);
        (commit.base, commit.stamp) = (base, Some(stamp));
        let (kept_turns, instance) = (Arc::clone(&self.kept_turns), self.instance_of(token));
        let execution = decided.execution;
        commit.check_in = Some(Arc::new(move || kept_turns.keep(&instance, execution, stamp)));
        let answer = self.store.commit_turn(&commit).await;
        self.ended_if(answer.is_ok(), token);
        let check_ins = self.kept_turns.check_ins();
        ComparedAnswer::of(answer, |()| ComparedAnswer::done(check_ins))
    }

    fn instance_of(&self, token: Token) -> String {
        self.turn_of(token).map_or_else(|| "a".to_owned(), |turn| turn.instance.clone())
    }

    /// The notes of a cancellation that a turn of this instance sends.
    fn notes_of_cancels(&self, instance: &str) -> MessageNotes {
        if !self.store.supports(Feature::MessageNotes) {
            return MessageNotes::default();
        }
        let call = ParentLink { instance: instance.to_owned(), execution_id: 1, schedule_id: 2 };
        MessageNotes::of_parents_cancel(call)
    }

    fn turn_commit(&self, token: Token, decided: &Decided) -> TurnCommit {
        let instance = self.instance_of(token);
        let mut commit = TurnCommit::new(self.token(token), decided.execution);
        commit.history_delta = history(&instance, decided.execution, &decided.events);
        commit.worker_items = decided.worker_items.iter().map(|item| work_item(*item).into()).collect();
        let notes = self.notes_of_cancels(&instance);
        commit.orchestrator_items = decided
            .orchestrator_items
            .iter()
            .map(|item| {
                let is_cancel = matches!(item, Item::Cancel(_));
                let notes = if is_cancel { notes.clone() } else { MessageNotes::default() };
                NewMessage::from(work_item(*item)).with_notes(notes)
            })
            .collect();
        commit.update = execution_update(decided);
        commit.cancelled_activities = decided
            .cancelled
            .iter()
            .map(|(instance, execution_id, activity_id)| ScheduledActivityIdentifier {
                instance: (*instance).to_owned(),
                execution_id: *execution_id,
                activity_id: *activity_id,
            })
            .collect();
        commit
    }
}

fn execution_update(decided: &Decided) -> ExecutionUpdate {
    let named = matches!(decided.naming, Naming::Named | Naming::NameOnly);
    let versioned = matches!(decided.naming, Naming::Named | Naming::VersionOnly);
    let mut update = ExecutionUpdate::default();
    update.status =
        decided.status.map(|name| ExecutionStatus::from_name(name).expect("the name of a status"));
    update.output = decided.output.map(str::to_owned);
    update.orchestration_name = named.then(|| NAME.to_owned());
    update.orchestration_version = versioned.then(|| VERSION.to_owned());
    update.parent_instance_id = decided.parent.map(str::to_owned);
    update.pinned_engine_version = decided.pin.map(|major| Version::new(major, 0, 0));
    update
}

/// Everything of an item, with its keys in order.
fn shown_item(mut item: OrchestrationItem) -> (OrchestrationItem, BTreeMap<String, String>) {
    let keys = std::mem::take(&mut item.kv_snapshot);
    (item, keys.into_iter().map(|(key, entry)| (key, format!("{entry:?}"))).collect())
}

fn capabilities(filter: Filter) -> Option<DispatcherCapabilityFilter> {
    let up_to_1 = || SemverRange::new(Version::new(0, 0, 0), Version::new(1, 0, 0));
    let from_2 = || SemverRange::new(Version::new(2, 0, 0), Version::new(9, 0, 0));
    let supported_engine_versions = match filter {
        Filter::Everything => return None,
        Filter::Nothing => Vec::new(),
        Filter::UpTo1 => vec![up_to_1()],
        Filter::From2 => vec![from_2()],
        Filter::UpTo1ThenFrom2 => vec![up_to_1(), from_2()],
    };
    Some(DispatcherCapabilityFilter { supported_engine_versions })
}

/// The events of an operation as they are stored.
pub(super) fn history(instance: &str, execution: u64, listed: &[(u64, NewEvent)]) -> Vec<Event> {
    let event = |(id, event): &(u64, NewEvent)| {
        Event::stamped(*id, instance.to_owned(), execution, None, 1_000 + id, kind(*event))
    };
    listed.iter().map(event).collect()
}

fn kind(event: NewEvent) -> EventKind {
    match event {
        NewEvent::Started => events::started(),
        NewEvent::StartedCarrying(count) => events::started_carrying(&vec!["carried"; count]),
        NewEvent::Scheduled => events::scheduled(),
        NewEvent::Completed => events::completed("output"),
        NewEvent::Failed => events::failed("boom"),
        NewEvent::ContinuedAsNew => events::continued_as_new(),
        NewEvent::StatusSet(status) => events::custom_status(Some(status)),
        NewEvent::StatusCleared => events::custom_status(None),
        NewEvent::KeySet(key, value) => events::kv_set(key, value),
        NewEvent::KeyCleared(key) => events::kv_cleared(key),
        NewEvent::KeysCleared => events::kv_all_cleared(),
    }
}
