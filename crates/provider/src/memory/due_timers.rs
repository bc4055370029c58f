//! Timers that fire: messages that become visible, and delays of instances and activities that end.

use super::tables::{Activity, Moment, Tables, VISIBLE};

impl Tables {
    /// Makes messages visible that have become due, and ends the delays of instances. What is visible stays so, even if the
    /// clock is set back.
    pub(super) fn show_due_messages(&mut self, now: Moment) {
        for message in self.orchestrator_queue.values_mut().filter(|message| message.is_visible(now)) {
            message.visible_at_ms = VISIBLE;
        }
        self.instance_delays.retain(|_, delay| !delay.is_over(now));
    }

    /// The same for activities: ends their delays, which do not begin again.
    pub(super) fn show_due_activities(&mut self, now: Moment) {
        let is_over =
            |activity: &&mut Activity| activity.delay.as_ref().is_some_and(|delay| delay.is_over(now));
        for activity in self.worker_queue.values_mut().filter(is_over) {
            activity.delay = None;
        }
    }
}
