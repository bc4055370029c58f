//! Watches of instances.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// Below this size channels without a watch are kept.
const REMOVAL_MIN: usize = 64;

/// One channel per watched instance; channels without a watch are removed.
#[derive(Debug, Default)]
pub(super) struct Watches {
    channels: BTreeMap<String, watch::Sender<u64>>,
    size_after_removal: usize,
}

impl Watches {
    pub(super) fn watch(&mut self, instance: &str) -> watch::Receiver<u64> {
        if self.channels.len() >= REMOVAL_MIN.max(self.size_after_removal.saturating_mul(2)) {
            self.channels.retain(|_, channel| channel.receiver_count() > 0);
            self.size_after_removal = self.channels.len();
        }
        self.channels.entry(instance.to_owned()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Fires all watches of this instance.
    pub(super) fn changed(&mut self, instance: &str) {
        let Some(channel) = self.channels.get(instance) else { return };
        if channel.receiver_count() == 0 {
            self.channels.remove(instance);
        } else {
            channel.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.channels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_wakes_only_its_own_watchers() {
        let mut watches = Watches::default();
        let (a, b) = (watches.watch("a"), watches.watch("b"));
        watches.changed("a");
        assert!(a.has_changed().unwrap());
        assert!(!b.has_changed().unwrap());
    }

    #[test]
    fn channels_without_a_watch_are_removed() {
        let mut watches = Watches::default();
        let kept = watches.watch("kept");
        for n in 0..10 * REMOVAL_MIN {
            drop(watches.watch(&n.to_string()));
        }
        assert!(watches.len() <= REMOVAL_MIN + 1, "{} channels", watches.len());
        watches.changed("kept");
        assert!(kept.has_changed().unwrap());
    }
}
