//! Random sequences of calls, compared with the in-memory provider.
//!
//! The long run, on sequences that no other run tries:
//! `EVERTURN_PROOF_SEED=1000000 EVERTURN_PROOF_CASES=20000 cargo test -p everturn-sqlite --test it model::model`

use crate::conformance::MemoryFactory;

everturn_conformance::model_test!(MemoryFactory::new(), cases: 256);

/// In a file, reads bypass the writer. Every commit waits for the disk, so there are fewer cases.
mod on_file {
    use crate::conformance::FileFactory;

    everturn_conformance::model_test!(FileFactory::new(512), cases: 24);
}
