//! Builds the example programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of an example program.
///
/// Cargo does not build the examples of a package when it builds one of its tests, so they are built here, once. That is
/// quick when they are up to date.
pub(crate) fn program(example: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build).join(format!("{example}{}", std::env::consts::EXE_SUFFIX))
}

/// The names of all examples: every source file of the folder but the library.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = package_folder()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "lib")
        .collect();
    names.sort();
    names
}

fn build() -> PathBuf {
    // All members, so that cargo resolves the same features as when it tests the workspace, and builds nothing twice.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--workspace", "--examples", "--locked", "--quiet"]).current_dir(package_folder());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.status().unwrap();
    assert!(status.success(), "building the examples: {status}");
    // This test is in `deps`, the examples are in `examples` beside it.
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples")
}

fn package_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
