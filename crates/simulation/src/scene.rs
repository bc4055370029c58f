//! What everything in a simulated world shares.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn::providers::{Clock as _, Provider, TurnCommit};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::life::Life;
use crate::observer::{Errand, Histories, Moment, Observer};
use crate::random::SeededRandom;
use crate::sabotage::{SPOILT_ONE_IN, Sabotage};
use crate::sim_clock::SimClock;
use crate::store::{Opened, Store};
use crate::story::Story;
use crate::weather::{Fault, Sky};

/// The store, the weather, the observer, and the record of it all.
pub(crate) struct Scene {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) store_clock: Arc<SimClock>,
    origin: Instant,
    /// Whether every call is written down.
    is_traced: bool,
    sabotage: Option<Sabotage>,
    books: Mutex<Books>,
    errands: mpsc::UnboundedSender<Errand>,
    /// The store as clients have it open.
    clients: Mutex<Arc<dyn Opened>>,
    /// The processes that are up, by node.
    lives: Mutex<BTreeMap<usize, Arc<Life>>>,
    /// There is no power.
    dark: AtomicBool,
    /// Things under way outside the nodes: messages on their way, calls of clients.
    under_way: AtomicUsize,
    /// Something was committed, or something under way has ended.
    pub(crate) changed: Notify,
}

/// What is written down while the world goes on.
pub(crate) struct Books {
    pub(crate) sky: Sky,
    pub(crate) observer: Observer,
    trace: String,
    /// The faults that took effect, one a line.
    pub(crate) faults: String,
}

impl Scene {
    pub(crate) fn new(
        origin: Instant,
        is_traced: bool,
        sabotage: Option<Sabotage>,
        (store, store_clock): (Arc<dyn Store>, Arc<SimClock>),
        clients: Arc<dyn Opened>,
        sky: Sky,
        errands: mpsc::UnboundedSender<Errand>,
    ) -> Self {
        let mut observer = Observer::default();
        observer.story = is_traced.then(Story::default);
        let books = Books { sky, observer, trace: String::new(), faults: String::new() };
        Self {
            store,
            store_clock,
            origin,
            is_traced,
            sabotage,
            books: Mutex::new(books),
            errands,
            clients: Mutex::new(clients),
            lives: Mutex::default(),
            dark: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's clock.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            now_ms: self.store_clock.wall_ms(),
            monotonic: self.store_clock.monotonic(),
            jumps: self.store_clock.jumps(),
        }
    }

    /// The clock of a node.
    pub(crate) fn clock(&self, seed: u64, node: usize, skew_ms: i64) -> Arc<SimClock> {
        Arc::new(SimClock::new(self.origin, skew_ms, SeededRandom::of(seed, &format!("node {node}"))))
    }

    /// Writes a line of the trace, if there is one.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        if !self.is_traced {
            return;
        }
        let at = self.origin.elapsed().as_millis();
        // Writing into a text cannot fail.
        let _ = writeln!(self.books().trace, "{at} {line}");
    }

    /// Writes down a fault that made a difference.
    pub(crate) fn fault(&self, fault: Fault, line: fmt::Arguments<'_>) {
        let at = self.origin.elapsed().as_millis();
        let mut books = self.books();
        books.sky.took_effect(fault);
        // Writing into a text cannot fail.
        if self.is_traced {
            let _ = writeln!(books.trace, "{at} {fault:?}: {line}");
        }
        let _ = writeln!(books.faults, "    {at} ms: {fault:?}: {line}");
    }

    pub(crate) fn take_trace(&self) -> String {
        std::mem::take(&mut self.books().trace)
    }

    pub(crate) fn violated(&self, what: String) {
        self.note(format_args!("VIOLATION {what}"));
        self.books().observer.violated(what);
    }

    /// The provider that clients use, or used last.
    pub(crate) fn clients_provider(&self) -> Arc<dyn Provider> {
        self.clients().provider()
    }

    /// The store as clients have it open.
    pub(crate) fn clients(&self) -> Arc<dyn Opened> {
        Arc::clone(&self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clients have the store open anew.
    pub(crate) fn set_clients(&self, opened: Arc<dyn Opened>) {
        *self.clients.lock().unwrap_or_else(PoisonError::into_inner) = opened;
    }

    fn lives(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Life>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process comes up on this node.
    pub(crate) fn comes_up(&self, node: usize, life: &Arc<Life>) {
        self.lives().insert(node, Arc::clone(life));
    }

    /// The process on this node is no more.
    pub(crate) fn is_down(&self, node: usize) {
        self.lives().remove(&node);
        self.changed.notify_waiters();
    }

    /// Returns when no process is up.
    pub(crate) async fn all_down(&self) {
        loop {
            let changed = self.changed.notified();
            if self.lives().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// The power fails: every process dies.
    pub(crate) fn go_dark(&self) {
        self.dark.store(true, Ordering::SeqCst);
        self.lives().values().for_each(|life| life.die());
    }

    /// The power is back.
    pub(crate) fn light_up(&self) {
        self.dark.store(false, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_dark(&self) -> bool {
        self.dark.load(Ordering::SeqCst)
    }

    /// Returns when there is power.
    pub(crate) async fn power(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_dark() {
                return;
            }
            changed.await;
        }
    }

    /// Takes note of locks that were handed out by what did not happen after all.
    pub(crate) fn forget_void_locks(&self) {
        let void = self.store.take_void();
        self.books().observer.voided(void);
    }

    /// A turn is in the store.
    pub(crate) fn committed(&self, commit: &TurnCommit) {
        self.forget_void_locks();
        let moment = self.moment();
        let errands = self.books().observer.turn_landed(commit, moment);
        self.send_out(errands);
    }

    /// Everybody has died, and this is what is stored.
    pub(crate) fn power_failed(&self, stored: &Histories) {
        let moment = self.moment();
        let errands = self.books().observer.power_failed(stored, moment);
        self.send_out(errands);
    }

    fn send_out(&self, errands: Vec<Errand>) {
        for errand in errands {
            // Nobody to run errands any more: the world has ended.
            let _ = self.errands.send(errand);
        }
        self.changed.notify_waiters();
    }

    /// Whether the store breaks its contract in this way, now.
    pub(crate) fn is_spoilt(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage) && self.books().sky.chance().one_in(SPOILT_ONE_IN)
    }

    /// A turn as it arrives in the store.
    pub(crate) fn arriving(&self, mut commit: TurnCommit) -> TurnCommit {
        if let Some(sabotage) = self.sabotage.filter(|sabotage| self.is_spoilt(*sabotage)) {
            sabotage.spoil(&mut commit);
        }
        commit
    }

    /// A number of milliseconds from `first` to `last`.
    pub(crate) fn some_ms(&self, first: u64, last: u64) -> Duration {
        Duration::from_millis(self.books().sky.chance().between(first, last))
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
pub(crate) struct UnderWay(Arc<Scene>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}
