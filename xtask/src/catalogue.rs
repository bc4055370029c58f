//! The proofs of `GUARANTEES.md`.

/// A proof, and how to run it.
#[derive(Debug)]
pub(crate) struct ProofEntry {
    /// Its number.
    pub(crate) id: &'static str,
    /// What it tries.
    pub(crate) what: &'static str,
    /// How it is run.
    pub(crate) how: HowToRun,
}

/// How a proof is run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HowToRun {
    /// By all tests with a module or a function in their path that begins with one of these.
    Tests(&'static [&'static str]),
    /// By the whole suite under stress settings.
    StressSettings,
}

/// All proofs.
pub(crate) static PROOFS: [ProofEntry; 13] = [
    tests("R1", "simulation with all kinds of faults", &["r1_"]),
    tests("R2", "power cuts", &["r2_"]),
    tests("R3", "I/O calls fail, once and for good", &["r3_"]),
    tests("R4", "kill -9 of processes under load", &["r4_"]),
    tests("R6", "processes stopped until their locks have expired", &["r6_"]),
    tests("R7", "fencing: every kind of token", &["tokens"]),
    tests("R8", "clocks that jump and are a day apart", &["r8_", "clock_jumps"]),
    tests("R9", "full disks", &["r9_"]),
    tests("R10", "damaged rows", &["r10_", "damage_sweep"]),
    tests("R12", "each provider against the in-memory one", &["r12_"]),
    tests("R13", "random programs against a model", &["r13_"]),
    ProofEntry { id: "R14", what: "the suite under stress settings", how: HowToRun::StressSettings },
    tests("R15", "planted bugs and mutants", &["r15_"]),
];

const fn tests(id: &'static str, what: &'static str, prefixes: &'static [&'static str]) -> ProofEntry {
    ProofEntry { id, what, how: HowToRun::Tests(prefixes) }
}

/// The packages with the tests of proofs, each with one test binary `it`.
pub(crate) const PACKAGES: [&str; 5] = [
    "everturn-simulation",
    "everturn-crash-tests",
    "everturn-sqlite",
    "everturn-provider",
    "everturn-planted-bugs",
];

/// The packages whose tests have stress settings.
pub(crate) const STRESS_TESTED: [&str; 4] =
    ["everturn", "everturn-sqlite", "everturn-simulation", "everturn-crash-tests"];

impl ProofEntry {
    /// Whether it has no cases of which a longer run could run more.
    pub(crate) fn is_run_once(&self) -> bool {
        self.how == HowToRun::StressSettings || self.id == "R15"
    }

    /// Whether this test is part of the proof.
    pub(crate) fn has(&self, test: &str) -> bool {
        match self.how {
            HowToRun::Tests(prefixes) => {
                test.split("::").any(|part| prefixes.iter().any(|prefix| part.starts_with(prefix)))
            }
            HowToRun::StressSettings => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PROOFS, STRESS_TESTED};

    #[test]
    fn the_test_script_runs_the_same_packages_under_stress_settings() {
        let script =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test")).unwrap();
        let (_, stress) = script.split_once("EVERTURN_STRESS=1 cargo test ").unwrap();
        let words: Vec<&str> = stress.split_whitespace().take_while(|word| *word != "--test").collect();
        let packages: Vec<&str> = words.iter().copied().filter(|word| word.starts_with("everturn")).collect();
        assert_eq!(packages, STRESS_TESTED);
    }

    #[test]
    fn a_test_belongs_to_the_proof_it_is_named_for() {
        let proofs_of = |test: &str| -> Vec<_> {
            PROOFS.iter().filter(|proof| proof.has(test)).map(|proof| proof.id).collect()
        };
        assert_eq!(proofs_of("proofs::r1_no_promise_breaks"), ["R1"]);
        assert_eq!(proofs_of("proofs::r13_random_programs"), ["R13"]);
        assert_eq!(proofs_of("conformance::tokens::expired"), ["R7"]);
        assert_eq!(proofs_of("harness::nothing"), [""; 0]);
    }
}
