//! The workloads: the rows of the table.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};

use crate::bare_disk::BareDisk;
use crate::figures::Figures;
use crate::report::Verdict;
use crate::{
    Result, chain, fan_out, idle_latency, long_history, memory, sessions, throughput, timers, two_processes,
};

/// The argument with which this program starts itself to measure one workload.
pub(crate) const MEASURE_FLAG: &str = "--measure";

type Measurement = Pin<Box<dyn Future<Output = Result<Figures>>>>;

/// One workload: how it is measured, and how its figures are compared with its bar.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Runs the workload on a new database in this folder.
    pub(crate) measure: fn(PathBuf) -> Measurement,
    pub(crate) judge: fn(&Figures, &BareDisk) -> Result<Verdict>,
}

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "chain",
        about: "1 instance, 200 sequential no-op activities",
        measure: |folder| Box::pin(chain::measure(folder)),
        judge: chain::judge,
    },
    Workload {
        name: "throughput",
        about: "1,000 instances x 5 no-op activities, started together",
        measure: |folder| Box::pin(throughput::measure(folder)),
        judge: throughput::judge,
    },
    Workload {
        name: "fan-out",
        about: "1 instance, 1,000 activities, join",
        measure: |folder| Box::pin(fan_out::measure(folder)),
        judge: fan_out::judge,
    },
    Workload {
        name: "long-history",
        about: "1 instance, 4,000 sequential activities",
        measure: |folder| Box::pin(long_history::measure(folder)),
        judge: long_history::judge,
    },
    Workload {
        name: "idle-latency",
        about: "start to result of a one-activity orchestration on an idle runtime",
        measure: |folder| Box::pin(idle_latency::measure(folder)),
        judge: idle_latency::judge,
    },
    Workload {
        name: "sessions",
        about: "1 instance, 2,000 activities of one session, with 64 slots and with one",
        measure: |folder| Box::pin(sessions::measure(folder)),
        judge: sessions::judge,
    },
    Workload {
        name: "timers",
        about: "1,000 instances each sleeping 1 s",
        measure: |folder| Box::pin(timers::measure(folder)),
        judge: timers::judge,
    },
    Workload {
        name: "memory",
        about: "10,000 instances waiting for an event, all warm",
        measure: |folder| Box::pin(memory::measure(folder)),
        judge: memory::judge,
    },
    Workload {
        name: "2nd-process",
        about: "start and wait from a process without a runtime, and the first turn after a start",
        measure: |folder| Box::pin(two_processes::measure_service(folder)),
        judge: two_processes::judge_service,
    },
    Workload {
        name: "recovery",
        about: "one of two processes is killed, with a client on the file",
        measure: |folder| Box::pin(two_processes::measure_recovery(folder)),
        judge: two_processes::judge_recovery,
    },
];

/// The workload of this name.
pub(crate) fn find(name: &str) -> std::result::Result<&'static Workload, String> {
    WORKLOADS.iter().find(|workload| workload.name == name).ok_or_else(|| {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("no workload '{name}', there are: {}", names.join(", "))
    })
}

impl Workload {
    /// Measures in its own process, and reads the figures from its output.
    pub(crate) fn measure_in_a_child(&self, folder: &Path) -> Result<Figures> {
        let child = Command::new(std::env::current_exe()?)
            .arg(MEASURE_FLAG)
            .arg(self.name)
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        if !child.status.success() {
            return Err(format!("measuring ended with {}", child.status).into());
        }
        Figures::parse(&String::from_utf8(child.stdout)?)
    }
}
