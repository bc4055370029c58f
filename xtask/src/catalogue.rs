//! Which proofs there are.

/// A proof of `GUARANTEES.md`.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Its number.
    pub(crate) id: &'static str,
    /// What happens in it.
    pub(crate) what: &'static str,
    /// How it is found.
    pub(crate) how: How,
}

/// How a proof is run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By all tests in whose path a module or a function begins like one of these.
    Tests(&'static [&'static str]),
    /// By the whole suite under cruel settings.
    CruelSettings,
}

/// All proofs.
pub(crate) const PROOFS: [Proof; 13] = [
    tests("R1", "simulation: everything goes wrong", &["r1_"]),
    tests("R2", "power cuts", &["r2_"]),
    tests("R3", "I/O calls fail, once and for good", &["r3_"]),
    tests("R4", "kill -9 of processes under load", &["r4_"]),
    tests("R6", "zombies: stopped past their locks", &["r6_"]),
    tests("R7", "fencing table: every kind of token", &["tokens"]),
    tests("R8", "clocks a day apart that jump", &["r8_", "clock_jumps"]),
    tests("R9", "full disks", &["r9_"]),
    tests("R10", "damaged rows", &["r10_", "damage_sweep"]),
    tests("R12", "each provider against the in-memory one", &["r12_"]),
    tests("R13", "random programs against a model", &["r13_"]),
    Proof { id: "R14", what: "the suite under cruel settings", how: How::CruelSettings },
    tests("R15", "planted bugs", &["r15_"]),
];

const fn tests(id: &'static str, what: &'static str, prefixes: &'static [&'static str]) -> Proof {
    Proof { id, what, how: How::Tests(prefixes) }
}

/// The packages in which the tests of proofs are, each with one test binary `it`.
pub(crate) const PACKAGES: [&str; 5] = [
    "everturn-simulation",
    "everturn-crash-tests",
    "everturn-sqlite",
    "everturn-provider",
    "everturn-planted-bugs",
];

/// The packages whose tests know cruel settings.
pub(crate) const CRUELLY_TESTED: [&str; 4] =
    ["everturn", "everturn-sqlite", "everturn-simulation", "everturn-crash-tests"];

impl Proof {
    /// Whether there is nothing in it of which one could run more.
    pub(crate) fn is_run_once(&self) -> bool {
        self.how == How::CruelSettings || self.id == "R15"
    }

    /// Whether this test is part of the proof.
    pub(crate) fn has(&self, test: &str) -> bool {
        match self.how {
            How::Tests(prefixes) => {
                test.split("::").any(|part| prefixes.iter().any(|prefix| part.starts_with(prefix)))
            }
            How::CruelSettings => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CRUELLY_TESTED, PROOFS};

    #[test]
    fn the_test_script_runs_the_same_packages_under_cruel_settings() {
        let script =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test")).unwrap();
        let (_, cruel) = script.split_once("EVERTURN_CRUEL=1 cargo test ").unwrap();
        let words: Vec<&str> = cruel.split_whitespace().take_while(|word| *word != "--test").collect();
        let packages: Vec<&str> = words.iter().copied().filter(|word| word.starts_with("everturn")).collect();
        assert_eq!(packages, CRUELLY_TESTED);
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
