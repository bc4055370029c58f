//! The printed table.

use std::path::Path;

use crate::bare_disk::BareDisk;
use crate::filesystem;

/// A figure compared with its bar.
pub(crate) struct Verdict {
    pub(crate) figure: String,
    pub(crate) bar: String,
    pub(crate) pass: bool,
}

impl Verdict {
    /// The row of a workload that could not be measured.
    pub(crate) fn broken(reason: &str) -> Self {
        Self { figure: format!("not measured: {reason}"), bar: String::new(), pass: false }
    }
}

pub(crate) fn print_head(folder: &Path) {
    let kind = filesystem::kind_of(folder).unwrap_or_else(|| "unknown".to_owned());
    println!("SQLite {}, synchronous=FULL, file system: {kind}", rusqlite::version());
    if filesystem::is_volatile(&kind) {
        println!("WARNING: {} is in memory, not on a disk: these figures say nothing", folder.display());
    }
    if cfg!(debug_assertions) {
        println!("WARNING: built without --release: these figures say nothing");
    }
    println!(
        "{:<13} {:<56} {:<42} {:<34} verdict",
        "workload", "figure", "bar", "bare disk (before and after)"
    );
}

pub(crate) fn print_row(name: &str, verdict: &Verdict, bare: &BareDisk) {
    let bare = format!("{} a commit, {:.0} rows/s", ms(bare.commit_s), bare.rows_per_s);
    let word = if verdict.pass { "PASS" } else { "FAIL" };
    println!("{name:<13} {:<56} {:<42} {bare:<34} {word}", verdict.figure, verdict.bar);
}

/// Seconds, formatted as milliseconds.
pub(crate) fn ms(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1_000.0)
}
