//! The fencing table: every method that takes a lock token, with every kind of token. All that can be seen of the store
//! is compared before and after.

use everturn_provider::{LockKind, LockRenewal, Provider, ProviderError, Stamp};

use crate::events;
use crate::harness::{Harness, LOCK, PAST_LOCK, lock_lost, secs};
use crate::image::{image, image_of_instances};
use crate::items::{activity, activity_completed, signal, start};
use crate::turn::Turn;

cases! { $ tokens as tokens_cases:
    the_right_token_is_accepted_and_changes_its_own_instance_only,
    an_expired_token_is_refused,
    a_token_of_the_other_kind_is_refused,
    a_token_used_for_an_ack_is_refused,
    a_token_used_for_an_abandon_is_refused,
    a_token_that_was_never_issued_is_refused,
    the_token_of_a_holder_who_was_replaced_is_refused,
    the_token_of_another_instance_acks_only_that_instance,
    tokens_cannot_be_guessed_from_each_other,
}

/// A method that takes a lock token.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Method {
    AckOrchestrationItem,
    CommitTurn,
    AbandonOrchestrationItem,
    AbandonOrchestrationItemWithDelayAndRefund,
    RenewOrchestrationItemLock,
    RenewLocksOrchestration,
    AckWorkItem,
    AckWorkItemSilently,
    AbandonWorkItem,
    AbandonWorkItemWithDelayAndRefund,
    RenewWorkItemLock,
    RenewLocksWorkItem,
}

use Method::*;

const METHODS: [Method; 12] = [
    AckOrchestrationItem,
    CommitTurn,
    AbandonOrchestrationItem,
    AbandonOrchestrationItemWithDelayAndRefund,
    RenewOrchestrationItemLock,
    RenewLocksOrchestration,
    AckWorkItem,
    AckWorkItemSilently,
    AbandonWorkItem,
    AbandonWorkItemWithDelayAndRefund,
    RenewWorkItemLock,
    RenewLocksWorkItem,
];

impl Method {
    fn takes_work_token(self) -> bool {
        matches!(
            self,
            AckWorkItem
                | AckWorkItemSilently
                | AbandonWorkItem
                | AbandonWorkItemWithDelayAndRefund
                | RenewWorkItemLock
                | RenewLocksWorkItem
        )
    }

    async fn call(self, provider: &dyn Provider, held: &Held, token: &str) -> Result<(), ProviderError> {
        let turn = Turn::of(&held.instance, 1)
            .event(3, events::custom_status(Some("changed")))
            .event(4, events::kv_set("k", "changed"))
            .activity(activity(&held.instance, 4))
            .message(signal(&held.instance, "sent"))
            .cancelling(2);
        let completion = activity_completed(&held.instance, 2);
        match self {
            AckOrchestrationItem => turn.ack(provider, token).await,
            CommitTurn => provider.commit_turn(&turn.commit(token, None, Stamp(7))).await,
            AbandonOrchestrationItem => provider.abandon_orchestration_item(token, None, false).await,
            AbandonOrchestrationItemWithDelayAndRefund => {
                provider.abandon_orchestration_item(token, Some(secs(500)), true).await
            }
            RenewOrchestrationItemLock => provider.renew_orchestration_item_lock(token, secs(500)).await,
            RenewLocksOrchestration => renew(provider, LockKind::Orchestration, token).await,
            AckWorkItem => provider.ack_work_item(token, Some(completion)).await,
            AckWorkItemSilently => provider.ack_work_item(token, None).await,
            AbandonWorkItem => provider.abandon_work_item(token, None, false).await,
            AbandonWorkItemWithDelayAndRefund => {
                provider.abandon_work_item(token, Some(secs(500)), true).await
            }
            RenewWorkItemLock => provider.renew_work_item_lock(token, secs(500)).await,
            RenewLocksWorkItem => renew(provider, LockKind::WorkItem, token).await,
        }
    }
}

async fn renew(provider: &dyn Provider, kind: LockKind, token: &str) -> Result<(), ProviderError> {
    let renewal = LockRenewal { kind, token: token.to_owned(), extend_for: secs(500) };
    let mut answers = provider.renew_locks(&[renewal]).await;
    assert_eq!(answers.len(), 1, "one answer each");
    answers.remove(0)
}

/// An instance with a turn and an activity under way, for one method to be tried on.
struct Held {
    method: Method,
    instance: String,
    turn_token: String,
    work_token: String,
}

impl Held {
    fn token(&self) -> &str {
        if self.method.takes_work_token() { &self.work_token } else { &self.turn_token }
    }

    fn token_of_the_other_kind(&self) -> &str {
        if self.method.takes_work_token() { &self.turn_token } else { &self.work_token }
    }

    /// Calls the method with a token that must not work, and compares all that can be seen.
    async fn assert_refused(&self, h: &Harness, token: &str) {
        let method = self.method;
        let everybody = METHODS.map(|method| format!("{method:?}"));
        let everybody = everybody.each_ref().map(String::as_str);
        let before = image(h, &everybody).await;
        let answer = method.call(&**h, self, token).await;
        assert!(answer.is_err(), "{method:?} took a token it must refuse");
        lock_lost(answer);
        assert_eq!(image(h, &everybody).await, before, "{method:?} changed something");
    }

    /// The holders of both locks can still do their work: nobody else's call took anything from them.
    async fn assert_unharmed(&self, h: &Harness) {
        let completion = activity_completed(&self.instance, 2);
        h.ack_work_item(&self.work_token, Some(completion)).await.unwrap();
        Turn::of(&self.instance, 1).event(9, events::scheduled()).ack(&**h, &self.turn_token).await.unwrap();
        assert_eq!(h.event_ids(&self.instance).await, [1, 9]);
        assert_eq!(h.get_custom_status(&self.instance, 0).await.unwrap(), None);
    }
}

/// One held instance for each method.
async fn held(h: &Harness) -> Vec<Held> {
    let mut all = Vec::new();
    for method in METHODS {
        let instance = format!("{method:?}");
        h.begin(&instance, Turn::beginning(&instance, 1).activity(activity(&instance, 2))).await;
        let work = h.fetched_work().await;
        h.send(signal(&instance, "go")).await;
        let turn = h.fetched().await;
        all.push(Held { method, instance, turn_token: turn.token, work_token: work.token });
    }
    all
}

async fn the_right_token_is_accepted_and_changes_its_own_instance_only(h: Harness) {
    let all = held(&h).await;
    for held in &all {
        let method = held.method;
        let others: Vec<&str> =
            all.iter().map(|held| &*held.instance).filter(|id| *id != held.instance).collect();
        let before = (image_of_instances(&h, &others).await, image(&h, &[&held.instance]).await);
        let answer = method.call(&*h, held, held.token()).await;
        assert!(answer.is_ok(), "{method:?}: {answer:?}");
        assert_eq!(image_of_instances(&h, &others).await, before.0, "{method:?} changed another instance");
        let is_renewal = matches!(
            method,
            RenewOrchestrationItemLock | RenewLocksOrchestration | RenewWorkItemLock | RenewLocksWorkItem
        );
        // An activity that ended silently leaves no trace; a renewal is seen when the lock would have expired.
        let leaves_no_trace = is_renewal || method == AckWorkItemSilently;
        let after = image(&h, &[&held.instance]).await;
        assert_eq!(after == before.1, leaves_no_trace, "{method:?} from\n{}to\n{after}", before.1);
    }
    h.pass(PAST_LOCK);
    let mut turns = Vec::new();
    while let Some(fetched) = h.fetch().await {
        turns.push(fetched.item.instance);
    }
    let mut works = Vec::new();
    while let Some(work) = h.fetch_work().await {
        works.push(work.item.instance().to_owned());
    }
    for renewed in [RenewOrchestrationItemLock, RenewLocksOrchestration] {
        assert!(!turns.contains(&format!("{renewed:?}")), "{renewed:?} extended the lock: {turns:?}");
    }
    for renewed in [RenewWorkItemLock, RenewLocksWorkItem] {
        assert!(!works.contains(&format!("{renewed:?}")), "{renewed:?} extended the lock: {works:?}");
    }
    assert!(!works.contains(&format!("{AckWorkItemSilently:?}")), "the activity is gone: {works:?}");
}

async fn an_expired_token_is_refused(h: Harness) {
    let all = held(&h).await;
    h.pass(PAST_LOCK);
    for held in &all {
        held.assert_refused(&h, held.token()).await;
    }
    for _ in &all {
        assert_eq!(h.fetched().await.attempts, 2, "neither refunded nor delayed nor locked");
        assert_eq!(h.fetched_work().await.attempts, 2, "neither refunded nor delayed nor locked");
    }
}

async fn a_token_of_the_other_kind_is_refused(h: Harness) {
    for held in held(&h).await {
        held.assert_refused(&h, held.token_of_the_other_kind()).await;
        held.assert_unharmed(&h).await;
    }
}

async fn a_token_used_for_an_ack_is_refused(h: Harness) {
    for held in held(&h).await {
        h.ack_work_item(&held.work_token, None).await.unwrap();
        Turn::of(&held.instance, 1).ack(&*h, &held.turn_token).await.unwrap();
        held.assert_refused(&h, held.token()).await;
    }
}

async fn a_token_used_for_an_abandon_is_refused(h: Harness) {
    let all = held(&h).await;
    for held in &all {
        h.abandon_work_item(&held.work_token, None, false).await.unwrap();
        h.abandon_orchestration_item(&held.turn_token, None, false).await.unwrap();
    }
    for held in &all {
        held.assert_refused(&h, held.token()).await;
    }
}

async fn a_token_that_was_never_issued_is_refused(h: Harness) {
    for held in held(&h).await {
        held.assert_refused(&h, "never issued").await;
        held.assert_refused(&h, "").await;
        held.assert_refused(&h, &held.instance).await;
        held.assert_unharmed(&h).await;
    }
}

async fn the_token_of_a_holder_who_was_replaced_is_refused(h: Harness) {
    let all = held(&h).await;
    h.pass(PAST_LOCK);
    let mut replaced = Vec::new();
    for held in all {
        let (turn, work) = (h.fetched().await, h.fetched_work().await);
        assert_eq!((turn.item.instance.as_str(), work.item.instance()), (&*held.instance, &*held.instance));
        replaced.push((held, turn.token, work.token));
    }
    for (held, turn_token, work_token) in replaced {
        held.assert_refused(&h, held.token()).await;
        Held { turn_token, work_token, ..held }.assert_unharmed(&h).await;
    }
}

async fn the_token_of_another_instance_acks_only_that_instance(h: Harness) {
    h.send(start("a")).await;
    h.send(start("b")).await;
    let (a, b) = (h.fetched().await, h.fetched().await);
    Turn::beginning("a", 1).ack(&*h, &a.token).await.unwrap();
    assert!(h.fetch().await.is_none(), "b is still locked");
    Turn::beginning("b", 1).ack(&*h, &b.token).await.unwrap();
    assert_eq!((h.event_ids("a").await, h.event_ids("b").await), (vec![1], vec![1]));
}

async fn tokens_cannot_be_guessed_from_each_other(h: Harness) {
    let mut tokens = Vec::new();
    for n in 0..20 {
        h.queue(activity("i", n)).await;
        tokens.push(h.fetched_work().await.token);
        h.send(start(&format!("i{n}"))).await;
        let fetched = h.fetched().await;
        tokens.push(fetched.token.clone());
        h.renew_orchestration_item_lock(&fetched.token, LOCK).await.unwrap();
    }
    assert!(tokens.iter().all(|token| token.len() >= 16), "a token is long and random: {tokens:?}");
    let issued = tokens.len();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), issued);
}
