//! One world, from its beginning to the last check.

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
use crate::counts::Counts;
use crate::interpreter::FAR;
use crate::memory_store;
use crate::model::{Expectations, expect};
use crate::node::Machine;
use crate::observer::Errand;
use crate::outside::Outside;
use crate::panics;
use crate::plan::Plan;
use crate::power;
use crate::random::SeededRandom;
use crate::scene::Scene;
use crate::sim_clock::SimClock;
use crate::store::{Founder, Store};
use crate::story::ToldTurn;
use crate::weather::{DISK_FAULTS, Fault, Sky};

/// When the weather calms down, if it has not before.
const CALM_AFTER: Duration = Duration::from_secs(90);
/// How long everything may take to end after that: a few locks have to run out, and each instance has a few more steps.
const END_WITHIN: Duration = Duration::from_secs(120);
/// How long the queues may take to run empty.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// How long anything else may take that the world has to wait for: many times what locks, faults of a disk and
/// darkness take together.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How long a clock that was set back by chance stays so, unless it does for good.
const BACK_MS_MAX: u64 = 3_000;
/// How far the store's clock is set back for good, altogether: timers wait for as long, and the world has to end.
const BACK_FOR_GOOD_MS: i64 = 60_000;
/// How often clocks and restarts are thought of.
const CHAOS_EVERY: Duration = Duration::from_millis(100);

/// What became of a world.
#[derive(Debug)]
pub struct Outcome {
    /// Everything that was broken; nothing in a good world.
    pub violations: Vec<String>,
    /// How much happened.
    pub counts: Counts,
    /// The faults that took effect, one a line.
    pub faults: String,
    /// How long it took, in the world's own time, until the last instance had ended.
    pub took: Duration,
}

/// Lives through a plan, on a clock of its own.
///
/// ```
/// use everturn_simulation::{Plan, Theme, run};
///
/// let outcome = run(&Plan::new(Theme::Storms, 42));
/// assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
/// ```
pub fn run(plan: &Plan) -> Outcome {
    run_on(memory_store::found, plan)
}

/// Lives through a plan in a store of one's own.
pub fn run_on(found: Founder, plan: &Plan) -> Outcome {
    run_world(found, plan, false).0
}

/// The same, and writes everything down: every call and every fault, one a line, and what is stored in the end.
pub fn run_traced(plan: &Plan) -> (Outcome, String) {
    run_traced_on(memory_store::found, plan)
}

/// The same in a store of one's own.
pub fn run_traced_on(found: Founder, plan: &Plan) -> (Outcome, String) {
    let (outcome, record) = run_world(found, plan, true);
    (outcome, record.trace)
}

/// The same, and tells every turn.
pub(crate) fn run_told(plan: &Plan) -> (Outcome, Vec<ToldTurn>) {
    let (outcome, record) = run_world(memory_store::found, plan, true);
    (outcome, record.turns)
}

/// What is written down of a world, if anything is.
#[derive(Default)]
struct Record {
    trace: String,
    turns: Vec<ToldTurn>,
}

fn run_world(found: Founder, plan: &Plan, is_traced: bool) -> (Outcome, Record) {
    let ((mut outcome, record), panics) = panics::hearing(|| come_and_go(found, plan, is_traced));
    outcome.violations.extend(panics.into_iter().map(|panic| format!("the engine panicked: {panic}")));
    (outcome, record)
}

fn come_and_go(found: Founder, plan: &Plan, is_traced: bool) -> (Outcome, Record) {
    let world = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let lived = match world {
        Ok(world) => {
            let (lived, store) = world.block_on(live(found, plan, is_traced));
            // Whatever still has the store open goes first.
            drop(world);
            drop(store);
            lived
        }
        Err(error) => Err(format!("no world could be made: {error}")),
    };
    lived.unwrap_or_else(|error| {
        let (counts, faults, took) = (Counts::default(), String::new(), Duration::ZERO);
        (Outcome { violations: vec![error], counts, faults, took }, Record::default())
    })
}

async fn live(
    found: Founder,
    plan: &Plan,
    is_traced: bool,
) -> (Result<(Outcome, Record), String>, Arc<dyn Store>) {
    let origin = Instant::now();
    let store_clock = Arc::new(SimClock::new(origin, 0, SeededRandom::of(plan.seed, "store")));
    let store = found(Arc::clone(&store_clock) as Arc<dyn Clock>, plan);
    let clients = match store.open().await {
        Ok(clients) => clients,
        Err(error) => return (Err(format!("the store could not be opened: {error}")), store),
    };
    let sky = Sky::new(plan.weather.clone(), SeededRandom::of(plan.seed, "sky"));
    let (errands, errands_to_run) = mpsc::unbounded_channel();
    let stored = (Arc::clone(&store), store_clock);
    let scene = Arc::new(Scene::new(origin, is_traced, plan.sabotage, stored, clients, sky, errands));
    let lived = live_in(Arc::clone(&scene), plan, errands_to_run).await;
    in_time(&scene, "closing the store", scene.clients().kill()).await;
    let record = if is_traced { record(&scene) } else { Record::default() };
    (Ok((lived, record)), store)
}

async fn live_in(scene: Arc<Scene>, plan: &Plan, errands_to_run: mpsc::UnboundedReceiver<Errand>) -> Outcome {
    let mut expectations = Expectations::new();
    for root in plan.roots.iter().filter(|root| root.cancel_after_ms.is_none()) {
        expect(&mut expectations, &root.id, &root.program);
    }
    let outside = Outside::new(Arc::clone(&scene));
    tokio::spawn(outside.clone().run_errands(errands_to_run));

    let stop = CancellationToken::new();
    let mut machines = Vec::new();
    let mut controls = Vec::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        let (clock, restart) = (scene.clock(plan.seed, index, node.skew_ms), Arc::new(Notify::new()));
        controls.push((Arc::clone(&clock), Arc::clone(&restart)));
        let machine = Machine { scene: Arc::clone(&scene), index, plan: node.clone(), clock, restart };
        machines.push(tokio::spawn(machine.run(stop.clone())));
    }
    for root in &plan.roots {
        outside.drive(root.clone());
    }
    let power = tokio::spawn(power::watch(Arc::clone(&scene)));
    let chaos = tokio::spawn(chaos(Arc::clone(&scene), controls));
    let all_ended = end(&scene, &expectations).await;
    chaos.abort();
    calm_down(&scene);
    in_time(&scene, "switching the power on", scene.power()).await;
    if all_ended {
        drain(&scene).await;
    }
    stop.cancel();
    for machine in machines {
        if let Some(Err(error)) = in_time(&scene, "stopping a node", machine).await {
            scene.violated(format!("a node panicked: {error}"));
        }
    }
    power.abort();
    in_time(&scene, "checking", checks::check(&scene, &expectations, &outside.take_told())).await;
    outcome(plan, &scene, &expectations)
}

/// Waits for something that must not take long.
pub(crate) async fn in_time<T>(scene: &Scene, what: &str, done: impl Future<Output = T>) -> Option<T> {
    let done = timeout(WAIT_MAX, done).await;
    if done.is_err() {
        scene.violated(format!("G5: {what} took longer than {WAIT_MAX:?}"));
    }
    done.ok()
}

/// From now on nothing goes wrong.
fn calm_down(scene: &Scene) {
    scene.books().sky.calm_down();
    scene.store.heal();
    tell_of_the_disk(scene);
}

/// Waits until everything has ended: calmly at last, so that it must.
async fn end(scene: &Scene, expectations: &Expectations) -> bool {
    let all_ended = async {
        loop {
            let changed = scene.changed.notified();
            if scene.under_way() == 0 {
                let books = scene.books();
                let mut known = books.observer.started.iter().chain(expectations.keys());
                if known.all(|instance| books.observer.ended.contains(instance)) {
                    return;
                }
            }
            changed.await;
        }
    };
    tokio::pin!(all_ended);
    if timeout(CALM_AFTER, &mut all_ended).await.is_ok() {
        return true;
    }
    calm_down(scene);
    scene.note(format_args!("calm"));
    let has_ended = timeout(END_WITHIN, all_ended).await.is_ok();
    if !has_ended {
        let under_way = scene.under_way();
        let books = scene.books();
        let known = books.observer.started.iter().chain(expectations.keys());
        let open: BTreeSet<_> = known.filter(|instance| !books.observer.ended.contains(*instance)).collect();
        let open = format!("{open:?}");
        drop(books);
        scene.violated(format!(
            "G5: not everything ended within {END_WITHIN:?} of calm: {under_way} calls are under way, open: {open}"
        ));
    }
    has_ended
}

/// Lets the last timers come due, and waits until the queues are empty.
async fn drain(scene: &Scene) {
    scene.store_clock.jump(2 * FAR.as_millis() as i64);
    let deadline = Instant::now() + DRAIN_WITHIN;
    while Instant::now() < deadline {
        let instances: Vec<String> = scene.books().observer.started.iter().cloned().collect();
        if !instances.iter().any(|instance| scene.store.rows_left(instance) > 0) {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Lets faults of the store and its disk begin.
fn strike_the_disk(scene: &Scene) {
    for fault in [Fault::LostBatch].into_iter().chain(DISK_FAULTS) {
        let mut books = scene.books();
        if books.sky.happens(fault) {
            scene.store.strike(fault, books.sky.chance());
        }
    }
    tell_of_the_disk(scene);
}

/// Writes down which faults of the disk took effect.
fn tell_of_the_disk(scene: &Scene) {
    let effects = scene.store.tick(scene.books().sky.chance());
    for (fault, what) in effects {
        scene.fault(fault, format_args!("{what}"));
    }
}

/// Sets clocks, restarts nodes, and lets the disk fail.
async fn chaos(scene: Arc<Scene>, controls: Vec<(Arc<SimClock>, Arc<Notify>)>) {
    let mut back_for_good_ms = BACK_FOR_GOOD_MS;
    loop {
        sleep(CHAOS_EVERY).await;
        strike_the_disk(&scene);
        for (index, (clock, restart)) in controls.iter().enumerate() {
            let (restarts, jumps) = {
                let mut books = scene.books();
                (books.sky.happens(Fault::Restart), books.sky.happens(Fault::NodeClock))
            };
            if restarts {
                scene.fault(Fault::Restart, format_args!("node {index}"));
                restart.notify_one();
            }
            if jumps {
                let by_ms = jump_ms(&scene);
                scene.fault(Fault::NodeClock, format_args!("node {index} by {by_ms} ms"));
                clock.jump(by_ms);
            }
        }
        let jumps = scene.books().sky.happens(Fault::StoreClock);
        if jumps {
            set_the_store_clock(&scene, &mut back_for_good_ms);
        }
    }
}

/// Sets the store's clock: forth, back for good as far as that may go, or back for a while.
fn set_the_store_clock(scene: &Arc<Scene>, back_for_good_ms: &mut i64) {
    let mut by_ms = jump_ms(scene);
    let is_for_good = by_ms > 0 || (*back_for_good_ms > 0 && scene.books().sky.chance().one_in(3));
    if is_for_good && by_ms < 0 {
        by_ms = by_ms.max(-*back_for_good_ms);
        *back_for_good_ms += by_ms;
    }
    let how = if is_for_good { "for good" } else { "for a while" };
    scene.fault(Fault::StoreClock, format_args!("the store by {by_ms} ms {how}"));
    scene.store_clock.jump(by_ms);
    if !is_for_good {
        // Timers may now wait for as long as the clock went back; nobody wants to wait for that.
        let (scene, back) = (Arc::clone(scene), scene.some_ms(100, BACK_MS_MAX));
        tokio::spawn(async move {
            sleep(back).await;
            scene.note(format_args!("the store's clock goes forth again by {} ms", -by_ms));
            scene.store_clock.jump(-by_ms);
        });
    }
}

/// How far a clock is set: often little, sometimes as far as can be.
fn jump_ms(scene: &Scene) -> i64 {
    let mut books = scene.books();
    let most = books.sky.clock_jump_ms_max();
    let chance = books.sky.chance();
    let most = if chance.one_in(2) { most } else { most.min(5_000) };
    let by_ms = chance.between(1, most).cast_signed();
    if chance.one_in(2) { by_ms } else { -by_ms }
}

fn outcome(plan: &Plan, scene: &Scene, expectations: &Expectations) -> Outcome {
    let books = scene.books();
    let observer = &books.observer;
    let roots = plan.roots.iter().map(|root| &root.id);
    let instances: BTreeSet<&String> = roots.chain(expectations.keys()).chain(&observer.started).collect();
    let counts = Counts {
        nodes: plan.nodes.len() as u64,
        instances: instances.len() as u64,
        instances_ended: instances.iter().filter(|i| observer.ended.contains(**i)).count() as u64,
        turns: observer.turns,
        activity_runs: observer.activity_runs,
        actions: plan.roots.iter().map(|root| root.program.steps_in_all() as u64).sum(),
        actions_min: plan.roots.iter().map(|root| root.program.steps_in_all() as u64).min().unwrap_or(0),
        turns_in_one_batch: scene.store.turns_in_one_batch(),
        faults: books.sky.effects().clone(),
    };
    Outcome {
        violations: observer.violations.clone(),
        counts,
        faults: books.faults.clone(),
        took: observer.last_end,
    }
}

fn record(scene: &Scene) -> Record {
    let mut trace = scene.take_trace();
    for event in scene.books().observer.histories.values().flatten() {
        // Writing into a text cannot fail.
        let _ = writeln!(trace, "{event:?}");
    }
    let turns = scene.books().observer.story.take().map_or_else(Vec::new, |story| story.turns);
    if let Some(place) = scene.store.place() {
        trace = trace.replace(&place, "the store");
    }
    Record { trace, turns }
}
