//! Runs tests and reads their output line by line.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use everturn_proof::{ProofReport, ProofState};

use crate::progress::Progress;
use crate::record::{RecordedFailure, TestResult, add};

/// How many lines of a failure are kept.
const LINES_KEPT: usize = 30;

/// Runs tests of a proof and returns the result of each. Tests that do not count cases share one entry.
pub(crate) fn follow(
    proof: &str,
    mut command: Command,
    progress: &mut Progress,
) -> Result<Vec<TestResult>, String> {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{shown} cannot be run: {error}"))?;
    let (Some(mut stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{shown} has no output"));
    };
    let listener = std::thread::spawn(move || {
        let mut text = Vec::new();
        // If reading fails, what was read before is used.
        drop(stdout.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut read = TestOutput { proof, tests: Vec::new(), is_failure: false, tail: VecDeque::new() };
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        read.line(String::from_utf8_lossy(&line).trim_end(), progress);
        line.clear();
    }
    let status = child.wait().map_err(|error| format!("{shown}: {error}"))?;
    let said = listener.join().unwrap_or_default();
    Ok(read.end(status.success(), &said))
}

/// What was read so far.
struct TestOutput<'a> {
    proof: &'a str,
    tests: Vec<TestResult>,
    /// Whether the next lines belong to a failure.
    is_failure: bool,
    tail: VecDeque<String>,
}

impl TestOutput<'_> {
    fn line(&mut self, line: &str, progress: &mut Progress) {
        let Ok(report) = line.parse::<ProofReport>() else { return self.other(line, progress) };
        self.is_failure = false;
        let mut test = TestResult::new(self.proof, &report.test);
        match report.state {
            ProofState::Running { percent } => {
                let name = report.test.rsplit("::").next().unwrap_or_default();
                let name: String = name.chars().take(40).collect();
                progress.show(&format!("{} {name} {percent} %: {}", self.proof, report.counts));
                return;
            }
            ProofState::Done { seconds, .. } => {
                test.seconds = seconds;
                test.counts = report.counts.iter().map(|(name, count)| (name.to_owned(), count)).collect();
            }
            ProofState::Broken { seed, command } => {
                progress.print(line);
                self.is_failure = true;
                test.failures.push(RecordedFailure { seed: Some(seed), command, what: String::new() });
            }
        }
        add(&mut self.tests, test);
    }

    fn other(&mut self, line: &str, progress: &mut Progress) {
        let failure = self.tests.iter_mut().rev().find_map(|test| test.failures.last_mut());
        if let (true, Some(failure)) = (self.is_failure, failure) {
            if failure.what.lines().count() < LINES_KEPT {
                progress.print(line);
                failure.what.push_str(line);
                failure.what.push('\n');
            }
        } else {
            // A run of hours may print much.
            if self.tail.len() >= LINES_KEPT {
                self.tail.pop_front();
            }
            self.tail.push_back(line.to_owned());
        }
    }

    fn end(mut self, is_success: bool, said: &str) -> Vec<TestResult> {
        let mut rest = TestResult::new(self.proof, "tests");
        let passed = said.lines().filter_map(passed).sum();
        rest.counts.push(("tests passed".to_owned(), passed));
        if !is_success && self.tests.iter().all(|test| test.failures.is_empty()) {
            let lines = said.lines().chain(self.tail.iter().map(String::as_str));
            let lines: Vec<&str> = lines.filter(|line| !line.ends_with("... ok")).collect();
            let what = lines.iter().skip(lines.len().saturating_sub(LINES_KEPT));
            let what = what.copied().collect::<Vec<_>>().join("\n");
            // The command that was run names folders of this machine.
            let command = format!("cargo xtask proof --only {}", self.proof);
            rest.failures.push(RecordedFailure { seed: None, command, what });
        }
        self.tests.push(rest);
        self.tests
    }
}

/// How many tests passed, if this is the line with the summary.
fn passed(line: &str) -> Option<u64> {
    line.strip_prefix("test result: ")?.split_once(". ")?.1.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{follow, passed};
    use crate::progress::Progress;

    fn followed(script: &str) -> Vec<crate::record::TestResult> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        follow("R2", command, &mut Progress::on(Box::new(std::io::sink()), false)).unwrap()
    }

    #[test]
    fn counts_and_tests_are_read() {
        let tests = followed(
            "echo 'proof R2 r2_cuts: 40 %: 12 cuts' >&2; echo 'proof R2 r2_cuts: done in 1.5 s from seed 1: 30 cuts' >&2; \
             echo 'test result: ok. 7 passed; 0 failed'",
        );
        assert_eq!(tests[0].counts, [("cuts".to_owned(), 30)]);
        assert_eq!(tests[1].counts, [("tests passed".to_owned(), 7)]);
        assert!(tests.iter().all(|test| test.failures.is_empty()));
    }

    #[test]
    fn a_failure_is_read_with_its_seed_and_its_text() {
        let tests = followed(
            "echo 'proof R2 r2_cuts: broken by seed 9: cargo test x' >&2; echo 'a row is lost' >&2; exit 1",
        );
        let failure = &tests[0].failures[0];
        assert_eq!((failure.seed, failure.command.as_str()), (Some(9), "cargo test x"));
        assert_eq!(failure.what, "a row is lost\n");
    }

    #[test]
    fn a_run_that_ends_badly_without_a_report_is_a_failure() {
        let tests = followed("echo 'test a ... FAILED'; kill -9 $$");
        let failure = &tests[0].failures[0];
        assert!(failure.what.contains("test a ... FAILED"));
        assert_eq!(failure.command, "cargo xtask proof --only R2");
    }

    #[test]
    fn only_the_summary_counts_tests() {
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed; 0 ignored"), Some(3));
        assert_eq!(passed("test a ... ok"), None);
    }
}
