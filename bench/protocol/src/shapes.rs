//! The figures of each kind of workload, the same for every system.

use crate::{BenchResult, Figures, median, quantile};

/// The steps at the beginning of a long history that its quarters are compared with.
const FIRST_STEPS: usize = 500;

impl Figures {
    /// The figures of a workload that ends when `all` things are done: a rate, and the seconds that all take at that rate.
    ///
    /// Fails if nothing was done.
    pub fn of_rate(done: u64, all: u64, elapsed_s: f64) -> BenchResult<Self> {
        if done == 0 {
            return Err("it was stopped before anything was done".into());
        }
        let rate = done as f64 / elapsed_s;
        Ok(Self::of([("per_s", rate), ("seconds", all as f64 / rate), ("done", done as f64)]))
    }

    /// The figures of `all` sequential steps, from the seconds of those that ran: a run that was stopped has the quarters
    /// that it reached.
    ///
    /// Fails if there are none.
    pub fn of_history(step_seconds: &[f64], all: u64) -> BenchResult<Self> {
        let first = median(step_seconds.get(..FIRST_STEPS).unwrap_or(step_seconds))?;
        let mut figures = Self::of([("first_s", first), ("steps", step_seconds.len() as f64 + 1.0)]);
        let quarter = usize::try_from(all / 4)?.max(1);
        for (number, part) in step_seconds.chunks(quarter).enumerate().take(4) {
            figures.set(format!("quarter_{}_s", number + 1), median(part)?);
            figures.set("last_s", median(part)?);
        }
        Ok(figures)
    }

    /// The quantiles of latencies.
    ///
    /// Fails if there are none.
    pub fn of_latency(seconds: &[f64]) -> BenchResult<Self> {
        Ok(Self::of([
            ("p50_s", quantile(seconds, 0.5)?),
            ("p95_s", quantile(seconds, 0.95)?),
            ("p99_s", quantile(seconds, 0.99)?),
        ]))
    }

    /// How late timers were.
    ///
    /// Fails if there are none.
    pub fn of_lateness(late_ms: &[f64]) -> BenchResult<Self> {
        Ok(Self::of([
            ("earliest_ms", quantile(late_ms, 0.0)?),
            ("median_ms", median(late_ms)?),
            ("latest_ms", quantile(late_ms, 1.0)?),
            ("ended", late_ms.len() as f64),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_stopped_run_is_that_of_its_rate() {
        let figures = Figures::of_rate(200, 1_000, 2.0).unwrap();
        assert_eq!(figures.get("per_s").unwrap(), 100.0);
        assert_eq!(figures.get("seconds").unwrap(), 10.0);
        assert!(Figures::of_rate(0, 1_000, 2.0).is_err());
    }

    #[test]
    fn a_stopped_history_has_the_quarters_that_it_reached() {
        let steps: Vec<f64> = (0..5_000).map(|step| if step < 2_000 { 1.0 } else { 2.0 }).collect();
        let figures = Figures::of_history(&steps, 8_000).unwrap();
        assert_eq!(figures.get("first_s").unwrap(), 1.0);
        assert_eq!(figures.get("quarter_1_s").unwrap(), 1.0);
        assert_eq!(figures.get("quarter_3_s").unwrap(), 2.0);
        assert_eq!(figures.get("last_s").unwrap(), 2.0);
        assert!(figures.get("quarter_4_s").is_err());
        assert!(Figures::of_history(&[], 8_000).is_err());
    }

    #[test]
    fn lateness_has_its_ends() {
        let figures = Figures::of_lateness(&[5.0, -1.0, 3.0]).unwrap();
        assert_eq!(figures.get("earliest_ms").unwrap(), -1.0);
        assert_eq!(figures.get("median_ms").unwrap(), 3.0);
        assert_eq!(figures.get("latest_ms").unwrap(), 5.0);
    }
}
