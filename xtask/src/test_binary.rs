//! The binaries with the tests of the proofs.

use std::path::{Path, PathBuf};
use std::process::Command;

use everturn_built::{BuiltBinary, cargo};

use crate::catalogue::PACKAGES;

/// A built test binary, and the tests in it.
#[derive(Debug)]
pub(crate) struct TestBinary {
    pub(crate) executable: PathBuf,
    /// Where it expects to be run.
    pub(crate) folder: PathBuf,
    pub(crate) tests: Vec<String>,
}

/// Builds the tests of the proofs.
pub(crate) fn build(root: &Path) -> Result<Vec<TestBinary>, String> {
    let mut build = cargo(root);
    build.args(["test", "--no-run", "--locked", "--test", "it"]);
    build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    let mut binaries = Vec::new();
    // Cargo names also the programs that the tests run.
    for BuiltBinary { executable, folder, .. } in
        everturn_built::build(build)?.into_iter().filter(|binary| binary.target == "it")
    {
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
