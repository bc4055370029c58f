//! Runs one world, from its start to the last check.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::Clock;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::checks;
use crate::clients::Clients;
use crate::counts::WorldCounts;
use crate::failing_verb::FailingVerb;
use crate::fault_plan::{DISK_FAULTS, Fault, FaultInjector};
use crate::interpreter::FAR;
use crate::memory_world;
use crate::model::{Expectations, expect};
use crate::node::Machine;
use crate::panics;
use crate::plan::{Plan, root_of};
use crate::power;
use crate::random::SeededRandom;
use crate::recorder::{ClientRequest, Recorder};
use crate::scenario::Scenario;
use crate::sim_clock::SimClock;
use crate::turn_trace::TracedTurn;
use crate::world_store::{CreateStore, WorldStore};

/// When the faults end, if they have not before.
const FAULTS_END_AFTER: Duration = Duration::from_secs(90);
/// How long all instances may take to end after that: a few locks have to expire, and each instance has a few more steps.
const END_WITHIN: Duration = Duration::from_secs(120);
/// How long the queues may take to run empty.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// How long anything else may take that the world waits for: many times what locks, faults of a disk and power cuts take
/// together.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How long a clock stays set back, unless it does for good.
const BACK_MS_MAX: u64 = 3_000;
/// How far the store's clock is set back for good, altogether: timers wait as long, and the world has to end.
const BACK_FOR_GOOD_MS: i64 = 60_000;
/// How often faults are drawn that belong to no call.
const FAULTS_EVERY: Duration = Duration::from_millis(100);

/// What became of a world.
#[derive(Debug)]
pub struct Outcome {
    /// All violations; none in a good world.
    pub violations: Vec<String>,
    /// How much happened.
    pub counts: WorldCounts,
    /// The faults that took effect, one per line.
    pub faults: String,
    /// How long it took, in the world's own time, until the last instance had ended.
    pub took: Duration,
}

/// Runs a plan, on a clock of its own.
///
/// ```
/// use everturn_simulation::{Plan, Theme, run};
///
/// let outcome = run(&Plan::new(Theme::Faults, 42));
/// assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
/// ```
pub fn run(plan: &Plan) -> Outcome {
    run_on(memory_world::create, plan)
}

/// Runs a plan on another store.
pub fn run_on(create: CreateStore, plan: &Plan) -> Outcome {
    run_world(create, plan, false).0
}

/// Runs a plan and returns a trace: every call and every fault, one per line, and what is stored in the end.
pub fn run_traced(plan: &Plan) -> (Outcome, String) {
    run_traced_on(memory_world::create, plan)
}

/// The same on another store.
pub fn run_traced_on(create: CreateStore, plan: &Plan) -> (Outcome, String) {
    let (outcome, traces) = run_world(create, plan, true);
    (outcome, traces.trace)
}

/// Runs a plan and returns every turn.
pub(crate) fn run_with_turns(plan: &Plan) -> (Outcome, Vec<TracedTurn>) {
    let (outcome, traces) = run_world(memory_world::create, plan, true);
    (outcome, traces.turns)
}

/// The traces of a world, if it is traced.
#[derive(Default)]
struct Traces {
    trace: String,
    turns: Vec<TracedTurn>,
}

fn run_world(create: CreateStore, plan: &Plan, is_traced: bool) -> (Outcome, Traces) {
    let ((mut outcome, traces), panics) =
        panics::collecting_panics(|| run_in_paused_time(create, plan, is_traced));
    outcome.violations.extend(panics.into_iter().map(|panic| format!("the engine panicked: {panic}")));
    (outcome, traces)
}

fn run_in_paused_time(create: CreateStore, plan: &Plan, is_traced: bool) -> (Outcome, Traces) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let outcome = match runtime {
        Ok(runtime) => {
            let (outcome, store) = runtime.block_on(run_with_store(create, plan, is_traced));
            // Tasks that still have the store open are dropped first.
            drop(runtime);
            drop(store);
            outcome
        }
        Err(error) => Err(format!("no async runtime could be made: {error}")),
    };
    outcome.unwrap_or_else(|error| {
        let (counts, faults, took) = (WorldCounts::default(), String::new(), Duration::ZERO);
        (Outcome { violations: vec![error], counts, faults, took }, Traces::default())
    })
}

async fn run_with_store(
    create: CreateStore,
    plan: &Plan,
    is_traced: bool,
) -> (Result<(Outcome, Traces), String>, Arc<dyn WorldStore>) {
    let origin = Instant::now();
    let store_clock = Arc::new(SimClock::new(origin, 0, SeededRandom::of(plan.seed, "store")));
    let store = create(Arc::clone(&store_clock) as Arc<dyn Clock>, plan);
    let clients = match store.open().await {
        Ok(clients) => clients,
        Err(error) => return (Err(format!("the store could not be opened: {error}")), store),
    };
    // The name of the sequence is part of what a seed means.
    let faults = FaultInjector::new(plan.faults.clone(), SeededRandom::of(plan.seed, "sky"));
    let (requests, requests_to_run) = mpsc::unbounded_channel();
    let stored = (Arc::clone(&store), store_clock);
    let scenario =
        Arc::new(Scenario::new(origin, is_traced, plan.store_bug, stored, clients, faults, requests));
    let outcome = run_scenario(Arc::clone(&scenario), plan, requests_to_run).await;
    in_time(&scenario, "closing the store", scenario.clients().kill()).await;
    let traces = if is_traced { traces(&scenario) } else { Traces::default() };
    scenario.forget_records();
    (Ok((outcome, traces)), store)
}

async fn run_scenario(
    scenario: Arc<Scenario>,
    plan: &Plan,
    requests_to_run: mpsc::UnboundedReceiver<ClientRequest>,
) -> Outcome {
    let mut expectations = Expectations::new();
    for root in plan.roots.iter().filter(|root| root.cancel_after_ms.is_none()) {
        expect(&mut expectations, &root.id, &root.program);
    }
    let clients = Clients::new(Arc::clone(&scenario));
    tokio::spawn(clients.clone().run_requests(requests_to_run));

    let stop = CancellationToken::new();
    let mut machines = Vec::new();
    let mut controls = Vec::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        let (clock, restart) = (scenario.clock(plan.seed, index, node.skew_ms), Arc::new(Notify::new()));
        controls.push((Arc::clone(&clock), Arc::clone(&restart)));
        let machine = Machine { scenario: Arc::clone(&scenario), index, plan: node.clone(), clock, restart };
        machines.push(tokio::spawn(machine.run(stop.clone())));
    }
    for root in &plan.roots {
        clients.drive(root.clone());
    }
    let power = tokio::spawn(power::watch(Arc::clone(&scenario)));
    let faults = tokio::spawn(inject_faults(Arc::clone(&scenario), controls));
    let all_ended = end(&scenario, &expectations).await;
    faults.abort();
    end_faults(&scenario);
    in_time(&scenario, "restoring the power", scenario.power()).await;
    if all_ended {
        drain(&scenario).await;
    }
    stop.cancel();
    for machine in machines {
        if let Some(Err(error)) = in_time(&scenario, "stopping a node", machine).await {
            scenario.violated(format!("a node panicked: {error}"));
        }
    }
    power.abort();
    in_time(&scenario, "checking", checks::check(&scenario, &expectations, &clients.take_answers())).await;
    outcome(plan, &scenario, &expectations)
}

/// Waits for something that must not take long.
pub(crate) async fn in_time<T>(scenario: &Scenario, what: &str, done: impl Future<Output = T>) -> Option<T> {
    let done = timeout(WAIT_MAX, done).await;
    if done.is_err() {
        scenario.violated(format!("G5: {what} took longer than {WAIT_MAX:?}"));
    }
    done.ok()
}

/// From now on there are no faults.
fn end_faults(scenario: &Scenario) {
    scenario.records().faults.end();
    scenario.records().failing_verb = None;
    scenario.store.heal();
    record_store_faults(scenario);
}

/// Waits until all instances have ended: at last without faults, so that they must.
async fn end(scenario: &Scenario, expectations: &Expectations) -> bool {
    let all_ended = async {
        loop {
            let changed = scenario.changed.notified();
            if scenario.under_way() == 0 {
                let records = scenario.records();
                if open(&records.recorder, expectations).next().is_none() {
                    return;
                }
            }
            changed.await;
        }
    };
    tokio::pin!(all_ended);
    if timeout(FAULTS_END_AFTER, &mut all_ended).await.is_ok() {
        return true;
    }
    end_faults(scenario);
    scenario.trace(format_args!("no faults from now on"));
    let has_ended = timeout(END_WITHIN, all_ended).await.is_ok();
    if !has_ended {
        let under_way = scenario.under_way();
        let records = scenario.records();
        let open = format!("{:?}", open(&records.recorder, expectations).collect::<BTreeSet<_>>());
        drop(records);
        scenario.violated(format!(
            "G5: not everything ended within {END_WITHIN:?} without faults: {under_way} calls are under way, open: {open}"
        ));
    }
    has_ended
}

/// The instances that have not ended: those that were started, and those that are expected.
fn open<'a>(recorder: &'a Recorder, expectations: &'a Expectations) -> impl Iterator<Item = &'a String> {
    let is_expected = |instance: &&String| !recorder.worn_out.contains(root_of(instance));
    let known = recorder.started.iter().chain(expectations.keys().filter(is_expected));
    known.filter(|instance| !recorder.ended.contains(*instance))
}

/// Makes the last timers due, and waits until the queues are empty.
async fn drain(scenario: &Scenario) {
    scenario.store_clock.jump(2 * FAR.as_millis() as i64);
    let deadline = Instant::now() + DRAIN_WITHIN;
    while Instant::now() < deadline {
        let instances: Vec<String> = scenario.records().recorder.started.iter().cloned().collect();
        if !instances.iter().any(|instance| scenario.store.rows_left(instance) > 0) {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Begins faults of the store and its disk.
fn strike_store(scenario: &Scenario) {
    for fault in [Fault::LostBatch].into_iter().chain(DISK_FAULTS) {
        let mut records = scenario.records();
        if records.faults.happens(fault) {
            scenario.store.strike(fault, records.faults.random());
        }
    }
    record_store_faults(scenario);
}

/// Records which faults of the store and its disk took effect.
fn record_store_faults(scenario: &Scenario) {
    let effects = scenario.store.tick(scenario.records().faults.random());
    for (fault, what) in effects {
        scenario.fault(fault, format_args!("{what}"));
    }
}

/// Sets clocks, restarts nodes, and makes the disk fail.
async fn inject_faults(scenario: Arc<Scenario>, controls: Vec<(Arc<SimClock>, Arc<Notify>)>) {
    let mut back_for_good_ms = BACK_FOR_GOOD_MS;
    for tick in 0.. {
        sleep(FAULTS_EVERY).await;
        strike_store(&scenario);
        let overdue = {
            let mut records = scenario.records();
            let (ended, started) = (records.recorder.ended.len(), records.recorder.started.len());
            records.faults.overdue(ended, started)
        };
        let restarted = (overdue == Some(Fault::Restart)).then_some(tick % controls.len());
        for (index, (clock, restart)) in controls.iter().enumerate() {
            let (restarts, jumps) = {
                let mut records = scenario.records();
                (records.faults.happens(Fault::Restart), records.faults.happens(Fault::NodeClock))
            };
            if restarts || restarted == Some(index) {
                scenario.fault(Fault::Restart, format_args!("node {index}"));
                restart.notify_one();
            }
            if jumps {
                let by_ms = jump_ms(&scenario);
                scenario.fault(Fault::NodeClock, format_args!("node {index} by {by_ms} ms"));
                clock.jump(by_ms);
            }
        }
        begin_verb_outage(&scenario);
        let jumps = scenario.records().faults.happens(Fault::StoreClock);
        if jumps || overdue == Some(Fault::StoreClock) {
            set_store_clock(&scenario, &mut back_for_good_ms);
        }
    }
}

/// Lets one verb of the store fail for a while.
fn begin_verb_outage(scenario: &Scenario) {
    let mut records = scenario.records();
    if !records.faults.happens(Fault::VerbOutage) {
        return;
    }
    let failing = FailingVerb::drawn(records.faults.random());
    records.failing_verb = Some(failing);
    drop(records);
    scenario.fault(Fault::VerbOutage, format_args!("{} fails for {:?}", failing.verb, failing.lasts));
}

/// Sets the store's clock: forward, back for good within the limit, or back for a while.
fn set_store_clock(scenario: &Arc<Scenario>, back_for_good_ms: &mut i64) {
    let mut by_ms = jump_ms(scenario);
    let is_for_good = by_ms > 0 || (*back_for_good_ms > 0 && scenario.records().faults.random().one_in(3));
    if is_for_good && by_ms < 0 {
        by_ms = by_ms.max(-*back_for_good_ms);
        *back_for_good_ms += by_ms;
    }
    let how = if is_for_good { "for good" } else { "for a while" };
    scenario.fault(Fault::StoreClock, format_args!("the store by {by_ms} ms {how}"));
    scenario.store_clock.jump(by_ms);
    if !is_for_good {
        // Timers now wait for as long as the clock went back, which is too long for a test.
        let (scenario, back) = (Arc::clone(scenario), scenario.some_ms(100, BACK_MS_MAX));
        tokio::spawn(async move {
            sleep(back).await;
            scenario.trace(format_args!("the store's clock goes forward again by {} ms", -by_ms));
            scenario.store_clock.jump(-by_ms);
        });
    }
}

/// How far a clock is set: often little, sometimes as far as the plan allows.
fn jump_ms(scenario: &Scenario) -> i64 {
    let mut records = scenario.records();
    let most = records.faults.clock_jump_ms_max();
    let random = records.faults.random();
    let most = if random.one_in(2) { most } else { most.min(5_000) };
    let by_ms = random.between(1, most).cast_signed();
    if random.one_in(2) { by_ms } else { -by_ms }
}

fn outcome(plan: &Plan, scenario: &Scenario, expectations: &Expectations) -> Outcome {
    let records = scenario.records();
    let recorder = &records.recorder;
    let roots = plan.roots.iter().map(|root| &root.id);
    let instances: BTreeSet<&String> = roots.chain(expectations.keys()).chain(&recorder.started).collect();
    let counts = WorldCounts {
        nodes: plan.nodes.len() as u64,
        instances: instances.len() as u64,
        instances_ended: instances.iter().filter(|i| recorder.ended.contains(**i)).count() as u64,
        turns: recorder.turns,
        fused_steps: recorder.fused_steps,
        activities_fetched: recorder.activities_fetched,
        activity_runs: recorder.activity_runs,
        actions: plan.roots.iter().map(|root| root.program.steps_in_all() as u64).sum(),
        actions_min: plan.roots.iter().map(|root| root.program.steps_in_all() as u64).min().unwrap_or(0),
        turns_in_one_batch: scenario.store.turns_in_one_batch(),
        faults: records.faults.effects().clone(),
    };
    Outcome {
        violations: recorder.violations.clone(),
        counts,
        faults: records.fault_log.clone(),
        took: recorder.last_end,
    }
}

fn traces(scenario: &Scenario) -> Traces {
    let mut trace = scenario.take_trace();
    for event in scenario.records().recorder.histories.values().flatten() {
        // Writing into a text cannot fail.
        let _ = writeln!(trace, "{event:?}");
    }
    let turns = scenario.records().recorder.turn_trace.take().map_or_else(Vec::new, |trace| trace.turns);
    if let Some(path) = scenario.store.path() {
        trace = trace.replace(&path, "the store");
    }
    Traces { trace, turns }
}
