//! The fencing table: every verb that takes a lock token, with every kind of token. All that can be seen of the store
//! is compared before and after.

use everturn_provider::ProviderError;
use everturn_provider::store::{LockKind, LockRenewal, Renewal, Stamp};

use crate::events;
use crate::harness::{CaseHarness, LOCK, PAST_LOCK, expect_lock_lost, secs};
use crate::image::{image, image_of_instances};
use crate::items::{activity, activity_completed, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ tokens as tokens_cases:
    the_right_token_is_accepted_and_changes_its_own_instance_only,
    an_expired_token_is_refused,
    a_token_of_the_other_kind_is_refused,
    a_token_used_for_a_commit_or_an_end_is_refused,
    a_token_used_for_an_abandon_is_refused,
    a_token_that_was_never_issued_is_refused,
    the_token_of_a_replaced_holder_is_refused,
    the_token_of_another_instance_commits_only_that_instance,
    tokens_cannot_be_guessed_from_each_other,
}

/// A call with a lock token: of a verb of the store, or of a plain verb.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TokenUse {
    CommitTurn,
    CommitTurnWithStamp,
    AckOrchestrationItem,
    AbandonTurn,
    AbandonTurnWithDelayAndRefund,
    AbandonOrchestrationItem,
    RenewTurn,
    RenewTurnAmongOthers,
    RenewOrchestrationItemLock,
    EndWork,
    EndWorkSilently,
    AckWorkItem,
    AbandonWork,
    AbandonWorkWithDelayAndRefund,
    AbandonWorkItem,
    RenewWork,
    RenewWorkAmongOthers,
    RenewWorkItemLock,
}

use TokenUse::*;

const TURN_TOKEN_USES: [TokenUse; 9] = [
    CommitTurn,
    CommitTurnWithStamp,
    AckOrchestrationItem,
    AbandonTurn,
    AbandonTurnWithDelayAndRefund,
    AbandonOrchestrationItem,
    RenewTurn,
    RenewTurnAmongOthers,
    RenewOrchestrationItemLock,
];

const WORK_TOKEN_USES: [TokenUse; 9] = [
    EndWork,
    EndWorkSilently,
    AckWorkItem,
    AbandonWork,
    AbandonWorkWithDelayAndRefund,
    AbandonWorkItem,
    RenewWork,
    RenewWorkAmongOthers,
    RenewWorkItemLock,
];

const RENEWALS_OF_TURNS: [TokenUse; 3] = [RenewTurn, RenewTurnAmongOthers, RenewOrchestrationItemLock];
const RENEWALS_OF_WORK: [TokenUse; 3] = [RenewWork, RenewWorkAmongOthers, RenewWorkItemLock];

fn all_uses() -> impl Iterator<Item = TokenUse> {
    TURN_TOKEN_USES.into_iter().chain(WORK_TOKEN_USES)
}

impl TokenUse {
    fn takes_work_token(self) -> bool {
        WORK_TOKEN_USES.contains(&self)
    }

    async fn call(self, h: &CaseHarness, instance: &str, token: &str) -> Result<(), ProviderError> {
        let plain = h.provider();
        let turn = SampleTurn::of(instance, 1)
            .event(3, events::custom_status(Some("changed")))
            .event(4, events::kv_set("k", "changed"))
            .activity(activity(instance, 4))
            .message(signal(instance, "sent"))
            .cancelling(2);
        let completion = Some(activity_completed(instance, 2));
        let (delay, longer) = (Some(secs(500)), secs(500));
        match self {
            CommitTurn => turn.commit(h, token).await,
            CommitTurnWithStamp => h.commit_turn(&turn.into_commit(token, None, Stamp(7))).await,
            AckOrchestrationItem => turn.ack(plain, token).await,
            AbandonTurn => h.release_turn(token, None, false).await,
            AbandonTurnWithDelayAndRefund => h.release_turn(token, delay, true).await,
            AbandonOrchestrationItem => plain.abandon_orchestration_item(token, delay, true).await,
            RenewTurn => h.renew_turn(token, longer).await,
            RenewTurnAmongOthers => renew_among_others(h, LockKind::Orchestration, token).await,
            RenewOrchestrationItemLock => plain.renew_orchestration_item_lock(token, longer).await,
            EndWork => h.end_work(token, completion).await,
            EndWorkSilently => h.end_work(token, None).await,
            AckWorkItem => plain.ack_work_item(token, completion).await,
            AbandonWork => h.release_work(token, None, false).await,
            AbandonWorkWithDelayAndRefund => h.release_work(token, delay, true).await,
            AbandonWorkItem => plain.abandon_work_item(token, delay, true).await,
            RenewWork => h.renew_work(token, longer).await,
            RenewWorkAmongOthers => renew_among_others(h, LockKind::WorkItem, token).await,
            RenewWorkItemLock => plain.renew_work_item_lock(token, longer).await,
        }
    }
}

/// Renews a lock together with two that were never issued.
async fn renew_among_others(h: &CaseHarness, kind: LockKind, token: &str) -> Result<(), ProviderError> {
    let renewal = |token: &str| LockRenewal { kind, token: token.to_owned(), extend_for: secs(500) };
    let locks = vec![renewal("never issued"), renewal(token), renewal("never issued either")];
    let [first, answer, last] =
        <[_; 3]>::try_from(h.renew(&Renewal::of_locks(locks)).await?.locks).expect("one answer per lock");
    expect_lock_lost(first);
    expect_lock_lost(last);
    answer
}

/// An instance with a turn and an activity under way, for one use of a token to be tried on.
struct HeldInstance {
    token_use: TokenUse,
    instance: String,
    turn_token: String,
    work_token: String,
}

impl HeldInstance {
    fn token(&self) -> &str {
        if self.token_use.takes_work_token() { &self.work_token } else { &self.turn_token }
    }

    fn token_of_the_other_kind(&self) -> &str {
        if self.token_use.takes_work_token() { &self.turn_token } else { &self.work_token }
    }

    /// Makes the call with a token that must not work, and compares all that can be seen.
    async fn assert_refused(&self, h: &CaseHarness, token: &str) {
        let token_use = self.token_use;
        let instances: Vec<String> = all_uses().map(|token_use| format!("{token_use:?}")).collect();
        let instances: Vec<&str> = instances.iter().map(String::as_str).collect();
        let before = image(h, &instances).await;
        let answer = token_use.call(h, &self.instance, token).await;
        assert!(answer.is_err(), "{token_use:?} took a token it must refuse");
        expect_lock_lost(answer);
        assert_eq!(image(h, &instances).await, before, "{token_use:?} changed something");
    }

    /// The holders of both locks can still do their work: no refused call took anything from them.
    async fn assert_unharmed(&self, h: &CaseHarness) {
        let completion = activity_completed(&self.instance, 2);
        h.end_work(&self.work_token, Some(completion)).await.unwrap();
        SampleTurn::of(&self.instance, 1)
            .event(9, events::scheduled())
            .commit(h, &self.turn_token)
            .await
            .unwrap();
        assert_eq!(h.event_ids(&self.instance).await, [1, 9]);
        assert_eq!(h.read_custom_status(&self.instance, 0).await.unwrap(), None);
    }
}

/// One held instance for each use of a token.
async fn held(h: &CaseHarness) -> Vec<HeldInstance> {
    let mut all = Vec::new();
    for token_use in all_uses() {
        let instance = format!("{token_use:?}");
        h.begin(&instance, SampleTurn::beginning(&instance, 1).activity(activity(&instance, 2))).await;
        let work = h.fetched_work().await;
        h.send(signal(&instance, "go")).await;
        let turn = h.fetched_turn().await;
        all.push(HeldInstance {
            token_use,
            instance,
            turn_token: turn.lock_token,
            work_token: work.lock_token,
        });
    }
    all
}

async fn the_right_token_is_accepted_and_changes_its_own_instance_only(h: CaseHarness) {
    let all = held(&h).await;
    for held in &all {
        let token_use = held.token_use;
        let others: Vec<&str> =
            all.iter().map(|held| &*held.instance).filter(|id| *id != held.instance).collect();
        let before = (image_of_instances(&h, &others).await, image(&h, &[&held.instance]).await);
        let answer = token_use.call(&h, &held.instance, held.token()).await;
        assert!(answer.is_ok(), "{token_use:?}: {answer:?}");
        assert_eq!(image_of_instances(&h, &others).await, before.0, "{token_use:?} changed another instance");
        let is_renewal = RENEWALS_OF_TURNS.contains(&token_use) || RENEWALS_OF_WORK.contains(&token_use);
        // An activity that ended silently leaves no trace; a renewal is seen when the lock would have expired.
        let leaves_no_trace = is_renewal || token_use == EndWorkSilently;
        let after = image(&h, &[&held.instance]).await;
        assert_eq!(after == before.1, leaves_no_trace, "{token_use:?} from\n{}to\n{after}", before.1);
    }
    h.pass(PAST_LOCK);
    let mut turns = Vec::new();
    while let Some(fetched) = h.next_turn().await {
        turns.push(fetched.item.instance);
    }
    let mut works = Vec::new();
    while let Some(work) = h.next_work().await {
        works.push(work.item.instance().to_owned());
    }
    for renewed in RENEWALS_OF_TURNS {
        assert!(!turns.contains(&format!("{renewed:?}")), "{renewed:?} extended the lock: {turns:?}");
    }
    for renewed in RENEWALS_OF_WORK {
        assert!(!works.contains(&format!("{renewed:?}")), "{renewed:?} extended the lock: {works:?}");
    }
    assert!(!works.contains(&format!("{EndWorkSilently:?}")), "the activity is gone: {works:?}");
}

async fn an_expired_token_is_refused(h: CaseHarness) {
    let all = held(&h).await;
    h.pass(PAST_LOCK);
    for held in &all {
        held.assert_refused(&h, held.token()).await;
    }
    for _ in &all {
        assert_eq!(h.fetched_turn().await.attempt_count, 2, "neither refunded nor delayed nor locked");
        assert_eq!(h.fetched_work().await.attempt_count, 2, "neither refunded nor delayed nor locked");
    }
}

async fn a_token_of_the_other_kind_is_refused(h: CaseHarness) {
    for held in held(&h).await {
        held.assert_refused(&h, held.token_of_the_other_kind()).await;
        held.assert_unharmed(&h).await;
    }
}

async fn a_token_used_for_a_commit_or_an_end_is_refused(h: CaseHarness) {
    for held in held(&h).await {
        h.end_work(&held.work_token, None).await.unwrap();
        SampleTurn::of(&held.instance, 1).commit(&h, &held.turn_token).await.unwrap();
        held.assert_refused(&h, held.token()).await;
    }
}

async fn a_token_used_for_an_abandon_is_refused(h: CaseHarness) {
    let all = held(&h).await;
    for held in &all {
        h.release_work(&held.work_token, None, false).await.unwrap();
        h.release_turn(&held.turn_token, None, false).await.unwrap();
    }
    for held in &all {
        held.assert_refused(&h, held.token()).await;
    }
}

async fn a_token_that_was_never_issued_is_refused(h: CaseHarness) {
    for held in held(&h).await {
        held.assert_refused(&h, "never issued").await;
        held.assert_refused(&h, "").await;
        held.assert_refused(&h, &held.instance).await;
        held.assert_unharmed(&h).await;
    }
}

async fn the_token_of_a_replaced_holder_is_refused(h: CaseHarness) {
    let all = held(&h).await;
    h.pass(PAST_LOCK);
    let mut replaced = Vec::new();
    for held in all {
        let (turn, work) = (h.fetched_turn().await, h.fetched_work().await);
        assert_eq!((turn.item.instance.as_str(), work.item.instance()), (&*held.instance, &*held.instance));
        replaced.push((held, turn.lock_token, work.lock_token));
    }
    for (held, turn_token, work_token) in replaced {
        held.assert_refused(&h, held.token()).await;
        HeldInstance { turn_token, work_token, ..held }.assert_unharmed(&h).await;
    }
}

async fn the_token_of_another_instance_commits_only_that_instance(h: CaseHarness) {
    h.send(start("a")).await;
    h.send(start("b")).await;
    let (a, b) = (h.fetched_turn().await, h.fetched_turn().await);
    SampleTurn::beginning("a", 1).commit(&h, &a.lock_token).await.unwrap();
    assert!(h.next_turn().await.is_none(), "b is still locked");
    SampleTurn::beginning("b", 1).commit(&h, &b.lock_token).await.unwrap();
    assert_eq!((h.event_ids("a").await, h.event_ids("b").await), (vec![1], vec![1]));
}

async fn tokens_cannot_be_guessed_from_each_other(h: CaseHarness) {
    let mut tokens = Vec::new();
    for n in 0..20 {
        h.queue(activity("i", n)).await;
        tokens.push(h.fetched_work().await.lock_token);
        h.send(start(&format!("i{n}"))).await;
        let fetched = h.fetched_turn().await;
        tokens.push(fetched.lock_token.clone());
        h.renew_turn(&fetched.lock_token, LOCK).await.unwrap();
    }
    assert!(tokens.iter().all(|token| token.len() >= 16), "a token is long and random: {tokens:?}");
    let issued = tokens.len();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), issued);
}
