//! The proofs, built with the bugs in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::catalogue::{CATALOGUE, Package};

/// The tests of one package.
#[derive(Debug, Clone)]
pub struct Binary {
    /// What to run.
    pub executable: PathBuf,
    /// Where it expects to be run.
    pub folder: PathBuf,
}

/// Builds the tests of all packages of the catalogue, with bugs, below `target`, and names them by package.
///
/// # Errors
/// If cargo cannot, with what it said.
pub fn built(target: &Path) -> Result<BTreeMap<&'static str, Binary>, String> {
    let packages: BTreeSet<_> = CATALOGUE.iter().map(|planted| planted.proof.package.name).collect();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--message-format=json", "--locked", "--test", "it"]);
    cargo.args(["--features", "everturn-core/planted-bugs", "--target-dir"]).arg(target.join("planted"));
    cargo.args(packages.iter().flat_map(|package| ["-p", package]));
    let output = cargo
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !output.status.success() {
        let errors = messages.iter().filter_map(|message| text(message, "/message/rendered"));
        let errors: Vec<&str> = errors.collect();
        return Err(format!("the proofs cannot be built with bugs in them:\n{}", errors.join("\n")));
    }
    let mut binaries = BTreeMap::new();
    for Package { name, folder } in CATALOGUE.iter().map(|planted| planted.proof.package) {
        let folder = workspace().join(folder);
        let executable = messages
            .iter()
            .filter(|message| {
                text(message, "/manifest_path").map(Path::new) == Some(&folder.join("Cargo.toml"))
            })
            .filter(|message| text(message, "/target/name") == Some("it"))
            .find_map(|message| text(message, "/executable"))
            .ok_or_else(|| format!("cargo built no tests of {name}"))?;
        binaries.insert(name, Binary { executable: executable.into(), folder });
    }
    Ok(binaries)
}

/// A text in one of cargo's messages.
fn text<'a>(message: &'a Value, place: &str) -> Option<&'a str> {
    message.pointer(place)?.as_str()
}

/// Where the workspace is.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}
