//! The operations on the worker queue, its locks and its sessions.

use std::time::Duration;

use everturn_provider::{LockKind, LockRenewal, SessionFetchConfig, TagFilter};

use super::answer::Answer;
use super::op::{Op, Tags, Token};
use super::world::{HeldWork, World, work_item};
use crate::items;

impl World {
    pub(super) async fn apply_to_works(&mut self, op: &Op) -> Answer {
        match op {
            Op::EnqueueForWorker { item } => {
                Answer::accepted(self.provider.enqueue_for_worker(work_item(*item)).await)
            }
            Op::FetchWorkItem { lock_ms, owner, tags } => self.fetch_work(*lock_ms, *owner, *tags).await,
            Op::AckWorkItem { token, completion } => {
                let name = self.token(*token);
                let answer = self.provider.ack_work_item(&name, completion.map(work_item)).await;
                if answer.is_ok() {
                    let lease_ms = self.work_of(*token).and_then(|work| work.leased_until_ms);
                    self.idle_leases_ms.extend(lease_ms);
                }
                self.ended_if(answer.is_ok(), *token);
                Answer::accepted(answer)
            }
            Op::AbandonWorkItem { token, delay_ms, refund } => {
                let delay = delay_ms.map(Duration::from_millis);
                let name = self.token(*token);
                let answer = self.provider.abandon_work_item(&name, delay, *refund).await;
                self.ended_if(answer.is_ok(), *token);
                Answer::accepted(answer)
            }
            Op::RenewWorkItemLock { token, extend_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                let answer = self.provider.renew_work_item_lock(&self.token(*token), extend_for).await;
                if answer.is_ok() {
                    self.note(*token, Some(*extend_ms));
                }
                Answer::accepted(answer)
            }
            Op::RenewLocks { tokens, extend_ms } => self.renew_locks(tokens, *extend_ms).await,
            Op::RenewSessionLock { owners, extend_ms, idle_ms } => {
                let (extend_for, idle) = (Duration::from_millis(*extend_ms), Duration::from_millis(*idle_ms));
                let renewed = self.provider.renew_session_lock(owners, extend_for, idle).await;
                Answer::of(renewed, |count| Answer::done_unless(count == 0, count))
            }
            Op::CleanupOrphanedSessions => {
                let now_ms = self.now_ms();
                self.leases_ms.retain(|end_ms| now_ms < *end_ms);
                self.idle_leases_ms.retain(|end_ms| now_ms < *end_ms);
                let removed = self.provider.cleanup_orphaned_sessions(Duration::ZERO).await;
                Answer::of(removed, |count| Answer::done_unless(count == 0, count))
            }
            other => unreachable!("{other:?} is not about activities"),
        }
    }

    async fn fetch_work(&mut self, lock_ms: u64, owner: Option<(&str, u64)>, tags: Tags) -> Answer {
        let session = owner.map(|(owner, lease_ms)| SessionFetchConfig {
            owner_id: owner.to_owned(),
            lock_timeout: Duration::from_millis(lease_ms),
        });
        let tags = match tags {
            Tags::Untagged => TagFilter::default_only(),
            Tags::Tagged(tag) => TagFilter::tags([tag]),
            Tags::UntaggedAnd(tag) => TagFilter::default_and([tag]),
            Tags::AnyTag => TagFilter::any(),
            Tags::NoTag => TagFilter::none(),
        };
        let lock = Duration::from_millis(lock_ms);
        let fetched = self.provider.fetch_work_item(lock, Duration::ZERO, session.as_ref(), &tags).await;
        match fetched {
            Err(error) => Answer::refused(&error),
            Ok(None) => Answer::empty("nothing"),
            Ok(Some((item, token, attempts))) => {
                self.assert_fresh(&token);
                let lease_ms =
                    owner.filter(|_| items::session(&item).is_some()).map(|(_, lease_ms)| lease_ms);
                let leased_until_ms = lease_ms.map(|lease_ms| self.now_ms().saturating_add(lease_ms));
                self.leases_ms.extend(leased_until_ms);
                self.works.push(HeldWork {
                    token,
                    instance: item.instance().to_owned(),
                    id: items::activity_id(&item),
                    leased_until_ms,
                    locked_until_ms: self.now_ms().saturating_add(lock_ms),
                    ended: false,
                });
                Answer::done((item, attempts))
            }
        }
    }

    async fn renew_locks(&mut self, tokens: &[Token], extend_ms: u64) -> Answer {
        let renewals: Vec<LockRenewal> = tokens
            .iter()
            .map(|token| LockRenewal {
                kind: if matches!(token, Token::Work(_)) {
                    LockKind::WorkItem
                } else {
                    LockKind::Orchestration
                },
                token: self.token(*token),
                extend_for: Duration::from_millis(extend_ms),
            })
            .collect();
        let answers = self.provider.renew_locks(&renewals).await;
        for (token, answer) in tokens.iter().zip(&answers) {
            if answer.is_ok() {
                self.note(*token, Some(extend_ms));
            }
        }
        let answers: Vec<Answer> = answers.into_iter().map(Answer::accepted).collect();
        let refusal = answers.iter().find(|answer| answer.outcome == super::answer::Outcome::Refused);
        let outcome = refusal.map_or(super::answer::Outcome::Done, |answer| answer.outcome);
        Answer { outcome, told: format!("{answers:?}") }
    }
}
