//! What the operating system knows about this process and its files.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::BenchResult;

/// Resident memory of a process, of this one if no id is given, in megabytes.
///
/// Fails where there is no `/proc`.
pub fn resident_mb(process: Option<u32>) -> BenchResult<f64> {
    Ok(number_after(&proc_file(process, "status")?, "VmRSS:")? * 1_024.0 / 1_000_000.0)
}

/// Bytes that a process, this one if no id is given, has written to files and sockets since it started.
///
/// Fails where there is no `/proc`.
pub fn written_bytes(process: Option<u32>) -> BenchResult<f64> {
    number_after(&proc_file(process, "io")?, "wchar:")
}

fn proc_file(process: Option<u32>, name: &str) -> BenchResult<String> {
    let folder = process.map_or_else(|| "self".to_owned(), |id| id.to_string());
    let path = format!("/proc/{folder}/{name}");
    std::fs::read_to_string(&path).map_err(|error| format!("reading {path}: {error}").into())
}

fn number_after(text: &str, label: &str) -> BenchResult<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label)).ok_or_else(|| format!("no {label}"))?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// Bytes of all files in a folder and the folders in it.
pub fn folder_bytes(folder: &Path) -> BenchResult<f64> {
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() { folder_bytes(&entry.path())? } else { data.len() as f64 };
    }
    Ok(bytes)
}

/// Seconds since 1970: the only clock that two processes share.
pub fn since_epoch_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labelled_numbers_are_read_with_and_without_unit() {
        assert_eq!(number_after("Name: x\nVmRSS:\t  1024 kB\n", "VmRSS:").unwrap(), 1024.0);
        assert_eq!(number_after("rchar: 1\nwchar: 77\n", "wchar:").unwrap(), 77.0);
        assert!(number_after("rchar: 1\n", "wchar:").is_err());
    }
}
