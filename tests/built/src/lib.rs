//! The binaries that a cargo command builds.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// An executable that cargo has built: a program or the tests of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltBinary {
    /// The name of its target: `it` for integration tests.
    pub target: String,
    /// The file to run.
    pub executable: PathBuf,
    /// The folder of its package. Tests expect to be run there.
    pub folder: PathBuf,
}

/// The part of a line of cargo's output that is read here.
#[derive(Deserialize)]
struct CargoMessage {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
}

/// The cargo that runs the caller, for the workspace in this folder.
pub fn cargo(workspace: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace);
    cargo
}

/// Runs a `cargo build` or `cargo test --no-run` and returns the executables it names. What cargo prints for people goes to
/// the standard error.
///
/// # Errors
/// If cargo cannot be run, or reports an error.
pub fn build(mut cargo: Command) -> Result<Vec<BuiltBinary>, String> {
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{cargo:?} failed"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(binary).collect())
}

/// The executable that this line of cargo's output names, if it names one.
fn binary(line: &str) -> Option<BuiltBinary> {
    let message: CargoMessage = serde_json::from_str(line).ok()?;
    let folder = message.manifest_path?.parent()?.to_owned();
    let is_built = message.reason == "compiler-artifact";
    is_built.then_some(BuiltBinary { target: message.target?.name, executable: message.executable?, folder })
}

#[cfg(test)]
mod tests {
    use super::binary;

    #[test]
    fn executables_are_read_from_what_cargo_prints() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"it","kind":["test"]},"executable":"/w/t/it-1"}"#;
        let found = binary(line).unwrap();
        assert_eq!((found.target.as_str(), found.folder.to_str()), ("it", Some("/w/a")));
        assert_eq!(binary(&line.replace("\"/w/t/it-1\"", "null")), None, "a library is not run");
        assert_eq!(binary(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
