//! The command line.

use std::path::PathBuf;

use everturn_bench_protocol::{MEASURE_FLAG, MeasureRequest};

use crate::driver::{PEERS, RunOptions, WORKLOADS};
use crate::two_processes::SERVE_FLAG;

const USAGE: &str = "\
Measures durable execution: Everturn, the bare disk, and with --peers other engines, all in turn in the same run.
Prints a table, says which bars were met, and writes the results as JSON and as plots.

usage: bench/run [--quick] [--only WORKLOAD]... [--peers NAMES] [--rounds N] [--out FOLDER]
       bench/run --report FILE
       bench/run --help

  --quick          fewer rounds and smaller workloads: at most 6 minutes after the builds
                   (without it: at most 60 minutes)
  --only WORKLOAD  only this workload, or those whose names begin with it; may be given several times
  --peers NAMES    only these peers, separated by commas; 'none' for Everturn alone
                   (default: all with bench/run, none with cargo run -p everturn-bench)
  --rounds N       how often each system runs each workload (default 5, with --quick 3)
  --out FOLDER     where results.json and the plots go (default: bench-results in the target folder)
  --report FILE    measures nothing: writes docs/performance.md, its plots and the figures in README.md from FILE
  --help           this text";

/// What the program was asked to do.
pub(crate) enum BenchTask {
    Help,
    /// Plan, measure and report.
    Run(RunOptions),
    /// Write the documents from these results.
    Report(PathBuf),
    /// As a process of a run, measure one workload.
    Measure(MeasureRequest),
    /// As a process beside it, run a runtime on this database.
    Serve(PathBuf),
}

pub(crate) fn help() -> String {
    let mut text = format!("{USAGE}\n\npeers: {}\n\nworkloads:\n", PEERS.join(", "));
    for workload in WORKLOADS {
        text.push_str(&format!("  {:<17} {}\n", workload.name, workload.about));
    }
    text
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<BenchTask, String> {
    let mut arguments = arguments.peekable();
    if arguments.peek().is_some_and(|first| first == MEASURE_FLAG) {
        return MeasureRequest::parse(arguments).map(BenchTask::Measure).map_err(|error| error.to_string());
    }
    let mut options = RunOptions::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(BenchTask::Help),
            "--quick" => options.quick = true,
            "--only" => options.only.push(workload_name(value()?)?),
            "--peers" => options.peers = peers(&value()?)?,
            "--rounds" => options.rounds = Some(rounds(&value()?)?),
            "--out" => options.out = Some(PathBuf::from(value()?)),
            "--report" => return Ok(BenchTask::Report(PathBuf::from(value()?))),
            SERVE_FLAG => return Ok(BenchTask::Serve(PathBuf::from(value()?))),
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(BenchTask::Run(options))
}

fn workload_name(name: String) -> Result<String, String> {
    if WORKLOADS.iter().any(|workload| workload.name.starts_with(&name)) {
        return Ok(name);
    }
    let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    Err(format!("no workload '{name}', there are: {}", names.join(", ")))
}

fn peers(list: &str) -> Result<Vec<String>, String> {
    match list {
        "all" => return Ok(PEERS.iter().map(|&peer| peer.to_owned()).collect()),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let peers: Vec<String> = list.split(',').map(|peer| peer.trim().to_owned()).collect();
    match peers.iter().find(|peer| !PEERS.contains(&peer.as_str())) {
        Some(unknown) => Err(format!("no peer '{unknown}', there are: {}", PEERS.join(", "))),
        None => Ok(peers),
    }
}

fn rounds(number: &str) -> Result<usize, String> {
    number.parse().ok().filter(|&rounds| rounds > 0).ok_or_else(|| format!("no number of rounds: '{number}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<BenchTask, String> {
        parse(arguments.iter().map(|&argument| argument.to_owned()))
    }

    fn options(arguments: &[&str]) -> RunOptions {
        match parsed(arguments) {
            Ok(BenchTask::Run(options)) => options,
            _ => panic!("{arguments:?} should measure"),
        }
    }

    #[test]
    fn options_are_read() {
        let options =
            options(&["--quick", "--only", "chain", "--only", "throughput", "--peers", "dbos,durare"]);
        assert!(options.quick);
        assert_eq!(options.only, ["chain", "throughput"]);
        assert_eq!(options.peers, ["dbos", "durare"]);
    }

    #[test]
    fn the_last_choice_of_peers_counts() {
        assert_eq!(options(&["--peers", "all"]).peers, PEERS);
        assert!(options(&["--peers", "all", "--peers", "none"]).peers.is_empty());
        assert!(options(&[]).peers.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, mistake) in [
            (&["--only", "chian"][..], "no workload 'chian'"),
            (&["--peers", "dbso"], "no peer 'dbso'"),
            (&["--rounds", "0"], "no number of rounds"),
            (&["--quik"], "unknown argument '--quik'"),
            (&["--report"], "--report needs a value"),
        ] {
            let message = parsed(arguments).err().unwrap_or_default();
            assert!(message.contains(mistake), "{arguments:?}: {message}");
        }
    }

    #[test]
    fn help_names_every_workload_and_peer() {
        let help = help();
        assert!(WORKLOADS.iter().all(|workload| help.contains(workload.name)));
        assert!(PEERS.iter().all(|peer| help.contains(peer)));
    }
}
