//! Whoever waits for an instance to change.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// A sweep is not worth it below this size.
const SWEEP_MIN: usize = 64;

/// One channel per watched instance; those that nobody watches any more are swept out.
#[derive(Debug, Default)]
pub(super) struct Watches {
    channels: BTreeMap<String, watch::Sender<u64>>,
    size_after_sweep: usize,
}

impl Watches {
    pub(super) fn watch(&mut self, instance: &str) -> watch::Receiver<u64> {
        if self.channels.len() >= SWEEP_MIN.max(self.size_after_sweep.saturating_mul(2)) {
            self.channels.retain(|_, channel| channel.receiver_count() > 0);
            self.size_after_sweep = self.channels.len();
        }
        self.channels.entry(instance.to_owned()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Wakes all who watch this instance.
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
    fn channels_that_nobody_watches_are_swept_out() {
        let mut watches = Watches::default();
        let kept = watches.watch("kept");
        for n in 0..10 * SWEEP_MIN {
            drop(watches.watch(&n.to_string()));
        }
        assert!(watches.len() <= SWEEP_MIN + 1, "{} channels", watches.len());
        watches.changed("kept");
        assert!(kept.has_changed().unwrap());
    }
}
