//! The public surface of the published crates, compared with the snapshots in `docs/api`.
//!
//! rustdoc writes the documentation as JSON, the `public-api` library makes one line of each public item. Hidden items and
//! implementations that follow from a blanket implementation or are automatic are left out.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use everturn_built::cargo;
use serde::Deserialize;

/// Where the snapshots are.
const FOLDER: &str = "docs/api";
/// The command that writes them.
const UPDATE: &str = "cargo xtask api --update";

/// A crate that is published.
#[derive(Debug, Deserialize)]
struct PublishedCrate {
    name: String,
    /// The registries to publish to; empty for a crate that is not published.
    publish: Option<Vec<String>>,
}

/// What `cargo metadata` prints.
#[derive(Debug, Deserialize)]
struct WorkspaceMetadata {
    packages: Vec<PublishedCrate>,
    target_directory: PathBuf,
}

/// Compares the snapshots with the sources, or writes them. False if they differ.
pub(crate) fn run(root: &Path, is_update: bool) -> Result<bool, String> {
    let differences = compare(root, is_update)?;
    match (differences.is_empty(), is_update) {
        (true, _) => println!("the snapshots in {FOLDER} are up to date"),
        (false, true) => println!("written:\n{differences}"),
        (false, false) => println!("{differences}\n\nIf the change is meant, run: {UPDATE}"),
    }
    Ok(is_update || differences.is_empty())
}

/// The differences between snapshots and sources, for people; empty if there are none.
fn compare(root: &Path, is_update: bool) -> Result<String, String> {
    let metadata = metadata(root)?;
    let mut differences = Vec::new();
    let is_published =
        |package: &&PublishedCrate| package.publish.as_ref().is_none_or(|list| !list.is_empty());
    for PublishedCrate { name, .. } in metadata.packages.iter().filter(is_published) {
        let surface = surface(root, name, &metadata.target_directory)?;
        let path = root.join(FOLDER).join(format!("{name}.txt"));
        let snapshot = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        if snapshot == surface {
            continue;
        }
        differences.push(format!("{FOLDER}/{name}.txt:\n{}", difference(&snapshot, &surface)));
        if is_update {
            std::fs::create_dir_all(root.join(FOLDER))
                .and_then(|()| std::fs::write(&path, surface))
                .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        }
    }
    Ok(differences.join("\n"))
}

fn metadata(root: &Path) -> Result<WorkspaceMetadata, String> {
    let mut command = cargo(root);
    command.args(["metadata", "--no-deps", "--format-version=1", "--locked"]).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The public items of a crate, a line each.
fn surface(root: &Path, name: &str, target: &Path) -> Result<String, String> {
    let mut rustdoc = cargo(root);
    rustdoc.args(["rustdoc", "--quiet", "--locked", "--lib", "--all-features", "--package", name]);
    rustdoc.args(["--", "-Zunstable-options", "--output-format", "json"]);
    rustdoc.env("RUSTDOC", root.join("xtask/src/api/rustdoc-unstable"));
    rustdoc.envs(std::env::var_os("RUSTDOC").map(|real| ("REAL_RUSTDOC", real)));
    let status = rustdoc.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("rustdoc failed on {name}"));
    }
    let json = target.join("doc").join(format!("{}.json", name.replace('-', "_")));
    let items = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(false)
        .build()
        .map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(items.items().map(|item| format!("{item}\n")).collect())
}

/// The lines that are only in one of two texts: `-` for the first, `+` for the second.
fn difference(old: &str, new: &str) -> String {
    let only_in = |text: &str, other: &str, sign: char| -> Vec<String> {
        let others: std::collections::BTreeSet<&str> = other.lines().collect();
        text.lines().filter(|line| !others.contains(line)).map(|line| format!("  {sign} {line}")).collect()
    };
    let mut lines = only_in(old, new, '-');
    lines.extend(only_in(new, old, '+'));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{UPDATE, compare, difference};

    #[test]
    fn the_published_surface_is_that_of_the_snapshots() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let differences = compare(root, false).unwrap();
        assert!(differences.is_empty(), "{differences}\n\nIf the change is meant, run: {UPDATE}");
    }

    #[test]
    fn a_difference_names_the_lines_of_both_sides() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), "  - a\n  + c");
    }
}
