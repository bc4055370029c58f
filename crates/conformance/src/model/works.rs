//! The operations on the worker queue, its locks and its sessions.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::{
    Feature, LockKind, LockRenewal, Renewal, SessionRenewal, Settlement, SettlementKind, Sweep, Swept,
    WorkFetch,
};
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};

use super::answer::{AnswerKind, ComparedAnswer};
use super::op::Op;
use super::op_parts::{Handler, HandlerKeys, Settled, Tags, Token};
use super::tracked_store::{TrackedStore, TrackedWork, work_item};
use crate::harness::session;
use crate::items;

impl TrackedStore {
    pub(super) async fn apply_to_works(&mut self, op: &Op) -> ComparedAnswer {
        match op {
            Op::EnqueueForWorker { item } => {
                ComparedAnswer::accepted(self.provider.enqueue_for_worker(work_item(*item)).await)
            }
            Op::FetchWorkItem { lock_ms, owner, tags } => self.fetch_one(*lock_ms, *owner, *tags).await,
            Op::AckWorkItem { token, completion } => {
                let name = self.token(*token);
                let answer = self.provider.ack_work_item(&name, completion.map(work_item)).await;
                self.work_ended(*token, answer)
            }
            Op::AbandonWorkItem { token, delay_ms, refund } => {
                let delay = delay_ms.map(Duration::from_millis);
                let name = self.token(*token);
                let answer = self.provider.abandon_work_item(&name, delay, *refund).await;
                self.ended_if(answer.is_ok(), *token);
                ComparedAnswer::accepted(answer)
            }
            Op::RenewWorkItemLock { token, extend_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                let answer = self.provider.renew_work_item_lock(&self.token(*token), extend_for).await;
                if answer.is_ok() {
                    self.note(*token, Some(*extend_ms));
                }
                ComparedAnswer::accepted(answer)
            }
            Op::FetchWork { work_max, lock_ms, owner, tags, handlers } => {
                let handlers = handlers.as_deref().filter(|_| self.looks_for_handlers());
                self.fetch_many(*work_max, *lock_ms, *owner, *tags, handlers).await
            }
            Op::SettleWork { token, settled: Settled::Ended(completion) } => {
                let completion = completion.map(work_item);
                let answer = self.store.end_work(&self.token(*token), completion).await;
                self.work_ended(*token, answer)
            }
            Op::SettleWork { token, settled: Settled::Abandoned { delay_ms, refund, missing } } => {
                let delay = delay_ms.map(Duration::from_millis);
                let missing_handler = missing.filter(|_| self.looks_for_handlers()).map(Handler::activity);
                let mut settlement = Settlement::abandon(self.token(*token), delay, *refund);
                settlement.kind = SettlementKind::Abandon { delay, ignore_attempt: *refund, missing_handler };
                let answer = self.store.settle_work(&settlement).await;
                self.ended_if(answer.is_ok(), *token);
                ComparedAnswer::accepted(answer)
            }
            Op::Renew { tokens, owners, extend_ms, idle_ms } => {
                self.renew(tokens, owners.as_deref(), *extend_ms, *idle_ms).await
            }
            Op::Sweep { dead_letter_after_ms } => self.sweep(*dead_letter_after_ms).await,
            Op::RenewSessionLock { owners, extend_ms, idle_ms } => {
                let (extend_for, idle) = (Duration::from_millis(*extend_ms), Duration::from_millis(*idle_ms));
                let renewed = self.provider.renew_session_lock(owners, extend_for, idle).await;
                ComparedAnswer::of(renewed, |count| ComparedAnswer::done_unless(count == 0, count))
            }
            Op::CleanupOrphanedSessions => {
                self.forget_ended_leases();
                let removed = self.provider.cleanup_orphaned_sessions(Duration::ZERO).await;
                ComparedAnswer::of(removed, |count| ComparedAnswer::done_unless(count == 0, count))
            }
            other => unreachable!("{other:?} is not about activities"),
        }
    }

    /// Which message of several is dead-lettered first is the store's choice.
    async fn sweep(&mut self, dead_letter_after_ms: Option<u64>) -> ComparedAnswer {
        self.forget_ended_leases();
        let mut sweep = Sweep::new(Duration::ZERO);
        if self.store.supports(Feature::DeadLetters) {
            sweep.dead_letter_after = dead_letter_after_ms.map(Duration::from_millis);
        }
        let swept = self.store.sweep(&sweep).await;
        ComparedAnswer::of(swept, |mut swept| {
            swept.dead_letters.sort();
            ComparedAnswer::done_unless(swept == Swept::default(), swept)
        })
    }

    fn forget_ended_leases(&mut self) {
        let now_ms = self.now_ms();
        self.leases_ms.retain(|end_ms| now_ms < *end_ms);
        self.idle_leases_ms.retain(|end_ms| now_ms < *end_ms);
    }

    fn work_ended(&mut self, token: Token, answer: Result<(), ProviderError>) -> ComparedAnswer {
        if answer.is_ok() {
            let lease_ms = self.work_of(token).and_then(|work| work.leased_until_ms);
            self.idle_leases_ms.extend(lease_ms);
        }
        self.ended_if(answer.is_ok(), token);
        ComparedAnswer::accepted(answer)
    }

    /// One activity through the plain verb.
    async fn fetch_one(&mut self, lock_ms: u64, owner: Option<(&str, u64)>, tags: Tags) -> ComparedAnswer {
        let (lock, session, tags) = (Duration::from_millis(lock_ms), session_of(owner), tag_filter(tags));
        let fetched = self.provider.fetch_work_item(lock, Duration::ZERO, session.as_ref(), &tags).await;
        match fetched {
            Err(error) => ComparedAnswer::refused(&error),
            Ok(None) => ComparedAnswer::empty("nothing"),
            Ok(Some((item, token, attempts))) => {
                self.hold_work(&item, token, owner, lock_ms);
                ComparedAnswer::done((item, attempts))
            }
        }
    }

    /// Fetches until there are so many activities or none is left: how many come at once is the store's choice.
    async fn fetch_many(
        &mut self,
        work_max: usize,
        lock_ms: u64,
        owner: Option<(&str, u64)>,
        tags: Tags,
        handlers: Option<&[Handler]>,
    ) -> ComparedAnswer {
        let lock = Duration::from_millis(lock_ms);
        let mut fetch =
            WorkFetch::new(lock, Duration::ZERO).with_session(session_of(owner)).with_tags(tag_filter(tags));
        if let Some(handlers) = handlers {
            let keys = handlers.iter().map(|handler| handler.activity()).collect();
            fetch.handlers = Some(Arc::new(HandlerKeys(keys)));
        }
        let mut shown = Vec::new();
        while shown.len() < work_max {
            fetch.work_max = work_max - shown.len();
            let batch = match self.store.fetch_work(&fetch).await {
                Ok(batch) => batch,
                Err(error) => return ComparedAnswer::refused(&error),
            };
            assert!(batch.len() <= fetch.work_max, "{} activities for {}", batch.len(), fetch.work_max);
            if batch.is_empty() {
                break;
            }
            for work in batch {
                assert!(work.lock_left <= lock, "{:?} is left of {lock:?}", work.lock_left);
                self.hold_work(&work.item, work.lock_token, owner, lock_ms);
                shown.push((work.item, work.attempt_count));
            }
        }
        ComparedAnswer::done_unless(shown.is_empty(), shown)
    }

    fn hold_work(&mut self, item: &WorkItem, token: String, owner: Option<(&str, u64)>, lock_ms: u64) {
        self.assert_fresh(&token);
        let lease_ms = owner.filter(|_| items::session(item).is_some()).map(|(_, lease_ms)| lease_ms);
        let leased_until_ms = lease_ms.map(|lease_ms| self.now_ms().saturating_add(lease_ms));
        self.leases_ms.extend(leased_until_ms);
        self.works.push(TrackedWork {
            token,
            instance: item.instance().to_owned(),
            id: items::activity_id(item),
            leased_until_ms,
            locked_until_ms: self.now_ms().saturating_add(lock_ms),
            ended: false,
        });
    }

    async fn renew(
        &mut self,
        tokens: &[Token],
        owners: Option<&[&str]>,
        extend_ms: u64,
        idle_ms: u64,
    ) -> ComparedAnswer {
        let extend_for = Duration::from_millis(extend_ms);
        let lock = |token: &Token| {
            let is_work = matches!(token, Token::Work(_));
            let kind = if is_work { LockKind::WorkItem } else { LockKind::Orchestration };
            LockRenewal { kind, token: self.token(*token), extend_for }
        };
        let mut renewal = Renewal::of_locks(tokens.iter().map(lock).collect());
        renewal.sessions = owners.map(|owners| SessionRenewal {
            owner_ids: owners.iter().map(|owner| (*owner).to_owned()).collect(),
            extend_for,
            idle_timeout: Duration::from_millis(idle_ms),
        });
        let renewed = match self.store.renew(&renewal).await {
            Ok(renewed) => renewed,
            Err(error) => return ComparedAnswer::refused(&error),
        };
        assert_eq!(renewed.locks.len(), tokens.len(), "one answer per lock");
        for (token, _) in tokens.iter().zip(&renewed.locks).filter(|(_, answer)| answer.is_ok()) {
            self.note(*token, Some(extend_ms));
        }
        let answers: Vec<ComparedAnswer> = renewed.locks.into_iter().map(ComparedAnswer::accepted).collect();
        let is_refused = answers.iter().any(|answer| answer.kind == AnswerKind::Refused);
        let kind = if is_refused { AnswerKind::Refused } else { AnswerKind::Done };
        ComparedAnswer { kind, shown: format!("{answers:?} {}", renewed.sessions) }
    }
}

fn session_of(owner: Option<(&str, u64)>) -> Option<SessionFetchConfig> {
    owner.and_then(|(owner, lease_ms)| session(owner, Duration::from_millis(lease_ms)))
}

fn tag_filter(tags: Tags) -> TagFilter {
    match tags {
        Tags::Untagged => TagFilter::default_only(),
        Tags::Tagged(tag) => TagFilter::tags([tag]),
        Tags::UntaggedAnd(tag) => TagFilter::default_and([tag]),
        Tags::AnyTag => TagFilter::any(),
        Tags::NoTag => TagFilter::none(),
    }
}
