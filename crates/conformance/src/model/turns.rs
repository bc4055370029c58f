//! The operations on the orchestrator queue and its locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind, SemverRange};
use everturn_provider::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier, Stamp,
    TurnCommit,
};
use semver::Version;

use super::answer::Answer;
use super::op::{Base, Decided, Ev, Filter, Naming, Op, Token};
use super::world::{GIVEN_STAMPS_MAX, HeldTurn, ShelfView, World, shown_stamp, work_item};
use crate::events;
use crate::items::{NAME, VERSION};

impl World {
    pub(super) async fn apply_to_turns(&mut self, op: &Op) -> Answer {
        self.found_nothing = false;
        match op {
            Op::FetchOrchestrationItem { lock_ms, filter } => self.fetch(*lock_ms, *filter).await,
            Op::FetchTurn { lock_ms, filter, kept } => self.fetch_turn(*lock_ms, *filter, *kept).await,
            Op::AckOrchestrationItem { token, decided } => self.ack(*token, decided).await,
            Op::CommitTurn { token, decided, base, stamp } => {
                self.commit(*token, decided, *base, Stamp(*stamp)).await
            }
            Op::AbandonOrchestrationItem { token, delay_ms, refund } => {
                let delay = delay_ms.map(Duration::from_millis);
                let name = self.token(*token);
                let answer = self.provider.abandon_orchestration_item(&name, delay, *refund).await;
                self.ended_if(answer.is_ok(), *token);
                Answer::accepted(answer)
            }
            Op::RenewOrchestrationItemLock { token, extend_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                let answer =
                    self.provider.renew_orchestration_item_lock(&self.token(*token), extend_for).await;
                if answer.is_ok() {
                    self.note(*token, Some(*extend_ms));
                }
                Answer::accepted(answer)
            }
            Op::EnqueueForOrchestrator { item, delay_ms } => {
                let delay = delay_ms.map(Duration::from_millis);
                Answer::accepted(self.provider.enqueue_for_orchestrator(work_item(*item), delay).await)
            }
            other => unreachable!("{other:?} is not about turns"),
        }
    }

    async fn fetch(&mut self, lock_ms: u64, filter: Filter) -> Answer {
        let lock = Duration::from_millis(lock_ms);
        let fetched =
            self.provider.fetch_orchestration_item(lock, Duration::ZERO, capabilities(filter).as_ref()).await;
        match fetched {
            Err(error) => Answer::refused(&error),
            Ok(None) => {
                self.found_nothing = true;
                Answer::empty("nothing")
            }
            Ok(Some((item, token, attempts))) => {
                self.hold(&item, token, None, lock_ms);
                Answer::done((shown_item(item), attempts))
            }
        }
    }

    async fn fetch_turn(&mut self, lock_ms: u64, filter: Filter, lends: bool) -> Answer {
        let lock = Duration::from_millis(lock_ms);
        let view = Arc::new(ShelfView { shelf: Arc::clone(&self.shelf), lends });
        let filter = capabilities(filter);
        let fetched = self.provider.fetch_turn(lock, Duration::ZERO, filter.as_ref(), view).await;
        let asked = self.shelf.take_asked();
        match fetched {
            Err(error) => Answer::refused(&error),
            Ok(None) => {
                self.found_nothing = true;
                Answer::empty(("nothing", asked))
            }
            Ok(Some(turn)) => {
                self.hold(&turn.item, turn.lock_token, turn.stamp, lock_ms);
                let (stamp, is_warm) = (shown_stamp(turn.stamp), turn.warm.is_some());
                if is_warm {
                    // A warm turn may be told of before its lock is stored, and a reader would not see that lock yet.
                    // Whatever is answered after it is answered when both are stored.
                    let refused = self.provider.renew_orchestration_item_lock("never issued", lock).await;
                    assert!(refused.is_err(), "nobody holds that lock");
                }
                Answer::done((shown_item(turn.item), turn.attempt_count, stamp, is_warm, asked))
            }
        }
    }

    fn hold(&mut self, item: &OrchestrationItem, token: String, stamp: Option<Stamp>, lock_ms: u64) {
        self.assert_fresh(&token);
        self.turns.push(HeldTurn {
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

    async fn ack(&mut self, token: Token, decided: &Decided) -> Answer {
        let commit = self.turn_commit(token, decided, None, Stamp(0));
        let answer = self
            .provider
            .ack_orchestration_item(
                &commit.lock_token,
                commit.execution_id,
                commit.history_delta,
                commit.worker_items,
                commit.orchestrator_items,
                commit.metadata,
                commit.cancelled_activities,
            )
            .await;
        self.ended_if(answer.is_ok(), token);
        Answer::accepted(answer)
    }

    async fn commit(&mut self, token: Token, decided: &Decided, base: Base, stamp: Stamp) -> Answer {
        let base = match base {
            Base::Unchecked => None,
            Base::AsFetched => self.turn_of(token).and_then(|turn| turn.stamp),
            Base::Stale => Some(Stamp(GIVEN_STAMPS_MAX)),
        };
        let mut commit = self.turn_commit(token, decided, base, stamp);
        let (shelf, instance) = (Arc::clone(&self.shelf), self.instance_of(token));
        let execution = decided.execution;
        commit.check_in = Some(Arc::new(move || shelf.keep(&instance, execution, stamp)));
        let answer = self.provider.commit_turn(&commit).await;
        self.ended_if(answer.is_ok(), token);
        let check_ins = self.shelf.check_ins();
        Answer::of(answer, |()| Answer::done(check_ins))
    }

    fn instance_of(&self, token: Token) -> String {
        self.turn_of(token).map_or_else(|| "a".to_owned(), |turn| turn.instance.clone())
    }

    fn turn_commit(&self, token: Token, decided: &Decided, base: Option<Stamp>, stamp: Stamp) -> TurnCommit {
        let instance = self.instance_of(token);
        let named = matches!(decided.naming, Naming::Named | Naming::NameOnly);
        let versioned = matches!(decided.naming, Naming::Named | Naming::VersionOnly);
        TurnCommit {
            lock_token: self.token(token),
            execution_id: decided.execution,
            history_delta: history(&instance, decided.execution, &decided.events),
            worker_items: decided.worker_items.iter().copied().map(work_item).collect(),
            orchestrator_items: decided.orchestrator_items.iter().copied().map(work_item).collect(),
            metadata: ExecutionMetadata {
                status: decided.status.map(str::to_owned),
                output: decided.output.map(str::to_owned),
                orchestration_name: named.then(|| NAME.to_owned()),
                orchestration_version: versioned.then(|| VERSION.to_owned()),
                parent_instance_id: decided.parent.map(str::to_owned),
                pinned_engine_version: decided.pin.map(|major| Version::new(major, 0, 0)),
            },
            cancelled_activities: decided
                .cancelled
                .iter()
                .map(|(instance, execution_id, activity_id)| ScheduledActivityIdentifier {
                    instance: (*instance).to_owned(),
                    execution_id: *execution_id,
                    activity_id: *activity_id,
                })
                .collect(),
            base,
            stamp,
            check_in: None,
        }
    }
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
pub(super) fn history(instance: &str, execution: u64, listed: &[(u64, Ev)]) -> Vec<Event> {
    let event = |(id, event): &(u64, Ev)| {
        Event::stamped(*id, instance.to_owned(), execution, None, 1_000 + id, kind(*event))
    };
    listed.iter().map(event).collect()
}

fn kind(event: Ev) -> EventKind {
    match event {
        Ev::Started => events::started(),
        Ev::StartedCarrying(count) => events::started_carrying(&vec!["carried"; count]),
        Ev::Scheduled => events::scheduled(),
        Ev::Completed => events::completed("output"),
        Ev::Failed => events::failed("boom"),
        Ev::ContinuedAsNew => events::continued_as_new(),
        Ev::StatusSet(status) => events::custom_status(Some(status)),
        Ev::StatusCleared => events::custom_status(None),
        Ev::KeySet(key, value) => events::kv_set(key, value),
        Ev::KeyCleared(key) => events::kv_cleared(key),
        Ev::KeysCleared => events::kv_all_cleared(),
    }
}
