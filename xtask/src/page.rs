//! The page of figures, written from the record.

use std::fmt::Write as _;
use std::path::Path;

use everturn_proof::Counts;

use crate::catalogue::{PROOFS, ProofEntry};
use crate::mutants::survivor_reason;
use crate::record::{LongRun, RecordedFailure, TestResult, last_mutants};

/// Where the page is.
pub(crate) const PAGE: &str = "docs/reliability.md";

const INTRODUCTION: &str = "\
# Reliability: the figures

The counts of all long runs of the proofs of [GUARANTEES.md](../GUARANTEES.md). `cargo xtask proof --long MINUTES` runs the proofs,
`cargo xtask mutants` tries mutants, and both write this page from [reliability.json](reliability.json), the record of all long
runs. Do not edit it.
Minutes are those of each run. Two runs may have shared the processors.
";

pub(crate) fn write(root: &Path, runs: &[LongRun]) -> Result<(), String> {
    std::fs::write(root.join(PAGE), page(runs)).map_err(|error| format!("{PAGE} cannot be written: {error}"))
}

/// The text of the page. Writing to a `String` cannot fail, so the results are ignored.
fn page(runs: &[LongRun]) -> String {
    let mut page = INTRODUCTION.to_owned();
    let minutes: u64 = runs.iter().map(|run| run.minutes).sum();
    let _ = writeln!(page, "\n{} minutes in {} runs.\n", minutes, runs.len());
    totals(&mut page, runs);
    figures(&mut page, runs);
    mutants(&mut page, runs);
    history(&mut page, runs);
    failures(&mut page, runs);
    page
}

fn tests_of<'a>(
    runs: &'a [LongRun],
    proof: &'a ProofEntry,
) -> impl Iterator<Item = (&'a LongRun, &'a TestResult)> {
    runs.iter().flat_map(move |run| {
        run.tests.iter().filter(|test| test.proof == proof.id).map(move |test| (run, test))
    })
}

/// One line for each proof.
fn totals(page: &mut String, runs: &[LongRun]) {
    let _ = writeln!(page, "| proof | | cases | last run | last failure |\n| --- | --- | --- | --- | --- |");
    for proof in &PROOFS {
        let mut cases = Counts::default();
        for (_, test) in tests_of(runs, proof) {
            // The first count of a test is that of its cases.
            if let Some((name, count)) = test.counts.first().filter(|_| test.seconds > 0.0) {
                cases.add(name, *count);
            }
        }
        let passed: u64 = tests_of(runs, proof).map(|(_, test)| test.counts().get("tests passed")).sum();
        if cases.iter().next().is_none() && passed > 0 {
            cases.add("tests passed", passed);
        }
        let last = tests_of(runs, proof).last();
        let unrecorded = if proof.is_run_once() { "with every submission" } else { "never" };
        let last = last.map_or(unrecorded.to_owned(), |(run, _)| format!("{}, {}", run.date, commit(run)));
        let failed = tests_of(runs, proof).filter(|(_, test)| !test.failures.is_empty()).last();
        let failed = failed.map_or("never".to_owned(), |(run, _)| format!("{}, {}", run.date, commit(run)));
        let _ = writeln!(page, "| {} | {} | {} | {last} | {failed} |", proof.id, proof.what, grouped(&cases));
    }
}

/// Everything that was counted, summed over all runs.
fn figures(page: &mut String, runs: &[LongRun]) {
    let _ = writeln!(page, "\n## Everything that was counted\n");
    for proof in &PROOFS {
        let mut sums: Vec<TestResult> = Vec::new();
        for (_, test) in tests_of(runs, proof).filter(|(_, test)| test.seconds > 0.0) {
            crate::record::add(&mut sums, test.clone());
        }
        for sum in sums {
            let minutes = sum.seconds / 60.0;
            let _ = writeln!(
                page,
                "- {} `{}`: {} in {minutes:.1} minutes",
                proof.id,
                sum.test,
                grouped(&sum.counts())
            );
        }
    }
}

/// The last sample of mutants, with every survivor.
fn mutants(page: &mut String, runs: &[LongRun]) {
    let Some((run, test)) = last_mutants(runs) else { return };
    let counts = test.counts();
    let (viable, caught) = (counts.get("viable mutants"), counts.get("mutants caught"));
    let _ = writeln!(
        page,
        "\n## Mutants\n\nThe last sample, of {}, {}, seed {}: {caught} of {viable} viable mutants were caught by the fast \
         tests, {} %.\n",
        run.date,
        commit(run),
        run.seed,
        caught * 100 / viable
    );
    if test.survivors.is_empty() {
        let _ = writeln!(page, "None survived.");
    }
    for mutant in &test.survivors {
        let reason = survivor_reason(mutant).unwrap_or("no reason is given");
        let _ = writeln!(page, "- `{mutant}`: {reason}");
    }
}

/// One line for each run.
fn history(page: &mut String, runs: &[LongRun]) {
    let _ = writeln!(
        page,
        "\n## Runs\n\n| date | commit | minutes | processors | first seed | result |\n| --- | --- | --- | --- | --- | --- |"
    );
    for run in runs.iter().rev() {
        let failures = run.tests.iter().map(|test| test.failures.len()).sum::<usize>();
        let result = if failures == 0 { "all held".to_owned() } else { format!("{failures} failed") };
        let LongRun { date, minutes, processors, seed, .. } = run;
        let _ = writeln!(page, "| {date} | {} | {minutes} | {processors} | {seed} | {result} |", commit(run));
    }
}

/// Every failure.
fn failures(page: &mut String, runs: &[LongRun]) {
    let _ = writeln!(page, "\n## Failures\n");
    let before = page.len();
    for run in runs.iter().rev() {
        for test in &run.tests {
            for RecordedFailure { seed, command, what } in &test.failures {
                let seed = seed.map_or(String::new(), |seed| format!(", seed {seed}"));
                let _ = writeln!(
                    page,
                    "- {}, {}: {} `{}`{seed}: {}. To reproduce it on that commit: `{command}`",
                    run.date,
                    commit(run),
                    test.proof,
                    test.test,
                    summary(what)
                );
            }
        }
    }
    if page.len() == before {
        let _ = writeln!(page, "None in these runs.");
    }
}

/// The first lines of a failure, as one.
fn summary(what: &str) -> String {
    let line: Vec<&str> = what.lines().map(str::trim).filter(|line| !line.is_empty()).take(2).collect();
    line.join(" ").chars().take(300).collect::<String>().replace('|', "\\|")
}

fn commit(run: &LongRun) -> String {
    if run.is_clean { run.commit.clone() } else { format!("{} with changes", run.commit) }
}

/// Counts with their thousands separated.
fn grouped(counts: &Counts) -> String {
    let each = counts.iter().map(|(name, count)| {
        let digits = count.to_string();
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        format!("{text} {name}")
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::page;
    use crate::record::{LongRun, RecordedFailure, TestResult};

    fn run(commit: &str, failures: Vec<RecordedFailure>) -> LongRun {
        let counts = vec![("power cuts".to_owned(), 5_001), ("instances".to_owned(), 700)];
        let test = TestResult { counts, seconds: 60.0, failures, ..TestResult::new("R2", "r2_cuts") };
        let (date, commit) = ("2026-11-16".to_owned(), commit.to_owned());
        LongRun { date, commit, is_clean: true, minutes: 45, seed: 7, processors: 2, tests: vec![test] }
    }

    #[test]
    fn runs_add_up() {
        let page = page(&[run("aaa", vec![]), run("bbb", vec![])]);
        assert!(page.contains("90 minutes in 2 runs"), "{page}");
        assert!(page.contains("| R2 | power cuts | 10,002 power cuts | 2026-11-16, bbb | never |"), "{page}");
        assert!(page.contains("`r2_cuts`: 10,002 power cuts, 1,400 instances in 2.0 minutes"), "{page}");
        assert!(page.contains("None in these runs."), "{page}");
    }

    #[test]
    fn the_score_of_mutants_is_in_the_long_column_of_r15_with_every_survivor() {
        let counts = vec![("viable mutants".to_owned(), 120), ("mutants caught".to_owned(), 117)];
        let survivors = vec!["a.rs:1:2: replace + with -".to_owned()];
        let test = TestResult { counts, seconds: 60.0, survivors, ..TestResult::new("R15", "mutants") };
        let page = page(&[LongRun { tests: vec![test], ..run("aaa", vec![]) }]);
        assert!(
            page.contains(
                "| R15 | planted bugs and mutants | 120 viable mutants | 2026-11-16, aaa | never |"
            ),
            "{page}"
        );
        assert!(page.contains("117 of 120 viable mutants were caught by the fast tests, 97 %"), "{page}");
        assert!(page.contains("- `a.rs:1:2: replace + with -`: no reason is given"), "{page}");
    }

    #[test]
    fn a_failure_stays_on_the_page() {
        let failure =
            RecordedFailure { seed: Some(9), command: "cargo test x".into(), what: "a row is lost\n".into() };
        let page = page(&[run("aaa", vec![failure]), run("bbb", vec![])]);
        assert!(page.contains("| 2026-11-16, bbb | 2026-11-16, aaa |"), "{page}");
        assert!(
            page.contains("`r2_cuts`, seed 9: a row is lost. To reproduce it on that commit: `cargo test x`"),
            "{page}"
        );
    }
}
