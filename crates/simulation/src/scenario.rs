//! What all parts of a simulated world share.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn::providers::Clock as _;
use everturn::providers::store::{StepCommit, Store, TurnCommit};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::failing_verb::FailingVerb;
use crate::fault_plan::{Fault, FaultInjector};
use crate::plan::NODES;
use crate::process::Process;
use crate::random::SeededRandom;
use crate::recorder::{ClientRequest, Histories, Recorder, WorldTime};
use crate::sim_clock::SimClock;
use crate::store_bugs::{SHOWS_ONE_IN, StoreBug};
use crate::turn_trace::TurnTrace;
use crate::world_store::{OpenedStore, WorldStore};

/// The store, the faults, the recorder and the trace of a world.
pub(crate) struct Scenario {
    pub(crate) store: Arc<dyn WorldStore>,
    pub(crate) store_clock: Arc<SimClock>,
    origin: Instant,
    /// Whether every call is written into the trace.
    is_traced: bool,
    store_bug: Option<StoreBug>,
    records: Mutex<Records>,
    requests: mpsc::UnboundedSender<ClientRequest>,
    /// The store as clients have it open.
    clients: Mutex<Arc<dyn OpenedStore>>,
    /// The processes that are up, by node.
    processes: Mutex<BTreeMap<usize, Arc<Process>>>,
    power_failed: AtomicBool,
    /// How many things are under way outside the nodes: messages, calls of clients.
    under_way: AtomicUsize,
    /// Something was committed, or something under way has ended.
    pub(crate) changed: Notify,
}

/// What is recorded while the world runs.
pub(crate) struct Records {
    pub(crate) faults: FaultInjector,
    /// The verb that fails now, if one does.
    pub(crate) failing_verb: Option<FailingVerb>,
    pub(crate) recorder: Recorder,
    trace: String,
    /// The faults that took effect, one per line.
    pub(crate) fault_log: String,
}

impl Scenario {
    pub(crate) fn new(
        origin: Instant,
        is_traced: bool,
        store_bug: Option<StoreBug>,
        (store, store_clock): (Arc<dyn WorldStore>, Arc<SimClock>),
        clients: Arc<dyn OpenedStore>,
        faults: FaultInjector,
        requests: mpsc::UnboundedSender<ClientRequest>,
    ) -> Self {
        let mut recorder = Recorder::default();
        recorder.turn_trace = is_traced.then(TurnTrace::default);
        let records =
            Records { faults, failing_verb: None, recorder, trace: String::new(), fault_log: String::new() };
        Self {
            store,
            store_clock,
            origin,
            is_traced,
            store_bug,
            records: Mutex::new(records),
            requests,
            clients: Mutex::new(clients),
            processes: Mutex::default(),
            power_failed: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's clock.
    pub(crate) fn moment(&self) -> WorldTime {
        WorldTime {
            now_ms: self.store_clock.wall_ms(),
            monotonic: self.store_clock.monotonic(),
            jumps: self.store_clock.jumps(),
        }
    }

    /// The clock of a node.
    pub(crate) fn clock(&self, seed: u64, node: usize, skew_ms: i64) -> Arc<SimClock> {
        Arc::new(SimClock::new(self.origin, skew_ms, SeededRandom::of(seed, &format!("node {node}"))))
    }

    /// Writes a line into the trace, if there is one.
    pub(crate) fn trace(&self, line: fmt::Arguments<'_>) {
        if !self.is_traced {
            return;
        }
        let at = self.origin.elapsed().as_millis();
        // Writing into a text cannot fail.
        let _ = writeln!(self.records().trace, "{at} {line}");
    }

    /// Records a fault that took effect.
    pub(crate) fn fault(&self, fault: Fault, line: fmt::Arguments<'_>) {
        let at = self.origin.elapsed().as_millis();
        let mut records = self.records();
        records.faults.took_effect(fault);
        // Writing into a text cannot fail.
        if self.is_traced {
            let _ = writeln!(records.trace, "{at} {fault:?}: {line}");
        }
        let _ = writeln!(records.fault_log, "    {at} ms: {fault:?}: {line}");
    }

    /// Forgets what was recorded. Calls that were never answered refer to the code of their process, which refers to this: the
    /// world would never be dropped.
    pub(crate) fn forget_records(&self) {
        self.records().recorder = Recorder::default();
    }

    /// How many processes have died.
    pub(crate) fn deaths(&self) -> u32 {
        let records = self.records();
        let count = |fault: Fault| records.faults.effects().get(&fault).copied().unwrap_or(0);
        let died =
            count(Fault::CrashBefore) + count(Fault::CrashAfter) + NODES as u64 * count(Fault::PowerCut);
        u32::try_from(died).unwrap_or(u32::MAX)
    }

    pub(crate) fn take_trace(&self) -> String {
        std::mem::take(&mut self.records().trace)
    }

    pub(crate) fn violated(&self, what: String) {
        self.trace(format_args!("VIOLATION {what}"));
        self.records().recorder.violated(what);
    }

    /// The store that clients use, or used last.
    pub(crate) fn clients_store(&self) -> Arc<dyn Store> {
        self.clients().store()
    }

    /// The store as clients have it open.
    pub(crate) fn clients(&self) -> Arc<dyn OpenedStore> {
        Arc::clone(&self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clients have opened the store again.
    pub(crate) fn set_clients(&self, opened: Arc<dyn OpenedStore>) {
        *self.clients.lock().unwrap_or_else(PoisonError::into_inner) = opened;
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Process>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process starts on this node.
    pub(crate) fn process_started(&self, node: usize, process: &Arc<Process>) {
        self.processes().insert(node, Arc::clone(process));
    }

    /// The process on this node has ended.
    pub(crate) fn process_ended(&self, node: usize) {
        self.processes().remove(&node);
        self.changed.notify_waiters();
    }

    /// Returns when no process is up.
    pub(crate) async fn all_ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.processes().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// The power fails: every process is killed.
    pub(crate) fn cut_power(&self) {
        self.power_failed.store(true, Ordering::SeqCst);
        self.processes().values().for_each(|process| process.kill());
    }

    /// The power is back.
    pub(crate) fn restore_power(&self) {
        self.power_failed.store(false, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(crate) fn has_power(&self) -> bool {
        !self.power_failed.load(Ordering::SeqCst)
    }

    /// Returns when there is power.
    pub(crate) async fn power(&self) {
        loop {
            let changed = self.changed.notified();
            if self.has_power() {
                return;
            }
            changed.await;
        }
    }

    /// Records locks that became void with a lost batch.
    pub(crate) fn forget_void_locks(&self) {
        let void = self.store.take_void_locks();
        self.records().recorder.voided(void);
    }

    /// A turn is committed.
    pub(crate) fn committed(&self, commit: &TurnCommit) {
        self.forget_void_locks();
        let moment = self.moment();
        let requests = self.records().recorder.turn_landed(commit, moment);
        self.send_requests(requests);
    }

    /// A fused step is committed.
    pub(crate) fn step_committed(&self, step: &StepCommit) {
        self.forget_void_locks();
        let moment = self.moment();
        let requests = self.records().recorder.step_landed(step, moment, &self.store_clock);
        self.send_requests(requests);
    }

    /// All processes have ended, and this is what is stored.
    pub(crate) fn recovered(&self, stored: &Histories) {
        let moment = self.moment();
        let requests = self.records().recorder.power_failed(stored, moment);
        self.send_requests(requests);
    }

    fn send_requests(&self, requests: Vec<ClientRequest>) {
        for request in requests {
            // Without clients the world has ended.
            let _ = self.requests.send(request);
        }
        self.changed.notify_waiters();
    }

    /// Whether the store shows this bug now.
    pub(crate) fn has_bug(&self, bug: StoreBug) -> bool {
        self.store_bug == Some(bug) && self.records().faults.random().one_in(SHOWS_ONE_IN)
    }

    /// A turn as it arrives in the store.
    pub(crate) fn arriving(&self, mut commit: TurnCommit) -> TurnCommit {
        if let Some(bug) = self.store_bug.filter(|bug| self.has_bug(*bug)) {
            bug.apply(&mut commit);
        }
        commit
    }

    /// A random time from `first` to `last` milliseconds.
    pub(crate) fn some_ms(&self, first: u64, last: u64) -> Duration {
        Duration::from_millis(self.records().faults.random().between(first, last))
    }

    /// Counts something that must have ended before the world ends.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(self))
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }
}

/// Something that must have ended before the world ends.
pub(crate) struct UnderWay(Arc<Scenario>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}
