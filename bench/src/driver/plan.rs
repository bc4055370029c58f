//! The workloads: the rows of the table.

use super::systems::{REFERENCE, System};

/// Numbers of things, by name.
pub(crate) type Sizes = &'static [(&'static str, u64)];

/// Which systems run a workload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runners {
    Everyone,
    /// It measures what only Everturn has, or has a bar for: Everturn at its defaults.
    Everturn,
}

/// One workload of the plan.
pub(crate) struct PlannedWorkload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What a measuring process runs for it.
    pub(crate) program: &'static str,
    pub(crate) sizes: Sizes,
    /// The sizes with `--quick`; `None` if it is not part of it.
    pub(crate) quick_sizes: Option<Sizes>,
    /// What a measuring process runs once before all rounds, in the folder of all rounds.
    pub(crate) prepare: Option<&'static str>,
    /// When the preparation is stopped.
    pub(crate) prepare_s_max: u64,
    pub(crate) runners: Runners,
    /// The figure that systems are compared by.
    pub(crate) headline: &'static str,
    /// Further figures of the table.
    pub(crate) further: &'static [&'static str],
}

impl PlannedWorkload {
    pub(crate) fn is_run_by(&self, system: &System) -> bool {
        match self.runners {
            Runners::Everyone => true,
            Runners::Everturn => system.name == REFERENCE,
        }
    }

    pub(crate) fn sizes_in(&self, quick: bool) -> Sizes {
        if quick { self.quick_sizes.unwrap_or(self.sizes) } else { self.sizes }
    }
}

/// The workloads of a run: those with one of these names or beginnings, or all.
pub(crate) fn select(only: &[String], quick: bool) -> Vec<&'static PlannedWorkload> {
    let chosen = |workload: &&PlannedWorkload| {
        let named = only.iter().any(|name| workload.name.starts_with(name.as_str()));
        let exact = only.iter().any(|name| workload.name == name);
        // A workload that is named may run although it is not part of --quick.
        exact || ((only.is_empty() || named) && (!quick || workload.quick_sizes.is_some()))
    };
    WORKLOADS.iter().filter(chosen).collect()
}

const BASE: PlannedWorkload = PlannedWorkload {
    name: "",
    about: "",
    program: "",
    sizes: &[],
    quick_sizes: None,
    prepare: None,
    prepare_s_max: 30,
    runners: Runners::Everyone,
    headline: "",
    further: &[],
};

const THROUGHPUT: PlannedWorkload = PlannedWorkload {
    program: "throughput",
    headline: "activities_per_s",
    further: &[
        "steps_per_commit",
        "file_bytes_per_instance",
        "file_bytes_per_step",
        "written_bytes_per_step",
    ],
    ..BASE
};

/// All workloads, in the order of the run.
pub(crate) const WORKLOADS: &[PlannedWorkload] = &[
    PlannedWorkload {
        name: "chain",
        about: "1 instance, 200 sequential no-op activities: time per step",
        program: "chain",
        sizes: &[("steps", 200)],
        quick_sizes: Some(&[("steps", 100)]),
        headline: "step_s",
        further: &["commits_per_step"],
        ..BASE
    },
    PlannedWorkload {
        name: "throughput-200",
        about: "200 instances x 5 no-op activities, started together",
        sizes: &[("instances", 200), ("activities", 5)],
        quick_sizes: Some(&[("instances", 200), ("activities", 5)]),
        ..THROUGHPUT
    },
    PlannedWorkload {
        name: "throughput-1000",
        about: "1,000 instances x 5 no-op activities, started together",
        sizes: &[("instances", 1_000), ("activities", 5)],
        quick_sizes: Some(&[("instances", 1_000), ("activities", 5)]),
        ..THROUGHPUT
    },
    PlannedWorkload {
        name: "throughput-10000",
        about: "10,000 instances x 5 no-op activities, started together",
        sizes: &[("instances", 10_000), ("activities", 5)],
        ..THROUGHPUT
    },
    PlannedWorkload {
        name: "long-instances",
        about: "200 instances x 1,000 no-op activities, started together",
        sizes: &[("instances", 200), ("activities", 1_000)],
        ..THROUGHPUT
    },
    PlannedWorkload {
        name: "payload-64k",
        about: "100 instances x 5 activities, each with 64 KB as input and as output",
        sizes: &[("instances", 100), ("activities", 5), ("payload_bytes", 65_536)],
        quick_sizes: Some(&[("instances", 20), ("activities", 5), ("payload_bytes", 65_536)]),
        ..THROUGHPUT
    },
    PlannedWorkload {
        name: "fan-out-1000",
        about: "1 instance, 1,000 activities at the same time, join",
        program: "fan-out",
        sizes: &[("activities", 1_000)],
        quick_sizes: Some(&[("activities", 1_000)]),
        headline: "seconds",
        ..BASE
    },
    PlannedWorkload {
        name: "fan-out-10000",
        about: "1 instance, 10,000 activities at the same time, join",
        program: "fan-out",
        sizes: &[("activities", 10_000)],
        headline: "seconds",
        ..BASE
    },
    PlannedWorkload {
        name: "children",
        about: "1 parent starts 500 children and waits for all",
        program: "children",
        sizes: &[("children", 500)],
        quick_sizes: Some(&[("children", 100)]),
        headline: "per_s",
        further: &["seconds"],
        ..BASE
    },
    PlannedWorkload {
        name: "messages",
        about: "1 instance receives 5,000 messages, sent by 50 tasks",
        program: "messages",
        sizes: &[("messages", 5_000)],
        quick_sizes: Some(&[("messages", 1_000)]),
        headline: "per_s",
        further: &["seconds"],
        ..BASE
    },
    PlannedWorkload {
        name: "idle-latency",
        about: "start to result of a one-activity orchestration, rounds back to back",
        program: "idle-latency",
        sizes: &[("rounds", 400), ("rest_ms", 0)],
        quick_sizes: Some(&[("rounds", 100), ("rest_ms", 0)]),
        headline: "p50_s",
        further: &["p95_s", "p99_s"],
        ..BASE
    },
    PlannedWorkload {
        name: "idle-rested",
        about: "start to result of a one-activity orchestration, 50 ms of rest before each round",
        program: "idle-latency",
        sizes: &[("rounds", 60), ("rest_ms", 50)],
        headline: "p50_s",
        further: &["p95_s", "p99_s"],
        ..BASE
    },
    PlannedWorkload {
        name: "timers",
        about: "1,000 instances each sleeping 1 s: how late a client sees the end",
        program: "timers",
        sizes: &[("instances", 1_000), ("sleep_ms", 1_000)],
        quick_sizes: Some(&[("instances", 200), ("sleep_ms", 1_000)]),
        headline: "median_ms",
        further: &["latest_ms", "earliest_ms"],
        ..BASE
    },
    PlannedWorkload {
        name: "long-history",
        about: "1 instance, 8,000 sequential activities: time per step of the last quarter",
        program: "long-history",
        sizes: &[("steps", 8_000)],
        headline: "last_s",
        further: &["first_s", "quarter_1_s", "quarter_2_s", "quarter_3_s", "quarter_4_s", "steps"],
        ..BASE
    },
    PlannedWorkload {
        name: "cold-start",
        about: "process start to the first step of a new instance, with 10,000 unfinished instances in the store",
        program: "cold-start",
        prepare: Some("prepare-cold-start"),
        sizes: &[("instances", 10_000)],
        quick_sizes: Some(&[("instances", 1_000)]),
        headline: "first_step_s",
        further: &["waiting"],
        ..BASE
    },
    PlannedWorkload {
        name: "memory",
        about: "10,000 instances waiting for an event: resident memory",
        program: "memory",
        sizes: &[("instances", 10_000)],
        headline: "resident_mb",
        further: &["kb_per_instance", "waiting", "warm"],
        ..BASE
    },
    PlannedWorkload {
        name: "storage",
        about: "1,000 instances x 5 no-op activities: bytes in the store per step, and bytes of its log",
        sizes: &[("instances", 1_000), ("activities", 5), ("keep_log", 1)],
        headline: "file_bytes_per_step",
        further: &["file_bytes_per_instance", "log_bytes_per_step", "written_bytes_per_step"],
        ..THROUGHPUT
    },
    PlannedWorkload {
        name: "sessions",
        about: "1 instance, 2,000 activities of one session: 64 slots compared with one",
        program: "sessions",
        runners: Runners::Everturn,
        sizes: &[("activities", 2_000), ("slots", 64)],
        headline: "ratio",
        further: &["one_slot_s", "many_slots_s"],
        ..BASE
    },
    PlannedWorkload {
        name: "2nd-process",
        about: "start and wait from a process without a runtime, and the first turn after a start",
        program: "2nd-process",
        runners: Runners::Everturn,
        sizes: &[("rounds", 200)],
        headline: "served_s",
        further: &["woken_s"],
        ..BASE
    },
    PlannedWorkload {
        name: "store-size",
        about: "the same calls with 1,000 and with 1,000,000 finished instances: the worst ratio of the costs",
        program: "store-size",
        prepare: Some("prepare-store-size"),
        prepare_s_max: 480,
        runners: Runners::Everturn,
        sizes: &[("small", 1_000), ("large", 1_000_000)],
        headline: "ratio",
        further: &[
            "start_ratio",
            "step_ratio",
            "list_ratio",
            "delete_ratio",
            "prune_ratio",
            "longest_wait_ms",
            "prepare_large_s",
            "large_file_mb",
        ],
        ..BASE
    },
    PlannedWorkload {
        name: "recovery",
        about: "one of two processes is killed, with a client on the file: how late the other goes on",
        program: "recovery",
        runners: Runners::Everturn,
        sizes: &[("kills", 3)],
        headline: "slowest_s",
        ..BASE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str], quick: bool) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
        select(&only, quick).iter().map(|workload| workload.name).collect()
    }

    #[test]
    fn a_beginning_selects_all_workloads_of_that_kind() {
        assert_eq!(names(&["throughput"], false), ["throughput-200", "throughput-1000", "throughput-10000"]);
        assert_eq!(names(&["chain"], false), ["chain"]);
        assert_eq!(names(&[], false).len(), WORKLOADS.len());
    }

    #[test]
    fn quick_leaves_large_workloads_out_unless_they_are_named() {
        assert_eq!(names(&["throughput"], true), ["throughput-200", "throughput-1000"]);
        assert_eq!(names(&["throughput-10000"], true), ["throughput-10000"]);
        assert!(!names(&[], true).contains(&"long-history"));
    }
}
