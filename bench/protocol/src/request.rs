//! What the driver asks for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::BenchResult;

/// The first argument of a measuring process.
pub const MEASURE_FLAG: &str = "--measure";

/// One workload to measure: the arguments of a measuring process.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureRequest {
    /// What to run, for example `chain`.
    pub workload: String,
    /// The variant of the system, for example `tuned`.
    pub variant: String,
    /// Numbers of things: `steps`, `instances`.
    pub sizes: BTreeMap<String, u64>,
    /// An existing folder on the measured disk.
    pub folder: PathBuf,
    /// The database server, for systems that need one.
    pub url: Option<String>,
    /// The program of the system's own server, for systems that have one.
    pub server: Option<PathBuf>,
    /// When the workload is stopped.
    pub stop_after: Duration,
    /// When the driver started the process, in seconds since 1970.
    pub began_s: f64,
}

impl MeasureRequest {
    /// The size of this name.
    ///
    /// Fails if the driver did not give it.
    pub fn size(&self, name: &str) -> BenchResult<u64> {
        self.sizes
            .get(name)
            .copied()
            .ok_or_else(|| format!("workload {} needs the size '{name}'", self.workload).into())
    }

    /// The size of this name, or 0.
    pub fn size_or_zero(&self, name: &str) -> u64 {
        self.sizes.get(name).copied().unwrap_or(0)
    }

    /// The arguments that [`parse`](Self::parse) reads.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![MEASURE_FLAG.to_owned(), self.workload.clone()];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        add("variant", self.variant.clone());
        for (name, size) in &self.sizes {
            add("size", format!("{name}={size}"));
        }
        add("folder", self.folder.display().to_string());
        if let Some(url) = &self.url {
            add("url", url.clone());
        }
        if let Some(server) = &self.server {
            add("server", server.display().to_string());
        }
        add("stop-after-ms", self.stop_after.as_millis().to_string());
        add("began-s", self.began_s.to_string());
        arguments
    }

    /// Reads the arguments of a measuring process.
    ///
    /// Fails on an argument that it does not know.
    pub fn parse(arguments: impl Iterator<Item = String>) -> BenchResult<Self> {
        let mut request = Self {
            workload: String::new(),
            variant: String::new(),
            sizes: BTreeMap::new(),
            folder: PathBuf::new(),
            url: None,
            server: None,
            stop_after: Duration::from_secs(30),
            began_s: crate::since_epoch_s(),
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                MEASURE_FLAG => request.workload = value,
                "--variant" => request.variant = value,
                "--size" => {
                    let (name, size) = value.split_once('=').ok_or_else(|| format!("no size: '{value}'"))?;
                    request.sizes.insert(name.to_owned(), size.parse()?);
                }
                "--folder" => request.folder = PathBuf::from(value),
                "--url" => request.url = Some(value),
                "--server" => request.server = Some(PathBuf::from(value)),
                "--stop-after-ms" => request.stop_after = Duration::from_millis(value.parse()?),
                "--began-s" => request.began_s = value.parse()?,
                other => return Err(format!("unknown argument '{other}'").into()),
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let request = MeasureRequest {
            workload: "chain".to_owned(),
            variant: "tuned".to_owned(),
            sizes: BTreeMap::from([("steps".to_owned(), 200), ("rest_ms".to_owned(), 0)]),
            folder: PathBuf::from("a folder"),
            url: Some("postgres://localhost/x".to_owned()),
            server: Some(PathBuf::from("bin/server")),
            stop_after: Duration::from_millis(1_500),
            began_s: 1_763_452_800.25,
        };
        assert_eq!(MeasureRequest::parse(request.to_arguments().into_iter()).unwrap(), request);
        assert_eq!(request.size("steps").unwrap(), 200);
        assert!(request.size("instances").is_err());
    }

    #[test]
    fn bad_arguments_are_errors() {
        for arguments in [&["--measure"][..], &["--colour", "red"], &["--size", "steps"]] {
            let arguments = arguments.iter().map(|&argument| argument.to_owned());
            assert!(MeasureRequest::parse(arguments).is_err());
        }
    }
}
