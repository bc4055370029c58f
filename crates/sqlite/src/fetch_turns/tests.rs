use everturn_core::WorkItem;
use everturn_provider::store::{Store, Submission, TurnCommit};

use super::*;

#[tokio::test]
async fn a_history_is_read_although_the_lock_cannot_be_renewed() {
    let provider = SqliteProvider::new_in_memory().await.unwrap();
    let reading = async {
        tokio::time::sleep(RENEWAL_MIN * 5).await;
        Ok("read")
    };
    let mut locks = AnswerLocks::of(["1-never".to_owned()].into_iter(), Duration::ZERO);
    assert_eq!(locks.keep(&provider, reading).await.unwrap(), "read");
}

#[tokio::test]
async fn the_locks_of_an_answer_outlast_however_long_a_history_takes_to_read() {
    let provider = SqliteProvider::new_in_memory().await.unwrap();
    let start = |instance: &str| WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Order".into(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    let starts = ["read", "beside it"].map(|instance| start(instance).into());
    provider.submit(&Submission::of_all(starts.into())).await.unwrap();
    let lock = Duration::from_millis(1_500);
    let fetch = TurnFetch::new(lock, Duration::ZERO).with_turns_max(2);
    let turns = provider.fetch_turns(&fetch).await.unwrap();
    let tokens: Vec<String> = turns.into_iter().map(|turn| turn.lock_token).collect();
    assert_eq!(tokens.len(), 2);
    let reading = async {
        tokio::time::sleep(lock + Duration::from_millis(500)).await;
        Ok(())
    };
    let mut locks = AnswerLocks::of(tokens.iter().cloned(), lock);
    locks.keep(&provider, reading).await.unwrap();
    assert!(locks.renewed_at.is_some());
    for token in tokens {
        provider.commit_turn(&TurnCommit::new(token, 1)).await.unwrap();
    }
}
