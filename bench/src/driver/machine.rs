//! What the figures were measured on.

use std::path::Path;
use std::process::Command;

use everturn_bench_protocol::since_epoch_s;

use super::{filesystem, repository};
use crate::report::BenchMachine;

/// Describes this machine, the commit and the day. What cannot be read is "unknown".
pub(crate) fn describe(folder: &Path) -> BenchMachine {
    let unknown = || "unknown".to_owned();
    BenchMachine {
        date: date_of((since_epoch_s() / 86_400.0) as i64),
        commit: commit().unwrap_or_else(unknown),
        cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        processor: after_colon("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
        memory_gb: memory_gb().unwrap_or(0.0),
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
        filesystem: filesystem::kind_of(folder).unwrap_or_else(unknown),
        load_before: first_line("/proc/loadavg")
            .and_then(|line| line.split(' ').next().and_then(|load| load.parse().ok()))
            .unwrap_or(0.0),
        sqlite: rusqlite::version().to_owned(),
        debug_build: cfg!(debug_assertions),
    }
}

fn first_line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

fn after_colon(path: &str, label: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(label))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_gb() -> Option<f64> {
    let kib: f64 = after_colon("/proc/meminfo", "MemTotal")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1_024.0 / 1_000_000_000.0)
}

/// The commit, with a mark if the files differ from it.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(repository()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    Some(if changed { format!("{commit} with changes") } else { commit })
}

/// The date, as year-month-day, of a number of days since 1970.
fn date_of(days: i64) -> String {
    // Years of this calculation begin in March, so that the leap day is the last one.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
        ] {
            assert_eq!(date_of(days), date);
        }
    }
}
