//! Which crates are mutated, and which tests must notice.

use super::sample::MutantName;

/// A crate whose sources are mutated.
#[derive(Debug)]
pub(crate) struct MutatedCrate {
    pub(crate) package: &'static str,
    /// The folders of its sources.
    sources: &'static [&'static str],
    /// The tests, the fastest first. The next are run with what survives these.
    pub(crate) tests: &'static [TestChoice],
}

/// Tests that are run with each mutant.
#[derive(Debug)]
pub(crate) struct TestChoice {
    pub(crate) package: &'static str,
    /// Arguments of `cargo test`.
    pub(crate) arguments: &'static [&'static str],
    /// How long the tests may take. A mutant with which they take longer counts as caught: a test hangs. Many times what
    /// they take on an idle machine, so that a busy one catches nothing by itself.
    pub(crate) seconds_max: u64,
}

/// The tests of the engine on both stores, without those of large sizes, which take long without optimisation. They mostly
/// wait, so many run at the same time.
const ENGINE: TestChoice = TestChoice {
    package: "everturn",
    arguments: &["--lib", "--test", "it", "--", "--test-threads", "16", "--skip", "large_sizes"],
    seconds_max: 150,
};

/// The tests of SQLite without the damage sweep, the model runs and the other ways of running the contract.
const SQLITE: TestChoice = TestChoice {
    package: "everturn-sqlite",
    arguments: &[
        "--lib",
        "--test",
        "it",
        "--",
        "--test-threads",
        "8",
        "--skip",
        "damage_sweep",
        "--skip",
        "model::",
        "--skip",
        "conformance::one_operation_per_commit",
        "--skip",
        "conformance::through_the_adapter",
        "--skip",
        "conformance::in_memory",
    ],
    seconds_max: 150,
};

/// All crates that are mutated.
pub(crate) const MUTATED_CRATES: [MutatedCrate; 4] = [
    MutatedCrate {
        package: "everturn-core",
        sources: &["crates/core/src/"],
        tests: &[
            TestChoice { package: "everturn-core", arguments: &["--lib", "--test", "it"], seconds_max: 150 },
            ENGINE,
        ],
    },
    MutatedCrate {
        package: "everturn-provider",
        sources: &["crates/provider/src/"],
        tests: &[
            TestChoice {
                package: "everturn-provider",
                arguments: &["--lib", "--test", "it", "--", "--test-threads", "8", "--skip", "model::"],
                seconds_max: 150,
            },
            ENGINE,
        ],
    },
    MutatedCrate { package: "everturn-sqlite", sources: &["crates/sqlite/src/"], tests: &[SQLITE, ENGINE] },
    MutatedCrate { package: "everturn", sources: &["crates/everturn/src/runtime/"], tests: &[ENGINE] },
];

impl MutatedCrate {
    /// Whether this mutant is tried as one of this crate. What only our own tests call is not.
    pub(crate) fn has(&self, name: &MutantName) -> bool {
        let is_of_crate = self.sources.iter().any(|folder| name.0.starts_with(folder));
        is_of_crate && !name.0.contains("/testing.rs:")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ENGINE, MUTATED_CRATES, MutantName, SQLITE};

    #[test]
    fn every_mutant_belongs_to_one_crate() {
        let crates_of = |name: &str| -> Vec<&str> {
            let name = MutantName(name.to_owned());
            MUTATED_CRATES
                .iter()
                .filter(|mutated| mutated.has(&name))
                .map(|mutated| mutated.package)
                .collect()
        };
        assert_eq!(crates_of("crates/core/src/turn/apply.rs:1:2: x"), ["everturn-core"]);
        assert_eq!(crates_of("crates/everturn/src/runtime/node.rs:1:2: x"), ["everturn"]);
        assert_eq!(crates_of("crates/everturn/src/client/wait.rs:1:2: x"), [""; 0]);
        assert_eq!(crates_of("crates/sqlite/src/testing.rs:1:2: x"), [""; 0]);
    }

    #[test]
    fn skipped_tests_exist() {
        for (tests, folder) in [(SQLITE, "crates/sqlite/tests/it"), (ENGINE, "crates/everturn/tests/it")] {
            let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(folder);
            let skipped = tests.arguments.windows(2).filter(|pair| pair[0] == "--skip").map(|pair| pair[1]);
            for name in skipped {
                let module = name.trim_end_matches("::").replace("::", "/");
                let is_there = folder.join(&module).is_dir() || folder.join(format!("{module}.rs")).is_file();
                assert!(is_there, "{name} is gone: say which tests are left out now");
            }
        }
    }

    #[test]
    fn the_sources_exist() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for folder in MUTATED_CRATES.iter().flat_map(|mutated| mutated.sources) {
            assert!(root.join(folder).is_dir(), "{folder} is gone: say where its sources are now");
        }
    }
}
