//! The bars of Everturn: what its figures must reach, mostly as ratios to the bare disk, to itself and to the peers.

use super::results::{Results, WorkloadResult};
use super::units::{times, with_unit};

/// A figure compared with its bar.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) workload: String,
    pub(crate) measured: String,
    pub(crate) bar: String,
    pub(crate) pass: bool,
}

const CHAIN_BARE_COMMITS_MAX: f64 = 3.0;
const CHAIN_COMMITS_A_STEP_MAX: f64 = 1.1;
const CHAIN_DUROXIDE_TUNED_MIN: f64 = 10.0;
const CHAIN_DUROXIDE_MIN: f64 = 100.0;
const THROUGHPUT_SHARE_OF_ROWS_MIN: f64 = 0.05;
const THROUGHPUT_DUROXIDE_MIN: f64 = 100.0;
const THROUGHPUT_10000_SHARE_MIN: f64 = 0.8;
const FAN_OUT_GROWTH_MAX: f64 = 15.0;
const LONG_HISTORY_GROWTH_MAX: f64 = 1.2;
const IDLE_BARE_COMMITS_MAX: f64 = 6.0;
const RESTED_BARE_COMMITS_MAX: f64 = 4.0;
const SESSION_RATIO_MAX: f64 = 1.5;
const STORE_SIZE_RATIO_MAX: f64 = 2.0;
const PEERS_MIN: f64 = 1.0;
// What these bound is waiting or memory, not work: they do not depend on the machine.
const TIMER_MEDIAN_MS_MAX: f64 = 20.0;
const TIMER_LATEST_MS_MAX: f64 = 150.0;
const WRITER_WAIT_MS_MAX: f64 = 20.0;
const RESIDENT_MB_MAX: f64 = 300.0;
const SERVED_S_MAX: f64 = 0.030;
const WOKEN_S_MAX: f64 = 0.015;
const RECOVERY_S_MAX: f64 = 1.0;

/// Compares every figure that was measured with its bars.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for workload in &results.workloads {
        verdicts.extend(bars_of(workload));
        verdicts.extend(across_workloads(results, workload));
        verdicts.extend(against_peers(results, workload));
        verdicts.extend(not_measured(workload));
    }
    verdicts
}

/// At most this many times something else.
fn at_most(workload: &WorkloadResult, ratio: Option<f64>, max: f64, of: &str) -> Option<Verdict> {
    let ratio = ratio?;
    Some(Verdict {
        workload: workload.name.clone(),
        measured: format!("{ratio:.2} x {of}"),
        bar: format!("at most {max} x"),
        pass: ratio <= max,
    })
}

/// At most this, with its unit.
fn figure_at_most(workload: &WorkloadResult, figure: &str, max: f64) -> Option<Verdict> {
    let value = workload.reference(figure)?.median;
    Some(Verdict {
        workload: workload.name.clone(),
        measured: format!("{figure} {}", with_unit(figure, value)),
        bar: format!("at most {}", with_unit(figure, max)),
        pass: value <= max,
    })
}

fn bars_of(workload: &WorkloadResult) -> Vec<Verdict> {
    let ours = |figure: &str| workload.reference(figure).map(|spread| spread.median);
    let bare = |figure: &str| workload.bare_disk.spread(figure).map(|spread| spread.median);
    let ratio = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one / other);
    let of_bare_commit = |figure| ratio(ours(figure), bare("commit_s"));
    let verdicts = match workload.name.as_str() {
        "chain" => vec![
            at_most(workload, of_bare_commit("step_s"), CHAIN_BARE_COMMITS_MAX, "a bare commit"),
            figure_at_most(workload, "commits_per_step", CHAIN_COMMITS_A_STEP_MAX),
        ],
        "throughput-1000" => vec![share_of_bare_rows(workload)],
        "long-history" => {
            let quarters = (1..=4).filter_map(|quarter| ours(&format!("quarter_{quarter}_s")));
            let worst = quarters
                .fold(None, |worst: Option<f64>, value| Some(worst.map_or(value, |worst| worst.max(value))));
            let growth = ratio(worst, ours("first_s"));
            vec![at_most(workload, growth, LONG_HISTORY_GROWTH_MAX, "a step of the first 500")]
        }
        "idle-latency" => {
            vec![at_most(workload, of_bare_commit("p50_s"), IDLE_BARE_COMMITS_MAX, "a bare commit")]
        }
        "idle-rested" => {
            let of = "a bare commit with the same rests";
            vec![at_most(workload, of_bare_commit("p50_s"), RESTED_BARE_COMMITS_MAX, of)]
        }
        "timers" => vec![
            figure_at_most(workload, "median_ms", TIMER_MEDIAN_MS_MAX),
            figure_at_most(workload, "latest_ms", TIMER_LATEST_MS_MAX),
        ],
        "memory" => vec![figure_at_most(workload, "resident_mb", RESIDENT_MB_MAX), all_warm(workload)],
        "sessions" => vec![at_most(workload, ours("ratio"), SESSION_RATIO_MAX, "one slot")],
        "2nd-process" => vec![
            figure_at_most(workload, "served_s", SERVED_S_MAX),
            figure_at_most(workload, "woken_s", WOKEN_S_MAX),
        ],
        "store-size" => {
            let mut verdicts: Vec<Option<Verdict>> = ["start", "step", "list", "delete", "prune"]
                .iter()
                .map(|call| {
                    let ratio = ours(&format!("{call}_ratio"));
                    at_most(workload, ratio, STORE_SIZE_RATIO_MAX, &format!("a {call} with 1,000 instances"))
                })
                .collect();
            verdicts.push(figure_at_most(workload, "longest_wait_ms", WRITER_WAIT_MS_MAX));
            verdicts
        }
        "recovery" => vec![figure_at_most(workload, "slowest_s", RECOVERY_S_MAX)],
        _ => Vec::new(),
    };
    verdicts.into_iter().flatten().collect()
}

fn share_of_bare_rows(workload: &WorkloadResult) -> Option<Verdict> {
    let ours = workload.reference("activities_per_s")?.median;
    let share = ours / workload.bare_disk.spread("rows_per_s")?.median;
    Some(Verdict {
        workload: workload.name.clone(),
        measured: format!("{:.2} % of the bare rows/s in transactions of 100", 100.0 * share),
        bar: format!("at least {} %", 100.0 * THROUGHPUT_SHARE_OF_ROWS_MIN),
        pass: share >= THROUGHPUT_SHARE_OF_ROWS_MIN,
    })
}

fn all_warm(workload: &WorkloadResult) -> Option<Verdict> {
    let (warm, waiting) = (workload.reference("warm")?.median, workload.reference("waiting")?.median);
    Some(Verdict {
        workload: workload.name.clone(),
        measured: format!("{warm:.0} of {waiting:.0} instances in memory"),
        bar: "all".to_owned(),
        pass: warm >= waiting,
    })
}

/// Bars that compare two workloads.
fn across_workloads(results: &Results, workload: &WorkloadResult) -> Option<Verdict> {
    let of_other = |name: &str| {
        let other = results.workload(name)?;
        Some(workload.reference(&workload.headline)?.median / other.reference(&other.headline)?.median)
    };
    match workload.name.as_str() {
        "throughput-10000" => of_other("throughput-1000").map(|share| Verdict {
            workload: workload.name.clone(),
            measured: format!("{share:.2} x the rate of 1,000 instances"),
            bar: format!("at least {THROUGHPUT_10000_SHARE_MIN} x"),
            pass: share >= THROUGHPUT_10000_SHARE_MIN,
        }),
        "fan-out-10000" => {
            at_most(workload, of_other("fan-out-1000"), FAN_OUT_GROWTH_MAX, "the time of 1,000 activities")
        }
        _ => None,
    }
}

/// Everturn must be ahead of every peer in every workload, and far ahead in some.
fn against_peers(results: &Results, workload: &WorkloadResult) -> Vec<Verdict> {
    let bar_for = |system: &str| match (workload.name.as_str(), system) {
        ("chain", "duroxide") => CHAIN_DUROXIDE_MIN,
        ("chain", "duroxide-tuned") => CHAIN_DUROXIDE_TUNED_MIN,
        ("throughput-1000", "duroxide" | "duroxide-tuned") => THROUGHPUT_DUROXIDE_MIN,
        _ => PEERS_MIN,
    };
    let compared = results.peers().filter_map(|peer| {
        let (ratio, min) = (workload.advantage_over(&peer.name)?, bar_for(&peer.name));
        Some(Verdict {
            workload: workload.name.clone(),
            measured: format!("{} as good as {}", times(ratio), peer.title),
            bar: if min > 1.0 { format!("at least {min} x") } else { "ahead".to_owned() },
            pass: ratio >= min,
        })
    });
    compared.collect()
}

/// A workload that Everturn could not run is a missed bar.
fn not_measured(workload: &WorkloadResult) -> Option<Verdict> {
    let outcome = workload.outcomes.get(crate::driver::REFERENCE)?;
    let reason = outcome.failed.clone().or_else(|| outcome.absent.clone())?;
    Some(Verdict {
        workload: workload.name.clone(),
        measured: format!("not measured: {reason}"),
        bar: "measured".to_owned(),
        pass: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{outcome, sample};
    use super::*;
    use crate::driver::REFERENCE;

    fn verdict<'a>(verdicts: &'a [Verdict], words: &str) -> &'a Verdict {
        verdicts.iter().find(|verdict| verdict.measured.contains(words)).expect(words)
    }

    #[test]
    fn a_step_is_compared_with_a_bare_commit() {
        let verdicts = judge(&sample());
        let chain = verdict(&verdicts, "2.50 x a bare commit");
        assert!(chain.pass, "{chain:?}");
    }

    #[test]
    fn a_peer_that_is_ahead_is_a_missed_bar() {
        let verdicts = judge(&sample());
        assert!(verdict(&verdicts, "100 x as good as SLOW").pass);
        assert!(!verdict(&verdicts, "0.80 x as good as SLOW").pass);
    }

    #[test]
    fn growth_over_a_long_history_is_that_of_the_worst_quarter() {
        let mut results = sample();
        let workload = results.workloads.first_mut().unwrap();
        workload.name = "long-history".to_owned();
        let mut ours = outcome("first_s", &[1.0]);
        for (quarter, value) in [(1, 1.0), (2, 1.3), (3, 1.1), (4, 1.0)] {
            ours.figures.insert(format!("quarter_{quarter}_s"), vec![value]);
        }
        workload.outcomes.insert(REFERENCE.to_owned(), ours);
        assert!(!verdict(&judge(&results), "1.30 x a step of the first 500").pass);
    }

    #[test]
    fn what_everturn_cannot_run_is_a_missed_bar() {
        let mut results = sample();
        let workload = results.workloads.first_mut().unwrap();
        workload.outcomes.get_mut(REFERENCE).unwrap().failed = Some("no table".to_owned());
        assert!(!verdict(&judge(&results), "not measured: no table").pass);
    }
}
