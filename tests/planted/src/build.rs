//! The proofs, built from the copy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use everturn_built::{BuiltBinary, cargo};

use crate::trials::{ProofRun, TRIALS, TestPackage};

/// The built tests of the copy, by package.
#[derive(Debug)]
pub struct ProofBinaries(BTreeMap<&'static str, BuiltBinary>);

impl ProofBinaries {
    /// The tests with this proof.
    pub fn of(&self, proof: &ProofRun) -> Option<&BuiltBinary> {
        self.0.get(proof.package.name)
    }
}

/// Builds the tests of all packages that trials run. `target` is the target folder of the workspace.
///
/// What the packages depend on is taken from there if it is built already: the build folder is the same. The packages
/// themselves are built with another number of codegen units, which makes them different packages for cargo, so that
/// workspace and copy do not overwrite each other. Programs that tests start go to a folder of their own.
///
/// # Errors
/// If cargo fails, or builds no tests of a package.
pub fn build(copy: &Path, target: &Path) -> Result<ProofBinaries, String> {
    let packages: BTreeSet<TestPackage> = TRIALS.iter().map(|trial| trial.proof.package).collect();
    let mut command = cargo(copy);
    command.args(["test", "--no-run", "--locked", "--test", "it"]);
    command.args(packages.iter().flat_map(|package| ["--package", package.name]));
    // It has no such tests. With it, cargo chooses the same features of dependencies as for the whole workspace.
    command.args(["--package", "xtask"]);
    // Dependencies have a number of their own, see Cargo.toml.
    command.arg("--config").arg("profile.dev.codegen-units=15");
    command.arg("--config").arg(format!("build.build-dir={:?}", target.display().to_string()));
    command.arg("--target-dir").arg(target.join("planted"));
    let built = everturn_built::build(command)?;
    let mut binaries = BTreeMap::new();
    for package in packages {
        let folder = copy.join(package.folder);
        let is_of_package = |binary: &&BuiltBinary| binary.target == "it" && binary.folder == folder;
        let binary = built.iter().find(is_of_package);
        let binary = binary.ok_or_else(|| format!("cargo built no tests of {}", package.name))?;
        binaries.insert(package.name, binary.clone());
    }
    Ok(ProofBinaries(binaries))
}
