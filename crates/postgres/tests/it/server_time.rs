//! The server's time rules, whatever the clock of the process shows.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_provider::store::{Store as _, Submission, TurnFetch};
use everturn_provider::{Clock, SystemClock};

use crate::store::{LOCK, TestSchema, first_turn, start};

const HOUR_MS: i64 = 3_600_000;
/// How far two readings of one clock lie apart on a busy machine.
const BUSY_MS: u64 = 10_000;

/// A clock whose wall time is wrong.
#[derive(Debug)]
struct WrongClock {
    system: SystemClock,
    ahead_ms: AtomicI64,
}

impl WrongClock {
    fn ahead_by(ahead_ms: i64) -> Arc<Self> {
        Arc::new(Self { system: SystemClock::new(), ahead_ms: AtomicI64::new(ahead_ms) })
    }
}

impl Clock for WrongClock {
    fn wall_ms(&self) -> u64 {
        self.system.wall_ms().saturating_add_signed(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }

    fn random_u128(&self) -> u128 {
        self.system.random_u128()
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.system.moved()
    }
}

/// The server is on this machine: its clock is the right one of this process.
fn assert_is_right(now_ms: u64) {
    let right_ms = SystemClock::new().wall_ms();
    assert!(now_ms.abs_diff(right_ms) < BUSY_MS, "{now_ms} should be {right_ms}");
}

#[tokio::test]
async fn the_time_is_right_before_the_first_batch() {
    for ahead_ms in [-HOUR_MS, HOUR_MS] {
        let schema = TestSchema::new();
        let provider = schema.open_with_clock_of_process(WrongClock::ahead_by(ahead_ms)).await;
        assert_is_right(provider.now_ms());
    }
}

#[tokio::test]
async fn the_first_commit_of_a_process_whose_clock_is_ahead_is_in_time() {
    let schema = TestSchema::new();
    let other = schema.open().await;
    other.submit(&Submission::of(start("i"))).await.unwrap();
    let provider = schema.open_with_clock_of_process(WrongClock::ahead_by(HOUR_MS)).await;
    let turn = provider.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap().remove(0);
    provider.commit_turn(&first_turn("i", &turn.lock_token, &[])).await.unwrap();
}

#[tokio::test]
async fn a_jump_of_the_clock_of_the_process_changes_nothing() {
    let schema = TestSchema::new();
    let clock = WrongClock::ahead_by(0);
    let provider = schema.open_with_clock_of_process(clock.clone()).await;
    provider.submit(&Submission::of(start("i"))).await.unwrap();
    let turn = provider.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap().remove(0);
    for ahead_ms in [HOUR_MS, -HOUR_MS] {
        clock.ahead_ms.store(ahead_ms, Ordering::SeqCst);
        assert_is_right(provider.now_ms());
    }
    clock.ahead_ms.store(HOUR_MS, Ordering::SeqCst);
    provider.commit_turn(&first_turn("i", &turn.lock_token, &[])).await.unwrap();
}
