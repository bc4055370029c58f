//! Watches on instances.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Below this many entries, those that are no longer watched are not searched for.
const TIDY_MIN: usize = 64;

/// The watched instances.
#[derive(Debug, Default)]
pub(crate) struct InstanceWatches(Mutex<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    watched: HashMap<String, watch::Sender<u64>>,
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

    /// The provider is closed: watches must look for themselves.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.watched.clear();
    }
}
