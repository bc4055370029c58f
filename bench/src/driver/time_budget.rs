//! How long each run of a workload may take, so that the whole ends in time.

use std::time::{Duration, Instant};

/// The time of a whole run of the benchmark.
pub(crate) struct TimeBudget {
    began: Instant,
    total: Duration,
    /// The longest that one run of a workload may take.
    run_max: Duration,
    /// The same for a system that was stopped in an earlier round: its rate is known.
    again_max: Duration,
    /// Whether a workload may have fewer rounds: a quick run ends in time, whatever that costs.
    quick: bool,
}

/// How many times its equal share of the rest a run may take: most runs need far less than it.
const SHARES_MAX: u32 = 6;
/// Shorter runs measure nothing.
const RUN_MIN: Duration = Duration::from_secs(2);

impl TimeBudget {
    pub(crate) fn new(quick: bool) -> Self {
        let (total_s, run_max_s, again_max_s) = if quick { (330, 4, 2) } else { (3_000, 30, 5) };
        Self {
            began: Instant::now(),
            total: Duration::from_secs(total_s),
            run_max: Duration::from_secs(run_max_s),
            again_max: Duration::from_secs(again_max_s),
            quick,
        }
    }

    /// What is left, and at least a short run.
    pub(crate) fn rest(&self) -> Duration {
        self.total.saturating_sub(self.began.elapsed()).max(RUN_MIN)
    }

    /// When the next run is stopped, if this many remain with it.
    pub(crate) fn stop_after(&self, runs_left: usize, stopped_before: bool) -> Duration {
        self.stop_after_at(self.began.elapsed(), runs_left, stopped_before)
    }

    /// True if a workload must end although rounds remain, with this many of all workloads done before it.
    pub(crate) fn is_used_up(&self, workloads_done: usize, workloads: usize) -> bool {
        self.is_used_up_at(self.began.elapsed(), workloads_done, workloads)
    }

    fn is_used_up_at(&self, elapsed: Duration, workloads_done: usize, workloads: usize) -> bool {
        let share = (workloads_done + 1) as f64 / workloads.max(1) as f64;
        let until = if self.quick { self.total.mul_f64(share) } else { self.total };
        elapsed > until
    }

    fn stop_after_at(&self, elapsed: Duration, runs_left: usize, stopped_before: bool) -> Duration {
        let rest = self.total.saturating_sub(elapsed);
        let share = rest / u32::try_from(runs_left.max(1)).unwrap_or(u32::MAX) * SHARES_MAX;
        let max = if stopped_before { self.again_max } else { self.run_max };
        share.clamp(RUN_MIN, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(elapsed_s: u64, runs_left: usize, stopped_before: bool) -> u64 {
        TimeBudget::new(false)
            .stop_after_at(Duration::from_secs(elapsed_s), runs_left, stopped_before)
            .as_secs()
    }

    #[test]
    fn a_run_is_stopped_after_thirty_seconds_while_there_is_time() {
        assert_eq!(seconds(0, 600, false), 30);
        assert_eq!(seconds(0, 600, true), 5);
    }

    #[test]
    fn a_quick_run_keeps_time_for_the_workloads_that_follow() {
        let used_up = |quick, elapsed_s, done| {
            TimeBudget::new(quick).is_used_up_at(Duration::from_secs(elapsed_s), done, 10)
        };
        assert!(!used_up(true, 30, 0));
        assert!(used_up(true, 40, 0));
        assert!(!used_up(true, 40, 1));
        assert!(!used_up(false, 400, 0));
        assert!(used_up(false, 3_400, 0));
    }

    #[test]
    fn runs_are_shorter_when_the_whole_is_late() {
        assert_eq!(seconds(2_400, 600, false), 6);
        assert_eq!(seconds(9_999, 600, false), 2);
        assert_eq!(seconds(9_999, 600, true), 2);
    }
}
