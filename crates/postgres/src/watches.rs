//! Watches on instances.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::shared::Shared;

/// How often watches look that were not woken.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Below this many entries, those that are no longer watched are not searched for.
const TIDY_MIN: usize = 64;

/// The watched instances.
#[derive(Debug, Default)]
pub(crate) struct InstanceWatches(Mutex<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    watched: HashMap<String, watch::Sender<u64>>,
    /// What the watches said at the last poll.
    polled: HashMap<String, u64>,
    tidy_at: usize,
    is_closed: bool,
}

fn wake(sender: &watch::Sender<u64>) {
    sender.send_modify(|changes| *changes = changes.wrapping_add(1));
}

impl InstanceWatches {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that changes after each commit that clients of the instance can see. After [`close`](Self::close) it
    /// reports that it is closed.
    pub(crate) fn watch(&self, instance: &str) -> watch::Receiver<u64> {
        let mut state = self.state();
        if let Some(sender) = state.watched.get(instance) {
            return sender.subscribe();
        }
        if state.watched.len() >= state.tidy_at.max(TIDY_MIN) {
            state.watched.retain(|_, sender| sender.receiver_count() > 0);
            state.tidy_at = state.watched.len() * 2;
        }
        let (sender, receiver) = watch::channel(0);
        if !state.is_closed {
            state.watched.insert(instance.to_owned(), sender);
        }
        receiver
    }

    /// These instances changed.
    pub(crate) fn bump(&self, instances: &[String]) {
        if instances.is_empty() {
            return;
        }
        let state = self.state();
        instances.iter().filter_map(|instance| state.watched.get(instance)).for_each(wake);
    }

    /// Another process has committed: any instance may have changed.
    pub(crate) fn bump_all(&self) {
        self.state().watched.values().filter(|sender| sender.receiver_count() > 0).for_each(wake);
    }

    /// Wakes the watches that were not woken since the last call.
    fn bump_waiting(&self) {
        let mut state = self.state();
        let WatchState { watched, polled, .. } = &mut *state;
        polled.retain(|instance, _| watched.contains_key(instance));
        for (instance, sender) in watched.iter().filter(|(_, sender)| sender.receiver_count() > 0) {
            let changes = *sender.borrow();
            match polled.get_mut(instance) {
                Some(seen) => {
                    if *seen == changes {
                        wake(sender);
                    }
                    *seen = *sender.borrow();
                }
                None => drop(polled.insert(instance.clone(), changes)),
            }
        }
    }

    /// The provider is closed: watches must look for themselves.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.watched.clear();
    }
}

/// Wakes watches once a second until the provider is closed: a process that ends after a commit, before its notification, must
/// not leave a client waiting.
pub(crate) async fn poll(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = sleep(POLL_EVERY) => shared.watches.bump_waiting(),
            () = shared.closed() => break,
        }
    }
}
