//! The binaries with the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::catalogue::PACKAGES;

/// A built test binary, and what is in it.
#[derive(Debug)]
pub(crate) struct TestBinary {
    pub(crate) executable: PathBuf,
    /// Where it expects to be run.
    pub(crate) folder: PathBuf,
    pub(crate) tests: Vec<String>,
}

/// A line of cargo's.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// The cargo that runs us.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// Builds the tests of the proofs.
pub(crate) fn build(root: &Path) -> Result<Vec<TestBinary>, String> {
    let mut build = cargo(root);
    build.args(["test", "--no-run", "--locked", "--message-format=json-render-diagnostics", "--test", "it"]);
    build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    let output =
        build.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let artifacts = messages.filter_map(|line| serde_json::from_slice::<Message>(line).ok());
    let is_test = |message: &Message| {
        let kinds = message.target.as_ref().map_or(&[][..], |target| &target.kind);
        message.reason == "compiler-artifact" && kinds.iter().any(|kind| kind == "test")
    };
    let mut binaries = Vec::new();
    for message in artifacts.filter(is_test) {
        let (Some(executable), Some(manifest)) = (message.executable, message.manifest_path) else {
            continue;
        };
        let folder = manifest.parent().unwrap_or(root).to_owned();
        let tests = list(&executable, &folder)?;
        binaries.push(TestBinary { executable, folder, tests });
    }
    Ok(binaries)
}

/// The names of the tests in a binary.
fn list(executable: &Path, folder: &Path) -> Result<Vec<String>, String> {
    let mut list = Command::new(executable);
    list.args(["--list", "--format", "terse"]).current_dir(folder);
    let output = list.output().map_err(|error| format!("{} cannot be run: {error}", executable.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
