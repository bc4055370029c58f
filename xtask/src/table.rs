//! The results of the proofs, for a terminal.

use crate::catalogue::PROOFS;
use crate::record::TestResult;

/// One line for each test.
pub(crate) fn of(tests: &[TestResult]) -> String {
    let mut lines = vec![format!("{:<5} {:<8} {:>8}  {}", "proof", "result", "seconds", "counts")];
    for proof in &PROOFS {
        for test in tests.iter().filter(|test| test.proof == proof.id) {
            let result = if test.failures.is_empty() { "held" } else { "FAILED" };
            let name = test.test.rsplit("::").next().unwrap_or_default();
            let counts = test.counts();
            lines.push(format!("{:<5} {result:<8} {:>8.1}  {name}: {counts}", proof.id, test.seconds));
        }
    }
    lines.join("\n")
}

/// Every failure, with the command that runs it again; empty if there was none.
pub(crate) fn failures(tests: &[TestResult]) -> String {
    let all = tests.iter().flat_map(|test| test.failures.iter().map(move |failure| (test, failure)));
    let texts = all.map(|(test, failure)| {
        let seed = failure.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
        format!(
            "\n{} {}{seed} failed:\n{}\nrun it again with:\n  {}\n",
            test.proof,
            test.test,
            failure.what.trim_end(),
            failure.command
        )
    });
    texts.collect()
}
