//! Watches on instances.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Below this many entries, those that are no longer watched are not searched for.
const TIDY_MIN: usize = 64;

/// The watched instances, sorted, so that watches are woken in the same order every time.
#[derive(Debug, Default)]
pub(crate) struct InstanceWatches {
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    senders: BTreeMap<String, watch::Sender<u64>>,
    tidy_at: usize,
}

impl InstanceWatches {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that changes after each commit that clients of the instance can see.
    pub(crate) fn watch(&self, instance: &str) -> watch::Receiver<u64> {
        let mut state = self.state();
        if let Some(sender) = state.senders.get(instance) {
            return sender.subscribe();
        }
        if state.senders.len() >= state.tidy_at.max(TIDY_MIN) {
            state.senders.retain(|_, sender| sender.receiver_count() > 0);
            state.tidy_at = state.senders.len() * 2;
        }
        let (sender, receiver) = watch::channel(0);
        state.senders.insert(instance.to_owned(), sender);
        receiver
    }

    /// Whether any instance is watched.
    pub(crate) fn is_watched(&self) -> bool {
        self.state().senders.values().any(|sender| sender.receiver_count() > 0)
    }

    /// These instances changed.
    pub(crate) fn bump(&self, instances: &[String]) {
        if instances.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.senders.is_empty() {
            return;
        }
        for instance in instances {
            if let Some(sender) = state.senders.get(instance) {
                if sender.receiver_count() == 0 {
                    state.senders.remove(instance);
                } else {
                    sender.send_modify(|changes| *changes = changes.wrapping_add(1));
                }
            }
        }
    }

    /// Any instance may have changed.
    pub(crate) fn bump_all(&self) {
        let mut state = self.state();
        state.senders.retain(|_, sender| sender.receiver_count() > 0);
        for sender in state.senders.values() {
            sender.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
    }
}
