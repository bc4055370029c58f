//! Fused steps: an activity's end, the turn that it causes and the next activity are one commit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn::providers::sqlite::SqliteProvider;
use everturn::providers::store::{
    Feature, FetchedWork, Renewal, Renewed, Settlement, SettlementKind, StepAnswer, StepCommit, StepDecline,
    Store, StoreLayer, WorkFetch,
};
use everturn::providers::{Provider, ProviderError, store_of};
use everturn::runtime::ShadowReplay;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, EventKind, OrchestrationContext, RuntimeOptions};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::node_under_test::{NodeUnderTest, memory, quick, until};
use crate::stores::TestStore;

/// Instances stay in memory, and no activity is tried twice on a busy machine, under stress settings as well.
pub(crate) fn warm() -> RuntimeOptions {
    RuntimeOptions { warm_instances_max: 1_000, worker_lock_timeout: Duration::from_secs(20), ..quick() }
}

fn echo() -> ActivityRegistry {
    ActivityRegistry::builder().register("Echo", |_ctx, input: String| async move { Ok(input) }).build()
}

fn chain() -> OrchestrationRegistry {
    let chain = |ctx: OrchestrationContext, steps: u64| async move {
        for step in 0..steps {
            ctx.schedule_activity("Echo", step.to_string()).await?;
        }
        Ok(steps)
    };
    OrchestrationRegistry::builder().register_typed("Chain", chain).build()
}

/// Counts the steps, and how many of them were declined.
pub(crate) struct CountsSteps {
    inner: Arc<dyn Store>,
    committed: AtomicUsize,
    /// How many activities ended in them.
    outcomes: AtomicUsize,
    /// How many outcomes were stored without a step.
    stored: AtomicUsize,
    declined: Mutex<Vec<StepDecline>>,
    /// If set, every step waits for a permit.
    held: Option<Semaphore>,
}

impl CountsSteps {
    pub(crate) fn around(provider: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self::new(provider, None))
    }

    /// The same; no step is committed before the test lets it.
    fn holding(provider: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self::new(provider, Some(Semaphore::new(0))))
    }

    fn new(provider: Arc<dyn Provider>, held: Option<Semaphore>) -> Self {
        let (committed, outcomes, stored, declined) = Default::default();
        Self { inner: store_of(provider), committed, outcomes, stored, declined, held }
    }

    pub(crate) fn committed(&self) -> usize {
        self.committed.load(Ordering::SeqCst)
    }

    pub(crate) fn stored(&self) -> usize {
        self.stored.load(Ordering::SeqCst)
    }

    fn declined(&self) -> Vec<StepDecline> {
        self.declined.lock().unwrap().clone()
    }
}

impl StoreLayer for CountsSteps {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        self.inner.settle_work(settlement).await?;
        if matches!(settlement.kind, SettlementKind::End { .. }) {
            self.stored.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        if let Some(held) = &self.held {
            held.acquire().await.unwrap().forget();
        }
        let answer = self.inner.commit_step(step).await?;
        match &answer {
            StepAnswer::Committed(_) => {
                self.committed.fetch_add(1, Ordering::SeqCst);
                self.outcomes.fetch_add(step.ended.len(), Ordering::SeqCst);
            }
            StepAnswer::Declined(reason) => self.declined.lock().unwrap().push(*reason),
        }
        Ok(answer)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chained_step_is_one_commit() {
    const STEPS: u64 = 200;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("steps.db").display());
    let provider = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
    let store = CountsSteps::around(provider.clone());
    let node = NodeUnderTest::start(store.clone(), echo(), chain(), warm()).await;
    let before = provider.commit_count();
    node.client.start_orchestration("i", "Chain", STEPS.to_string()).await.unwrap();
    assert_eq!(node.output_of("i").await, STEPS.to_string());
    let commits = provider.commit_count() - before;
    until("every step is fused", async || store.committed() == STEPS as usize).await;
    assert_eq!(store.declined(), []);
    assert!(commits * 10 <= STEPS * 11, "{commits} commits for {STEPS} steps");
    node.runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_that_come_together_share_a_turn() {
    let store = CountsSteps::around(memory());
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let activities = ActivityRegistry::builder()
        .register("Wait", move |_ctx: ActivityContext, input: String| {
            let gate = Arc::clone(&opened);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(input)
            }
        })
        .build();
    let fan_out = |ctx: OrchestrationContext, width: usize| async move {
        let all = (0..width).map(|item| ctx.schedule_activity("Wait", item.to_string())).collect();
        let all: Vec<Result<String, String>> = ctx.join(all).await;
        Ok(all.into_iter().collect::<Result<Vec<String>, String>>()?.join(" "))
    };
    let orchestrations = OrchestrationRegistry::builder().register_typed("FanOut", fan_out).build();
    let node = NodeUnderTest::start(store.clone(), activities, orchestrations, warm()).await;
    node.client.start_orchestration("i", "FanOut", "40").await.unwrap();
    until("the instance is in memory", async || node.history("i", 1).await.len() == 41).await;
    gate.add_permits(40);
    let items: Vec<String> = (0..40).map(|item| item.to_string()).collect();
    assert_eq!(node.output_of("i").await, items.join(" "));
    let history = node.history("i", 1).await;
    let outcomes = history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }));
    assert_eq!(outcomes.count(), 40, "each outcome once");
    until("every outcome is part of a step", async || store.outcomes.load(Ordering::SeqCst) == 40).await;
    assert_eq!(store.declined(), [], "and no step was declined");
    node.runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_come_during_a_step_share_the_next_turn() {
    let kept = TestStore::memory_in_paused_time();
    let store = CountsSteps::holding(kept.provider());
    let all_at_once = |ctx: OrchestrationContext, width: usize| async move {
        let all = (0..width).map(|item| ctx.schedule_activity("Echo", item.to_string())).collect();
        let all: Vec<Result<String, String>> = ctx.join(all).await;
        all.into_iter().collect::<Result<String, String>>()
    };
    let orchestrations = OrchestrationRegistry::builder().register_typed("All", all_at_once).build();
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, warm()).await;
    // As many as there are workers.
    node.client.start_orchestration("i", "All", "4").await.unwrap();
    until("the activities are scheduled", async || node.history("i", 1).await.len() == 5).await;
    // Time enough for all of them to end: the first has a step under way.
    tokio::time::sleep(Duration::from_secs(3)).await;
    store.held.as_ref().unwrap().add_permits(1_000);
    assert_eq!(node.output_of("i").await, "0123");
    let outcomes = store.outcomes.load(Ordering::SeqCst);
    assert_eq!((store.committed(), outcomes), (2, 4), "the others share the next step");
    node.runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_during_a_step_waits_for_it() {
    message_during_a_step(TestStore::memory_in_paused_time()).await;
    message_during_a_step(TestStore::sqlite_in_paused_time().await).await;
}

async fn message_during_a_step(kept: TestStore) {
    let store = CountsSteps::holding(kept.provider());
    let orchestrations = OrchestrationRegistry::builder()
        .register("Inbox", |ctx: OrchestrationContext, _: String| async move {
            let echoed = ctx.schedule_activity("Echo", "done").await?;
            Ok(format!("{echoed}, then {}", ctx.dequeue_event("inbox").await))
        })
        .build();
    let runs = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&runs);
    let activities = ActivityRegistry::builder()
        .register("Echo", move |_ctx: ActivityContext, input: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok(input) }
        })
        .build();
    let node = NodeUnderTest::start(store.clone(), activities, orchestrations, warm()).await;
    node.client.start_orchestration("i", "Inbox", "").await.unwrap();
    until("the activity is scheduled", async || node.history("i", 1).await.len() == 2).await;
    node.client.enqueue_event("i", "inbox", "message").await.unwrap();
    // Time enough for a fetch to take the instance.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let began = Instant::now();
    store.held.as_ref().unwrap().add_permits(1_000);
    assert_eq!(node.output_of("i").await, "done, then message");
    assert!(began.elapsed() < Duration::from_millis(500), "it waits no longer than that");
    assert_eq!(store.declined(), [StepDecline::MessagesWaiting], "the message waits for the step");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the outcome of a declined step is stored");
    node.runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_continues_as_new_in_a_step_goes_on_at_once() {
    continues_as_new(TestStore::memory_in_paused_time()).await;
    continues_as_new(TestStore::sqlite_in_paused_time().await).await;
}

async fn continues_as_new(kept: TestStore) {
    let store = CountsSteps::around(kept.provider());
    let rounds = |ctx: OrchestrationContext, left: u64| async move {
        ctx.schedule_activity("Echo", left.to_string()).await?;
        match left.checked_sub(1) {
            Some(left) => ctx.continue_as_new(left.to_string()).await,
            None => Ok("done".to_owned()),
        }
    };
    let orchestrations = OrchestrationRegistry::builder().register_typed("Rounds", rounds).build();
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, warm()).await;
    let began = Instant::now();
    node.client.start_orchestration("i", "Rounds", "20").await.unwrap();
    node.output_of("i").await;
    assert!(began.elapsed() < Duration::from_millis(500), "no round waits for the next look");
    until("every round ends with a step", async || store.committed() == 21).await;
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn code_that_decides_otherwise_in_a_step_than_in_its_replay_fails_its_instance() {
    let begun = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&begun);
    let orchestrations = OrchestrationRegistry::builder()
        .register("Fickle", move |ctx: OrchestrationContext, _: String| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                ctx.schedule_activity("Echo", "first").await?;
                // The first run goes on otherwise than every replay.
                let next = if run == 0 { "one" } else { "other" };
                ctx.schedule_activity("Echo", next).await
            }
        })
        .build();
    let options = RuntimeOptions { shadow_replay: ShadowReplay::Always, ..warm() };
    let store = CountsSteps::around(memory());
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, options).await;
    node.client.start_orchestration("i", "Fickle", "").await.unwrap();
    let failure = node.failure_of("i").await;
    assert!(failure.display_message().contains("differs from its replay"), "{failure:?}");
    assert_eq!(store.committed(), 0, "the step was not committed");
    node.runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_cross_with_steps_are_all_delivered() {
    const MESSAGES: usize = 200;
    let store = CountsSteps::around(memory());
    let worker = |ctx: OrchestrationContext, messages: usize| async move {
        for _ in 0..messages {
            let message = ctx.dequeue_event("inbox").await;
            ctx.schedule_activity("Echo", message).await?;
            ctx.schedule_activity("Echo", "again").await?;
        }
        Ok(messages)
    };
    let orchestrations = OrchestrationRegistry::builder().register_typed("Inbox", worker).build();
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, warm()).await;
    node.client.start_orchestration("i", "Inbox", MESSAGES.to_string()).await.unwrap();
    for message in 0..MESSAGES {
        node.client.enqueue_event("i", "inbox", message.to_string()).await.unwrap();
    }
    assert_eq!(node.output_of("i").await, MESSAGES.to_string());
    let history = node.history("i", 1).await;
    let outcomes = history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }));
    assert_eq!(outcomes.count(), 2 * MESSAGES, "each activity has one outcome");
    assert!(store.committed() > 0, "some steps are fused");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn shutdown_in_the_middle_of_a_chain_loses_nothing() {
    let store = CountsSteps::around(memory());
    for _ in 0..3 {
        let node = NodeUnderTest::start(store.clone(), echo(), chain(), warm()).await;
        let started = node.client.start_orchestration("i", "Chain", "3000").await;
        drop(started);
        let steps = store.committed();
        until("some steps are committed", async || store.committed() > steps + 50).await;
        node.runtime.shutdown(None).await;
    }
    let node = NodeUnderTest::start(store.clone(), echo(), chain(), warm()).await;
    assert_eq!(node.output_of("i").await, "3000");
    let history = node.history("i", 1).await;
    let outcomes = history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }));
    assert_eq!(outcomes.count(), 3_000);
    node.runtime.shutdown(None).await;
}

/// Commits steps, but the first answers do not say so.
struct LosesAnswers {
    inner: Arc<dyn Store>,
    /// How many answers are lost.
    lost: usize,
    calls: AtomicUsize,
}

impl LosesAnswers {
    fn of_steps(lost: usize) -> Arc<Self> {
        Arc::new(Self { inner: store_of(memory()), lost, calls: AtomicUsize::new(0) })
    }
}

impl StoreLayer for LosesAnswers {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let answer = self.inner.commit_step(step).await?;
        if call < self.lost {
            return Err(ProviderError::permanent("commit_step", "the answer was lost"));
        }
        Ok(answer)
    }
}

#[tokio::test]
async fn a_step_that_is_durable_counts_whatever_the_store_answers() {
    let store = LosesAnswers::of_steps(usize::MAX);
    let node = NodeUnderTest::start(store.clone(), echo(), chain(), warm()).await;
    node.client.start_orchestration("i", "Chain", "1").await.unwrap();
    assert_eq!(node.output_of("i").await, "1");
    Arc::clone(&node.runtime).shutdown(None).await;
    let counted = node.runtime.metrics_snapshot().unwrap();
    assert_eq!((counted.orch_completions, counted.activity_success), (1, 1), "both ended in the step");
    assert_eq!(store.calls.load(Ordering::SeqCst), 2, "the store is asked once what the step has locked");
}

#[tokio::test(start_paused = true)]
async fn an_activity_that_a_step_locked_runs_although_the_answer_was_lost() {
    let kept = TestStore::memory_in_paused_time();
    let store =
        Arc::new(LosesAnswers { inner: store_of(kept.provider()), lost: 1, calls: AtomicUsize::new(0) });
    let node = NodeUnderTest::start(store, echo(), chain(), warm()).await;
    let began = Instant::now();
    node.client.start_orchestration("i", "Chain", "2").await.unwrap();
    assert_eq!(node.output_of("i").await, "2");
    assert!(began.elapsed() < Duration::from_secs(5), "it does not wait for the end of its lock");
    node.runtime.shutdown(None).await;
}

/// Never answers a step.
struct SilentSteps(Arc<dyn Store>);

impl StoreLayer for SilentSteps {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn supports(&self, feature: Feature) -> bool {
        self.0.supports(feature)
    }

    async fn commit_step(&self, _step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_without_an_answer_does_not_hide_its_instance_for_ever() {
    let kept = TestStore::memory_in_paused_time();
    let store = Arc::new(SilentSteps(store_of(kept.provider())));
    let node = NodeUnderTest::start(store, echo(), chain(), warm()).await;
    node.client.start_orchestration("i", "Chain", "3").await.unwrap();
    until("the activity is scheduled", async || node.history("i", 1).await.len() == 2).await;
    // Time enough for its end to become a step.
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.client.cancel_instance("i", "enough").await.unwrap();
    let failure = node.failure_of("i").await;
    assert!(failure.display_message().contains("enough"), "{failure:?}");
    node.runtime.shutdown(Some(100)).await;
}

/// Counts the steps that ask for a next activity.
struct AsksForNext {
    inner: Arc<dyn Store>,
    steps: AtomicUsize,
    asking: AtomicUsize,
}

impl StoreLayer for AsksForNext {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        let asks = step.ended.iter().any(|ended| ended.next.is_some());
        self.asking.fetch_add(usize::from(asks), Ordering::SeqCst);
        self.inner.commit_step(step).await
    }
}

#[tokio::test]
async fn a_step_leaves_an_activity_without_a_handler_here_to_other_runtimes() {
    let provider = memory();
    let counting = AsksForNext {
        inner: store_of(provider.clone()),
        steps: AtomicUsize::new(0),
        asking: AtomicUsize::new(0),
    };
    let store = Arc::new(counting);
    let orchestrations = OrchestrationRegistry::builder()
        .register("Two", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Echo", "here").await?;
            ctx.schedule_activity("Elsewhere", "there").await
        })
        .build();
    let elsewhere = ActivityRegistry::builder()
        .register("Elsewhere", |_ctx: ActivityContext, input: String| async move { Ok(input) })
        .build();
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, warm()).await;
    let other =
        NodeUnderTest::start(provider, elsewhere, OrchestrationRegistry::builder().build(), warm()).await;
    node.client.start_orchestration("i", "Two", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "there");
    let counted = (store.steps.load(Ordering::SeqCst), store.asking.load(Ordering::SeqCst));
    assert_eq!(counted, (1, 0), "the step on Echo schedules Elsewhere and locks nothing");
    other.runtime.shutdown(None).await;
    node.runtime.shutdown(None).await;
}

/// Says of every activity that it was fetched before.
struct TriedBefore(Arc<CountsSteps>);

impl StoreLayer for TriedBefore {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn supports(&self, feature: Feature) -> bool {
        Store::supports(&*self.0, feature)
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let mut fetched = Store::fetch_work(&*self.0, fetch).await?;
        fetched.iter_mut().for_each(|work| work.attempt_count = 2);
        Ok(fetched)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        Store::commit_step(&*self.0, step).await
    }
}

#[tokio::test]
async fn the_outcome_of_an_activity_that_was_tried_before_is_stored_before_its_turn() {
    let steps = CountsSteps::around(memory());
    let store = Arc::new(TriedBefore(Arc::clone(&steps)));
    let node = NodeUnderTest::start(store, echo(), chain(), warm()).await;
    node.client.start_orchestration("i", "Chain", "3").await.unwrap();
    assert_eq!(node.output_of("i").await, "3");
    node.runtime.shutdown(None).await;
    assert_eq!((steps.committed(), steps.declined()), (0, vec![]), "the turn may be what ended the process");
}

/// Takes long for its steps, one after the other, and fails renewals until then.
struct SlowSteps {
    inner: Arc<dyn Store>,
    /// How long each step takes, before or after its commit.
    steps: Mutex<VecDeque<StepDelay>>,
    /// Renewals before this moment fail.
    renews_after: Instant,
}

#[derive(Clone, Copy)]
enum StepDelay {
    Before(Duration),
    After(Duration),
}

impl SlowSteps {
    fn around(provider: Arc<dyn Provider>, steps: &[StepDelay], renews_after: Instant) -> Arc<Self> {
        let steps = Mutex::new(steps.iter().copied().collect());
        Arc::new(Self { inner: store_of(provider), steps, renews_after })
    }
}

impl StoreLayer for SlowSteps {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        if Instant::now() < self.renews_after {
            return Err(ProviderError::retryable("renew", "the disk is busy"));
        }
        self.inner.renew(renewal).await
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let delay = self.steps.lock().unwrap().pop_front();
        if let Some(StepDelay::Before(delay)) = delay {
            tokio::time::sleep(delay).await;
        }
        let answer = self.inner.commit_step(step).await;
        if let Some(StepDelay::After(delay)) = delay {
            tokio::time::sleep(delay).await;
        }
        answer
    }
}

/// Runs chains of two activities at the same time.
fn two_each() -> OrchestrationRegistry {
    let chains = |ctx: OrchestrationContext, width: usize| async move {
        let chain = |item: usize| {
            let ctx = ctx.clone();
            async move {
                ctx.schedule_activity("Echo", item.to_string()).await?;
                ctx.schedule_activity("Echo", item.to_string()).await
            }
        };
        let all: Vec<Result<String, String>> = futures::future::join_all((0..width).map(chain)).await;
        Ok(all.into_iter().collect::<Result<Vec<String>, String>>()?.join(" "))
    };
    OrchestrationRegistry::builder().register_typed("TwoEach", chains).build()
}

#[tokio::test(start_paused = true)]
async fn an_activity_that_a_late_step_took_for_a_worker_runs_at_once() {
    let kept = TestStore::memory_in_paused_time();
    let began = Instant::now();
    let delays = [StepDelay::After(Duration::from_secs(1)), StepDelay::After(Duration::from_secs(15))];
    let store = SlowSteps::around(kept.provider(), &delays, began);
    let node = NodeUnderTest::start(store, echo(), two_each(), warm()).await;
    node.client.start_orchestration("i", "TwoEach", "3").await.unwrap();
    assert_eq!(node.output_of("i").await, "0 1 2");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(15), "the second step is answered late: {took:?}");
    assert!(took < Duration::from_secs(20), "no activity waits for the end of a lock: {took:?}");
    node.runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_while_outcomes_wait_for_a_step_counts_no_attempt() {
    let kept = TestStore::memory_in_paused_time();
    // Longer than the locks last.
    let outage = Duration::from_secs(8);
    let began = Instant::now();
    let store = SlowSteps::around(kept.provider(), &[StepDelay::Before(outage)], began + outage);
    // Both workers wait for the step. An attempt too many is poison.
    let options = RuntimeOptions {
        worker_concurrency: 2,
        worker_lock_timeout: Duration::from_secs(3),
        max_attempts: 1,
        ..warm()
    };
    let node = NodeUnderTest::start(store, echo(), two_each(), options).await;
    node.client.start_orchestration("i", "TwoEach", "2").await.unwrap();
    assert_eq!(node.output_of("i").await, "0 1");
    assert!(began.elapsed() >= outage, "the step met the outage");
    node.runtime.shutdown(None).await;
}
