//! `docs/performance.md`, its plots, and the figures in the README, made from the results of a run.

use std::fmt::Write as _;
use std::path::Path;

use everturn_bench_protocol::BenchResult;

use super::bars;
use super::plot::write_plots;
use super::results::{MeasuredSystem, Results, SystemOutcome, WorkloadResult};
use super::units::{times, with_unit};
use crate::driver::{REFERENCE, repository};

const README_BEGIN: &str = "<!-- performance: written by bench/run --report -->";
const README_END: &str = "<!-- /performance -->";
/// The workloads of the README, and what they are called there.
const README_WORKLOADS: &[(&str, &str)] = &[
    ("chain", "one step after the other"),
    ("throughput-1000", "1,000 instances at the same time"),
    ("idle-latency", "start to result on an idle runtime"),
];

/// Writes the documents from the results in this file.
pub(crate) fn write_from(results_file: &Path) -> BenchResult<()> {
    let results = Results::read(results_file)?;
    let docs = repository().join("docs");
    write_plots(&results, &docs.join("performance"))?;
    results.write(&docs.join("performance/results.json"))?;
    std::fs::write(docs.join("performance.md"), document(&results))?;
    let readme = repository().join("README.md");
    let text = with_block(&std::fs::read_to_string(&readme)?, &readme_block(&results))?;
    std::fs::write(&readme, text)?;
    println!("written: docs/performance.md, docs/performance/, README.md");
    Ok(())
}

/// Puts the block between its marks.
fn with_block(readme: &str, block: &str) -> BenchResult<String> {
    let (before, rest) =
        readme.split_once(README_BEGIN).ok_or_else(|| format!("README.md has no line '{README_BEGIN}'"))?;
    let (_, after) =
        rest.split_once(README_END).ok_or_else(|| format!("README.md has no line '{README_END}'"))?;
    Ok(format!("{before}{README_BEGIN}\n{block}{README_END}{after}"))
}

fn readme_block(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = String::from(
        "![How many times as good as its peers Everturn is, in every workload](docs/performance/overview.svg)\n\n\
         | workload | Everturn, `synchronous=FULL` | best peer | ratio |\n| --- | --- | --- | --- |\n",
    );
    for (name, title) in README_WORKLOADS {
        let Some(workload) = results.workload(name) else { continue };
        let Some(ours) = workload.reference(&workload.headline) else { continue };
        let best = results
            .peers()
            .filter_map(|peer| Some((peer, workload.advantage_over(&peer.name)?)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other));
        let ours = with_unit(&workload.headline, ours.median);
        match best {
            Some((peer, ratio)) => {
                let theirs = workload.headline_of(&peer.name).map_or(0.0, |spread| spread.median);
                let theirs = with_unit(&workload.headline, theirs);
                line(
                    &mut text,
                    format_args!("| {title} | {ours} | {theirs} ({}) | {} |", peer.title, times(ratio)),
                );
            }
            None => line(&mut text, format_args!("| {title} | {ours} | | |")),
        }
    }
    line(
        &mut text,
        format_args!(
            "\n`./bench/run` makes these figures ({}, {} cores, {}); [docs/performance.md](docs/performance.md) has all of them.",
            machine.date, machine.cores, machine.filesystem
        ),
    );
    text
}

fn document(results: &Results) -> String {
    let mut text = String::new();
    introduction(&mut text, results);
    summary(&mut text, results);
    losses(&mut text, results);
    verdicts(&mut text, results);
    line(&mut text, format_args!("## Every workload\n"));
    for workload in &results.workloads {
        details(&mut text, results, workload);
    }
    text
}

fn introduction(text: &mut String, results: &Results) {
    let machine = &results.machine;
    let kind = if results.quick { " --quick" } else { "" };
    line(text, format_args!("# Performance\n"));
    line(
        text,
        format_args!(
            "`./bench/run{kind}` measured these figures, and `./bench/run --report FILE` wrote this page from them. Every system runs \
             every workload in turn, round after round, each run in a new process on a new store, so that noise affects all alike. \
             A figure is the median of {} rounds. The bare disk (plain SQLite, `synchronous=FULL`) is measured in the same rounds.\n\n\
             A commit that waits for the disk costs more than one that does not: systems at `synchronous=NORMAL` are best compared with \
             Everturn NORMAL. The ratios are those of Everturn at its default nevertheless.\n",
            results.rounds
        ),
    );
    line(text, format_args!("| | |\n| --- | --- |"));
    line(text, format_args!("| date | {} |", machine.date));
    line(text, format_args!("| commit | {} |", machine.commit));
    line(
        text,
        format_args!(
            "| machine | {} cores ({}), {:.0} GB of memory, Linux {}, {} |",
            machine.cores, machine.processor, machine.memory_gb, machine.kernel, machine.filesystem
        ),
    );
    line(text, format_args!("| load before the run | {:.1} |\n", machine.load_before));
    line(text, format_args!("| system | what it is |\n| --- | --- |"));
    for system in &results.systems {
        let absent = system.absent.as_ref().map_or(String::new(), |reason| format!(". **Absent:** {reason}"));
        line(text, format_args!("| {} | {}{absent} |", system.title, system.about));
    }
    line(text, format_args!(""));
}

/// One row a workload, one column a system.
fn summary(text: &mut String, results: &Results) {
    let systems: Vec<&MeasuredSystem> =
        results.systems.iter().filter(|system| system.absent.is_none()).collect();
    line(text, format_args!("## Summary\n"));
    line(
        text,
        format_args!(
            "In brackets: how many times as good as this system Everturn at `synchronous=FULL` is. Below 1 Everturn is behind. \
             `*`: the workload was stopped before its end, and the rate until then counts. `-`: not measured, see the workload.\n"
        ),
    );
    line(text, format_args!("![overview](performance/overview.svg)\n"));
    let titles: Vec<&str> = systems.iter().map(|system| system.title.as_str()).collect();
    line(text, format_args!("| workload | {} |", titles.join(" | ")));
    line(text, format_args!("| --- |{}", " --- |".repeat(systems.len())));
    for workload in &results.workloads {
        let cells: Vec<String> = systems.iter().map(|system| cell(workload, system)).collect();
        line(text, format_args!("| [{0}](#{0}) | {1} |", workload.name, cells.join(" | ")));
    }
    line(text, format_args!(""));
}

fn cell(workload: &WorkloadResult, system: &MeasuredSystem) -> String {
    let name = &system.name;
    let (Some(outcome), Some(spread)) = (workload.outcomes.get(name), workload.headline_of(name)) else {
        return "-".to_owned();
    };
    let mark = if outcome.stopped_rounds > 0 { "*" } else { "" };
    let value = with_unit(&workload.headline, spread.median);
    match workload.advantage_over(name).filter(|_| name != REFERENCE) {
        // Everturn's own variants are no competitors.
        Some(ratio) if ratio < 1.0 && system.is_peer => format!("{value}{mark} (**{}**)", times(ratio)),
        Some(ratio) => format!("{value}{mark} ({})", times(ratio)),
        None => format!("{value}{mark}"),
    }
}

fn losses(text: &mut String, results: &Results) {
    line(text, format_args!("## Where Everturn is behind\n"));
    let mut found = false;
    for workload in &results.workloads {
        for peer in results.peers() {
            let Some(ratio) = workload.advantage_over(&peer.name).filter(|ratio| *ratio < 1.0) else {
                continue;
            };
            let headline = |spread: Option<super::results::Spread>| {
                spread.map_or(String::new(), |spread| with_unit(&workload.headline, spread.median))
            };
            line(
                text,
                format_args!(
                    "- [{0}](#{0}): {1} {2}, Everturn {3} ({4})",
                    workload.name,
                    peer.title,
                    headline(workload.headline_of(&peer.name)),
                    headline(workload.reference(&workload.headline)),
                    times(ratio)
                ),
            );
            found = true;
        }
    }
    if !found {
        line(text, format_args!("Behind no peer in any workload of this run."));
    }
    line(text, format_args!(""));
}

fn verdicts(text: &mut String, results: &Results) {
    line(text, format_args!("## Bars\n"));
    line(text, format_args!("| workload | measured | bar | |\n| --- | --- | --- | --- |"));
    for verdict in bars::judge(results) {
        let word = if verdict.pass { "met" } else { "**missed**" };
        line(
            text,
            format_args!("| {} | {} | {} | {word} |", verdict.workload, verdict.measured, verdict.bar),
        );
    }
    line(text, format_args!(""));
}

fn details(text: &mut String, results: &Results, workload: &WorkloadResult) {
    line(text, format_args!("### {}\n\n{} ({}).\n", workload.name, workload.about, workload.sizes_as_text()));
    let shown = results.systems.iter().filter(|system| workload.headline_of(&system.name).is_some()).count();
    if shown > 1 {
        line(text, format_args!("![{0}](performance/{0}.svg)\n", workload.name));
    }
    line(
        text,
        format_args!("| system | median | spread | ratio | further |\n| --- | --- | --- | --- | --- |"),
    );
    for system in &results.systems {
        if let Some(outcome) = workload.outcomes.get(&system.name) {
            line(text, format_args!("| {} | {} |", system.title, detail_cells(workload, system, outcome)));
        }
    }
    let bare: Vec<String> = workload
        .bare_disk
        .figures
        .keys()
        .filter_map(|figure| {
            Some(format!("{} {}", figure, with_unit(figure, workload.bare_disk.spread(figure)?.median)))
        })
        .collect();
    line(text, format_args!("| bare disk | | | | {} |\n", bare.join(", ")));
}

fn detail_cells(workload: &WorkloadResult, system: &MeasuredSystem, outcome: &SystemOutcome) -> String {
    if let Some(reason) = &outcome.failed {
        return format!("failed | | | {reason}");
    }
    if let Some(reason) = &outcome.absent {
        return format!("absent | | | {reason}");
    }
    let Some(spread) = outcome.spread(&workload.headline) else { return "- | | |".to_owned() };
    let unit = |value| with_unit(&workload.headline, value);
    let mark = if outcome.stopped_rounds > 0 { "*" } else { "" };
    let ratio = workload.advantage_over(&system.name).filter(|_| system.name != REFERENCE);
    let further: Vec<String> = workload
        .further
        .iter()
        .filter_map(|name| Some(format!("{name} {}", with_unit(name, outcome.spread(name)?.median))))
        .collect();
    format!(
        "{}{mark} | {} to {} | {} | {}",
        unit(spread.median),
        unit(spread.min),
        unit(spread.max),
        ratio.map_or(String::new(), times),
        further.join(", ")
    )
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::sample;
    use super::*;

    #[test]
    fn the_document_says_where_when_and_what_was_measured() {
        let text = document(&sample());
        for part in ["2026-01-02", "0123456789ab", "2 cores (a processor)", "ext4", "median of 3 rounds"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn losses_are_listed_and_printed_bold() {
        let text = document(&sample());
        assert!(text.contains("- [children](#children): SLOW 1,250/s, Everturn 1,000/s (0.80 x)"), "{text}");
        assert!(text.contains("1,250/s (**0.80 x**)"), "{text}");
        assert!(text.contains("50.000 ms* (100 x)"), "{text}");
    }

    #[test]
    fn no_loss_is_said_in_words() {
        let mut results = sample();
        results.workloads.truncate(1);
        assert!(document(&results).contains("Behind no peer"));
    }

    #[test]
    fn absent_systems_have_their_reason() {
        assert!(document(&sample()).contains("**Absent:** it does not build"));
    }

    #[test]
    fn the_readme_block_names_the_best_peer() {
        let block = readme_block(&sample());
        assert!(
            block.contains("| one step after the other | 0.500 ms | 50.000 ms (SLOW) | 100 x |"),
            "{block}"
        );
        assert!(block.contains("docs/performance/overview.svg"));
        assert!(block.contains("`./bench/run` makes these figures"));
    }

    #[test]
    fn only_the_marked_block_of_the_readme_is_rewritten() {
        let readme = format!("before\n{README_BEGIN}\nold\n{README_END}\nafter\n");
        let once = with_block(&readme, "new\n").unwrap();
        assert_eq!(once, format!("before\n{README_BEGIN}\nnew\n{README_END}\nafter\n"));
        assert_eq!(with_block(&once, "new\n").unwrap(), once);
        assert!(with_block("no marks", "new\n").is_err());
    }
}
