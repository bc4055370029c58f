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
    let (read, _renewed_at) = within_lock(&provider, "1-never", Duration::ZERO, reading).await.unwrap();
    assert_eq!(read, "read");
}

#[tokio::test]
async fn a_lock_outlasts_however_long_the_history_takes_to_read() {
    let provider = SqliteProvider::new_in_memory().await.unwrap();
    let start = WorkItem::StartOrchestration {
        instance: "i".into(),
        orchestration: "Order".into(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    provider.submit(&Submission::of(start)).await.unwrap();
    let lock = Duration::from_millis(1_500);
    let turn = provider.fetch_turns(&TurnFetch::new(lock, Duration::ZERO)).await.unwrap().pop().unwrap();
    let reading = async {
        tokio::time::sleep(lock + Duration::from_millis(500)).await;
        Ok(())
    };
    let ((), renewed_at) = within_lock(&provider, &turn.lock_token, lock, reading).await.unwrap();
    assert!(renewed_at.is_some());
    provider.commit_turn(&TurnCommit::new(turn.lock_token, 1)).await.unwrap();
}
