//! The printed table.

use super::bars::{self, Verdict};
use super::results::{MeasuredSystem, Results, SystemOutcome, WorkloadResult};
use super::units::{times, with_unit};
use crate::driver::{REFERENCE, is_volatile};

pub(crate) fn print_head(results: &Results) {
    let machine = &results.machine;
    println!(
        "{}, commit {}, {} cores ({}), {:.0} GB, {}, SQLite {}, {} rounds",
        machine.date,
        machine.commit,
        machine.cores,
        machine.processor,
        machine.memory_gb,
        machine.filesystem,
        machine.sqlite,
        results.rounds
    );
    if is_volatile(&machine.filesystem) {
        println!("WARNING: the target folder is in memory, not on a disk: these figures say nothing");
    }
    if machine.debug_build {
        println!("WARNING: built without --release: these figures say nothing");
    }
    if machine.load_before > 0.5 {
        println!(
            "WARNING: load {:.1} before the run: other processes disturb the figures",
            machine.load_before
        );
    }
    for system in &results.systems {
        match &system.absent {
            Some(reason) => println!("  {:<18} ABSENT: {reason}", system.title),
            None => println!("  {:<18} {}", system.title, system.about),
        }
    }
}

pub(crate) fn print_workload(results: &Results, workload: &WorkloadResult) {
    print!("{}", text_of_workload(&results.systems, workload));
}

fn text_of_workload(systems: &[MeasuredSystem], workload: &WorkloadResult) -> String {
    let mut text = format!("\n{}: {} ({})\n", workload.name, workload.about, workload.sizes_as_text());
    let bare: Vec<String> = ["commit_s", "rows_per_s"]
        .iter()
        .filter_map(|figure| Some(with_unit(figure, workload.bare_disk.spread(figure)?.median)))
        .collect();
    text.push_str(&format!("  {:<18} {} (one row a commit, and 100)\n", "bare disk", bare.join(", ")));
    for system in systems {
        if let Some(outcome) = workload.outcomes.get(&system.name) {
            text.push_str(&format!("  {:<18} {}\n", system.title, row(workload, system, outcome)));
        }
    }
    text
}

fn row(workload: &WorkloadResult, system: &MeasuredSystem, outcome: &SystemOutcome) -> String {
    if let Some(reason) = &outcome.failed {
        return format!("FAILED: {reason}");
    }
    if let Some(reason) = &outcome.absent {
        return format!("absent: {reason}");
    }
    let Some(spread) = outcome.spread(&workload.headline) else { return "not measured".to_owned() };
    let unit = |value| with_unit(&workload.headline, value);
    let mark = if outcome.stopped_rounds > 0 { "*" } else { "" };
    let figure = format!("{}{mark}", unit(spread.median));
    let range = format!("({} .. {})", unit(spread.min), unit(spread.max));
    let ratio = match workload.advantage_over(&system.name) {
        _ if system.name == REFERENCE => String::new(),
        Some(ratio) if ratio < 1.0 && system.is_peer => format!("{} BEHIND", times(ratio)),
        Some(ratio) => times(ratio),
        None => String::new(),
    };
    let further: Vec<String> = workload
        .further
        .iter()
        .filter_map(|name| Some(format!("{name} {}", with_unit(name, outcome.spread(name)?.median))))
        .collect();
    let line = format!("{figure:>12} {range:<27} {ratio:<15} {}", further.join(", "));
    line.trim_end().to_owned()
}

/// Prints which bars were met; false if one was missed.
pub(crate) fn print_bars(results: &Results) -> bool {
    println!(
        "\nratios: how many times as good as this system Everturn (FULL) is, by medians; below 1 it is behind"
    );
    println!("*: stopped before its end; the rate until then counts\n");
    let verdicts = bars::judge(results);
    for Verdict { workload, measured, bar, pass } in &verdicts {
        let word = if *pass { "PASS" } else { "FAIL" };
        println!("{word} {workload:<17} {measured:<58} bar: {bar}");
    }
    let all_met = verdicts.iter().all(|verdict| verdict.pass);
    println!("{}", if all_met { "all bars met" } else { "a bar was missed" });
    all_met
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::sample;
    use super::*;

    #[test]
    fn rows_show_spread_ratio_and_stops() {
        let results = sample();
        let text = text_of_workload(&results.systems, results.workload("chain").unwrap());
        assert!(text.contains("0.500 ms"), "{text}");
        assert!(text.contains("(0.400 ms .. 0.900 ms)"), "{text}");
        assert!(text.contains("50.000 ms* (40.000 ms .. 60.000 ms)"), "{text}");
        assert!(text.contains("100 x"), "{text}");
    }

    #[test]
    fn losses_are_marked() {
        let results = sample();
        let text = text_of_workload(&results.systems, results.workload("children").unwrap());
        assert!(text.contains("0.80 x BEHIND"), "{text}");
    }

    #[test]
    fn failures_and_absences_have_their_reason() {
        let results = sample();
        let (workload, slow) = (results.workload("chain").unwrap(), &results.systems[1]);
        let failed = SystemOutcome { failed: Some("no table".to_owned()), ..SystemOutcome::default() };
        assert_eq!(row(workload, slow, &failed), "FAILED: no table");
        let absent = SystemOutcome { absent: Some("no timers".to_owned()), ..SystemOutcome::default() };
        assert_eq!(row(workload, slow, &absent), "absent: no timers");
    }
}
