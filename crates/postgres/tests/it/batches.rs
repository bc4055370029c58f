//! What operations of one batch do to each other.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::{
    HandlerKey, LockKind, LockRenewal, RawWrites as _, Renewal, SessionRenewal, Settlement, Store as _,
    Submission, TurnAbandon, TurnFetch, WorkFetch,
};
use everturn_provider::{ManualClock, ProviderError, SessionFetchConfig, TagFilter};

use crate::store::{
    LOCK, TestSchema, activity, activity_completed, begin, fetch_work, next_of, signal, step,
};

const BEGINNING_MS: u64 = 1_700_000_000_000;

#[tokio::test]
async fn a_lock_is_renewed_and_released_in_one_batch() {
    let schema = TestSchema::new();
    let provider = schema.open().await;
    begin(&provider, "i", &[2]).await;
    let work = fetch_work(&provider).await.expect("the activity");
    let mut sql = schema.sql().await;
    let blocking = sql.transaction().await.unwrap();
    blocking.execute("SELECT 1 FROM everturn_instances FOR UPDATE", &[]).await.unwrap();
    let message = Submission::of(signal("i"));
    let lock = LockRenewal { kind: LockKind::WorkItem, token: work.lock_token.clone(), extend_for: LOCK };
    let renewal = Renewal::of_locks(vec![lock]);
    let release = Settlement::abandon(&work.lock_token, None, true);
    let before = provider.commit_count();
    let (sent, (settled, renewed, ())) = tokio::join!(biased; provider.submit(&message), async {
        schema.until_blocked().await;
        // They wait together for the batch that is blocked.
        tokio::join!(biased; provider.settle_work(&release), provider.renew(&renewal), async {
            blocking.commit().await.unwrap();
        })
    });
    sent.unwrap();
    settled.unwrap();
    assert!(renewed.unwrap().locks[0].is_ok(), "renewals come first");
    assert_eq!(provider.commit_count() - before, 2, "the message, and one batch for both");
    assert_eq!(fetch_work(&provider).await.map(|work| work.item), Some(activity("i", 2)));
}

#[tokio::test]
async fn an_activity_that_the_batch_renews_is_given_to_no_worker() {
    let schema = TestSchema::new();
    let clock = Arc::new(ManualClock::new(BEGINNING_MS));
    let provider = schema.open_at(Arc::clone(&clock)).await;
    begin(&provider, "older", &[2]).await;
    let late = fetch_work(&provider).await.expect("the activity");
    begin(&provider, "i", &[2]).await;
    let work = fetch_work(&provider).await.expect("the activity");
    let sql = schema.sql().await;
    // Its lock has expired as far as other workers are concerned.
    let expire = "UPDATE everturn_worker_queue SET ready = true, check_at_ms = 0 WHERE instance_id = 'older'";
    assert_eq!(sql.execute(expire, &[]).await.unwrap(), 1);
    let lock = LockRenewal { kind: LockKind::WorkItem, token: late.lock_token.clone(), extend_for: LOCK };
    let renewal = Renewal::of_locks(vec![lock]);
    let step = step(&work, 4, 1);
    let message = Submission::of(signal("older"));
    let mut sql = sql;
    let blocking = sql.transaction().await.unwrap();
    blocking.execute("SELECT 1 FROM everturn_instances FOR UPDATE", &[]).await.unwrap();
    let before = provider.commit_count();
    let (sent, (stepped, renewed, ())) = tokio::join!(biased; provider.submit(&message), async {
        schema.until_blocked().await;
        tokio::join!(biased; provider.commit_step(&step), provider.renew(&renewal), async {
            blocking.commit().await.unwrap();
        })
    });
    sent.unwrap();
    assert_eq!(provider.commit_count() - before, 2, "the message, and one batch for both");
    assert!(renewed.unwrap().locks[0].is_ok());
    assert_eq!(next_of(stepped.unwrap()).map(|work| work.item), Some(activity("i", 4)));
}

#[tokio::test]
async fn what_a_step_waits_for_the_server_is_spent_of_the_next_lock() {
    let schema = TestSchema::new();
    let clock = Arc::new(ManualClock::new(BEGINNING_MS));
    let provider = schema.open_at(Arc::clone(&clock)).await;
    begin(&provider, "i", &[2]).await;
    let work = fetch_work(&provider).await.expect("the activity");
    let mut sql = schema.sql().await;
    let blocking = sql.transaction().await.unwrap();
    blocking.execute("SELECT 1 FROM everturn_instances FOR UPDATE", &[]).await.unwrap();
    let step = step(&work, 4, 1);
    let waited = Duration::from_secs(5);
    let (stepped, ()) = tokio::join!(biased; provider.commit_step(&step), async {
        schema.until_blocked().await;
        clock.advance(waited);
        blocking.commit().await.unwrap();
    });
    let next = next_of(stepped.unwrap()).expect("the next activity");
    assert_eq!(next.lock_left, LOCK - waited);
}

fn assert_is_refused<T: std::fmt::Debug>(answer: Result<T, ProviderError>) {
    let error = answer.unwrap_err();
    assert!(!error.is_retryable() && error.message.contains("NUL"), "{error:?}");
}

#[tokio::test]
async fn a_text_with_a_nul_character_is_refused_before_it_is_sent() {
    let schema = TestSchema::new();
    let provider = schema.open().await;
    begin(&provider, "i", &[2]).await;
    provider.submit(&Submission::of(signal("i"))).await.unwrap();
    let turn = provider.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap().remove(0);
    let work = fetch_work(&provider).await.expect("the activity");
    let before = provider.commit_count();
    let second = Duration::from_secs(1);
    let completion = activity_completed("a\0b", 2);
    assert_is_refused(
        provider.settle_work(&Settlement::end(&work.lock_token, Some(completion.into()))).await,
    );
    let missing = Settlement::lacking_handler(&work.lock_token, Some(second), HandlerKey::activity("a\0b"));
    assert_is_refused(provider.settle_work(&missing).await);
    let missing = TurnAbandon::new(&turn.lock_token)
        .with_delay(Some(second))
        .with_missing_handler(Some(HandlerKey::orchestration("Order", Some("a\0b".to_owned()))));
    assert_is_refused(provider.abandon_turn(&missing).await);
    assert_is_refused(provider.append_events("a\0b", 1, vec![]).await);
    assert_is_refused(provider.enqueue_work(activity("a\0b", 2)).await);
    let fetch = WorkFetch::new(LOCK, Duration::ZERO);
    assert_is_refused(provider.fetch_work(&fetch.clone().with_tags(TagFilter::tags(["a\0b"]))).await);
    let owner = SessionFetchConfig { owner_id: "a\0b".to_owned(), lock_timeout: LOCK };
    assert_is_refused(provider.fetch_work(&fetch.with_session(Some(owner))).await);
    let sessions =
        SessionRenewal { owner_ids: vec!["a\0b".to_owned()], extend_for: LOCK, idle_timeout: LOCK };
    assert_is_refused(provider.renew(&Renewal::of_sessions(sessions)).await);
    assert_eq!(provider.commit_count(), before);
    provider.settle_work(&Settlement::end(&work.lock_token, None)).await.unwrap();
}
