use std::collections::VecDeque;

use std::sync::atomic::AtomicUsize;

use everturn_provider::store::{Renewal, Renewed, StoreLayer, TurnAbandon};
use everturn_provider::{MemoryProvider, store_of};

use super::*;

type LockAnswer = Result<(), ProviderError>;

/// A store that gives scripted answers, then `Ok`, and records every call.
#[derive(Clone)]
struct ScriptedRenewer {
    inner: Arc<dyn Store>,
    since: Instant,
    answers: Arc<Mutex<VecDeque<Vec<LockAnswer>>>>,
    asked: Arc<Mutex<Vec<(Duration, usize)>>>,
    /// A call that renews this lock is never answered.
    hangs_at: Option<&'static str>,
    /// How many of the first calls panic.
    panics: Arc<AtomicUsize>,
    /// How long an answer takes.
    answers_after: Duration,
    /// Whether a renewal counts from its call.
    late_renewals: bool,
    /// Locks that were abandoned with their attempts taken back.
    taken_back: Arc<Mutex<Vec<String>>>,
    /// Whether no lock can be abandoned.
    refuses_abandons: bool,
}

impl Default for ScriptedRenewer {
    fn default() -> Self {
        Self {
            inner: store_of(Arc::new(MemoryProvider::new())),
            since: Instant::now(),
            answers: Arc::default(),
            asked: Arc::default(),
            hangs_at: None,
            panics: Arc::default(),
            answers_after: Duration::ZERO,
            late_renewals: false,
            taken_back: Arc::default(),
            refuses_abandons: false,
        }
    }
}

impl StoreLayer for ScriptedRenewer {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    fn supports(&self, feature: Feature) -> bool {
        if feature == Feature::LateRenewals { self.late_renewals } else { self.inner.supports(feature) }
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        if self.refuses_abandons {
            return Err(ProviderError::permanent("abandon_turn", "the disk is gone"));
        }
        assert!(abandon.ignore_attempt, "{} has not begun", abandon.lock_token);
        self.taken_back.lock().unwrap().push(abandon.lock_token.clone());
        Ok(())
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        self.asked.lock().unwrap().push((self.since.elapsed(), renewal.locks.len()));
        if renewal.locks.iter().any(|lock| Some(lock.token.as_str()) == self.hangs_at) {
            std::future::pending::<()>().await;
        }
        if !self.answers_after.is_zero() {
            tokio::time::sleep(self.answers_after).await;
        }
        let panics = self.panics.load(Ordering::SeqCst);
        self.panics.store(panics.saturating_sub(1), Ordering::SeqCst);
        assert!(panics == 0, "a bug in the provider");
        let answers = self.answers.lock().unwrap().pop_front();
        Ok(Renewed::new(answers.unwrap_or_else(|| renewal.locks.iter().map(|_| Ok(())).collect()), 0))
    }
}

struct RunningKeeper {
    keeper: LockKeeper,
    store: ScriptedRenewer,
    uncounted: UncountedAttempts,
    task: tokio::task::JoinHandle<()>,
}

impl RunningKeeper {
    fn start(store: ScriptedRenewer) -> Self {
        let (keeper, uncounted) = (LockKeeper::default(), UncountedAttempts::default());
        let task = tokio::spawn(keeper.clone().run(Arc::new(store.clone()), uncounted.clone()));
        Self { keeper, store, uncounted, task }
    }

    /// The lock of a turn that waits, of ten seconds.
    fn keep_unbegun(&self, instance: &str) -> LockGuard {
        let timeout = Duration::from_secs(10);
        let terms = LockTerms { kind: LockKind::Orchestration, timeout, buffer: Duration::from_secs(2) };
        self.keeper.keep_unbegun(instance.to_owned(), terms, timeout, turn_of(instance))
    }

    /// A lock of ten seconds, renewed every five.
    fn keep(&self, token: &str) -> LockGuard {
        self.keep_for(token, Duration::from_secs(10), Duration::from_secs(10))
    }

    /// A lock of which `lock_left` is left.
    fn keep_for(&self, token: &str, timeout: Duration, lock_left: Duration) -> LockGuard {
        let terms = LockTerms { kind: LockKind::WorkItem, timeout, buffer: Duration::from_secs(2) };
        self.keeper.keep(token.to_owned(), terms, lock_left, CancellationToken::new())
    }

    /// When the store was asked, in milliseconds, and for how many locks.
    fn asked(&self) -> Vec<(u128, usize)> {
        self.store.asked.lock().unwrap().iter().map(|(at, locks)| (at.as_millis(), *locks)).collect()
    }
}

impl Drop for RunningKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn turn_of(instance: &str) -> AttemptKey {
    AttemptKey::Turn { instance: instance.to_owned() }
}

async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_work_does_not_begin_is_given_up_after_one_more_length() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let (waits, begins) = (running.keep_unbegun("waits"), running.keep_unbegun("begins"));
    pass(19.0).await;
    assert_eq!(running.asked(), [(5_000, 2), (10_000, 2), (15_000, 2)]);
    assert!(begins.keep_on(), "it is not lost");
    pass(2.0).await;
    assert!(waits.is_given_up() && !waits.keep_on(), "others may do its work");
    assert!(!begins.is_lost());
    assert_eq!(running.asked().last(), Some(&(20_000, 1)), "only the work that has begun keeps its lock");
    assert_eq!(
        *running.store.taken_back.lock().unwrap(),
        ["waits"],
        "others may take it at once, as if for the first time"
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_cannot_be_taken_back_is_remembered() {
    let running =
        RunningKeeper::start(ScriptedRenewer { refuses_abandons: true, ..ScriptedRenewer::default() });
    let waits = running.keep_unbegun("i");
    waits.given_up().await;
    pass(1.0).await;
    assert_eq!(running.uncounted.subtract_from(3, || turn_of("i")), 2);
}

#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_does_not_begin() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let waits = running.keep_unbegun("i");
    // The keeper has forgotten the lock, and signals its holder next.
    running.keeper.locks().lose(waits.id, "another has it");
    assert!(!waits.keep_on(), "no renewal keeps the lock");
    pass(6.0).await;
    assert!(running.store.taken_back.lock().unwrap().is_empty(), "it is not this runtime's to abandon");
}

#[test]
fn short_locks_are_renewed_at_half_time_and_long_ones_before_their_end() {
    let secs = Duration::from_secs;
    assert_eq!(renewal_interval(secs(5), secs(2)), Duration::from_millis(2_500));
    assert_eq!(renewal_interval(Duration::from_millis(200), secs(2)), Duration::from_millis(100));
    assert_eq!(renewal_interval(secs(30), secs(5)), secs(25));
    assert_eq!(renewal_interval(secs(15), secs(20)), secs(1));
    assert_eq!(renewal_interval(secs(30), secs(1)), secs(29));
    assert_eq!(renewal_interval(secs(30), Duration::ZERO), Duration::from_millis(29_900));
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_renewed_until_its_guard_is_dropped() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let guard = running.keep("a");
    pass(11.0).await;
    assert_eq!(running.asked(), [(5_000, 1), (10_000, 1)]);
    drop(guard);
    pass(60.0).await;
    assert_eq!(running.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn locks_due_together_are_renewed_in_one_call() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let _guards = [running.keep("a"), running.keep("b"), running.keep("c")];
    pass(6.0).await;
    assert_eq!(running.asked(), [(5_000, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_retried_and_loses_nothing() {
    let store = ScriptedRenewer::default();
    let busy = || vec![Err(ProviderError::retryable("renew", "busy"))];
    store.answers.lock().unwrap().extend([busy(), busy()]);
    let running = RunningKeeper::start(store);
    let guard = running.keep("a");
    pass(6.0).await;
    assert_eq!(running.asked().len(), 3);
    assert!(!guard.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn errors_beyond_the_end_of_the_lock_lose_it() {
    let store = ScriptedRenewer::default();
    let busy = || vec![Err(ProviderError::retryable("renew", "busy"))];
    store.answers.lock().unwrap().extend((0..1_000).map(|_| busy()));
    let running = RunningKeeper::start(store);
    let began = Instant::now();
    let guard = running.keep("a");
    guard.lost().await;
    assert!(guard.is_given_up());
    assert!(began.elapsed() <= Duration::from_secs(10));
    assert!(began.elapsed() >= Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_loses_one_lock_and_leaves_the_others() {
    let store = ScriptedRenewer::default();
    let refusal = Err(ProviderError::lock_lost("renew", "gone"));
    store.answers.lock().unwrap().push_back(vec![refusal, Ok(())]);
    let running = RunningKeeper::start(store);
    let (a, b) = (running.keep("a"), running.keep("b"));
    a.lost().await;
    assert!(!a.is_given_up());
    pass(6.0).await;
    assert_eq!(running.asked(), [(5_000, 2), (10_000, 1)]);
    assert!(!b.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_renewal_is_never_answered_is_given_up_while_it_can_still_be_abandoned() {
    let running = RunningKeeper::start(ScriptedRenewer { hangs_at: Some("a"), ..ScriptedRenewer::default() });
    let began = Instant::now();
    let guard = running.keep("a");
    guard.given_up().await;
    assert_eq!(began.elapsed(), Duration::from_millis(9_900));
}

/// A store that counts a renewal from its call and answers every call so late.
fn answering_after(seconds: u64) -> ScriptedRenewer {
    let answers_after = Duration::from_secs(seconds);
    ScriptedRenewer { answers_after, late_renewals: true, ..ScriptedRenewer::default() }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_renewal_is_only_late_is_kept() {
    let running = RunningKeeper::start(answering_after(8));
    let guard = running.keep("a");
    pass(60.0).await;
    assert!(!guard.lost.is_cancelled(), "the store has renewed it every time");
    assert_eq!(running.asked()[..3], [(5_000, 1), (13_000, 1), (21_000, 1)], "at once after each answer");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_that_the_lock_is_lost_loses_it() {
    let store = answering_after(8);
    store.answers.lock().unwrap().push_back(vec![Err(ProviderError::lock_lost("renew", "gone"))]);
    let running = RunningKeeper::start(store);
    let began = Instant::now();
    let guard = running.keep("a");
    guard.lost().await;
    assert!(!guard.is_given_up());
    assert_eq!(began.elapsed(), Duration::from_secs(13));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_late_and_then_fails_gives_the_lock_up() {
    let store = answering_after(3);
    let busy = || vec![Err(ProviderError::retryable("renew", "busy"))];
    store.answers.lock().unwrap().extend((0..100).map(|_| busy()));
    let running = RunningKeeper::start(store);
    let began = Instant::now();
    running.keep("a").given_up().await;
    assert_eq!(began.elapsed(), Duration::from_millis(11_050), "with the first failure after its end");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_for_one_more_length_of_the_lock_gives_it_up() {
    let hangs = ScriptedRenewer { hangs_at: Some("a"), late_renewals: true, ..ScriptedRenewer::default() };
    let running = RunningKeeper::start(hangs);
    let began = Instant::now();
    running.keep("a").given_up().await;
    assert_eq!(began.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_short_lock_is_given_up_a_tenth_before_its_end() {
    let running = RunningKeeper::start(ScriptedRenewer { hangs_at: Some("a"), ..ScriptedRenewer::default() });
    let began = Instant::now();
    let timeout = Duration::from_millis(200);
    running.keep_for("a", timeout, timeout).given_up().await;
    assert_eq!(began.elapsed(), Duration::from_millis(180));
}

#[tokio::test(start_paused = true)]
async fn a_short_lock_taken_while_the_keeper_sleeps_for_a_long_one_is_renewed_in_time() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let thirty = Duration::from_secs(30);
    let long = running.keep_for("long", thirty, thirty);
    pass(1.0).await;
    let five = Duration::from_secs(5);
    let short = running.keep_for("short", five, five);
    pass(6.0).await;
    assert_eq!(running.asked(), [(3_500, 1), (6_000, 1)], "the short lock is renewed every 2.5 s");
    assert!(!long.lost.is_cancelled() && !short.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_of_a_lock_before_the_answer_came_brings_its_renewal_forward() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let ten = Duration::from_secs(10);
    let _renewed_at_once = running.keep_for("late", ten, Duration::from_secs(4));
    pass(0.001).await;
    assert_eq!(running.asked(), [(0, 1)], "more than half of it is spent");
    let _renewed_soon = running.keep_for("later", ten, Duration::from_secs(8));
    pass(3.5).await;
    assert_eq!(running.asked(), [(0, 1), (3_001, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_mostly_spent_when_the_answer_came_is_given_up_at_its_own_end() {
    let running = RunningKeeper::start(ScriptedRenewer { hangs_at: Some("a"), ..ScriptedRenewer::default() });
    let began = Instant::now();
    running.keep_for("a", Duration::from_secs(10), Duration::from_secs(2)).given_up().await;
    assert_eq!(began.elapsed(), Duration::from_millis(1_900));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_sent_in_the_last_moment_has_until_the_end_of_the_lock() {
    let running = RunningKeeper::start(ScriptedRenewer { hangs_at: Some("a"), ..ScriptedRenewer::default() });
    let began = Instant::now();
    running.keep_for("a", Duration::from_secs(10), Duration::from_millis(50)).given_up().await;
    assert_eq!(began.elapsed(), Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_delays_no_other() {
    let running = RunningKeeper::start(ScriptedRenewer { hangs_at: Some("a"), ..ScriptedRenewer::default() });
    let hanging = running.keep("a");
    pass(1.0).await;
    let other = running.keep("b");
    hanging.lost().await;
    pass(2.0).await;
    assert_eq!(running.asked(), [(5_000, 1), (6_000, 1), (11_000, 1)]);
    assert!(!other.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_locks_are_all_released_is_cancelled() {
    let running = RunningKeeper::start(ScriptedRenewer { hangs_at: Some("a"), ..ScriptedRenewer::default() });
    let (hanging, other) = (running.keep("a"), running.keep("b"));
    pass(6.0).await;
    drop((hanging, other));
    let guard = running.keep("c");
    pass(6.0).await;
    assert_eq!(running.asked(), [(5_000, 2), (11_000, 1)]);
    assert!(!guard.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_asked_again() {
    let running = RunningKeeper::start(ScriptedRenewer {
        panics: Arc::new(AtomicUsize::new(2)),
        ..ScriptedRenewer::default()
    });
    let guard = running.keep("a");
    pass(6.0).await;
    assert_eq!(running.asked(), [(5_000, 1), (5_050, 1), (5_100, 1)]);
    assert!(!guard.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn an_endless_lock_needs_no_renewal() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let terms = LockTerms { kind: LockKind::WorkItem, timeout: Duration::MAX, buffer: Duration::ZERO };
    let guard = running.keeper.keep("endless".to_owned(), terms, Duration::MAX, CancellationToken::new());
    pass(1e6).await;
    assert!(running.asked().is_empty());
    guard.check_now();
    pass(0.001).await;
    assert_eq!(running.asked().len(), 1);
    assert!(!guard.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_lock_in_doubt_is_renewed_at_once() {
    let running = RunningKeeper::start(ScriptedRenewer::default());
    let guard = running.keep("a");
    pass(1.0).await;
    guard.check_now();
    pass(0.001).await;
    assert_eq!(running.asked(), [(1_000, 1)]);
}
