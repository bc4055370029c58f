//! The command line.

use crate::catalogue::PROOFS;
use crate::walk::WalkOrder;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask proof [--long MINUTES] [--seed N] [--only R2]...
       cargo xtask mutants [--sample N] [--seed S] [--only TEXT]
       cargo xtask walk [--optimised] [--calls] [--check]
       cargo xtask api [--update]
       cargo xtask type-names

cargo xtask proof

Runs the proofs of GUARANTEES.md and prints their counts. Without options each runs as it does in scripts/test.

  --long MINUTES  runs this long altogether: first what scripts/test runs, then each proof for an equal share of the
                  time, on new seeds; writes docs/reliability.md
  --seed N        the first seed of each proof; default 1, in the long form taken from the clock
  --only R2       runs only this proof; may be given more than once

cargo xtask mutants
Makes small changes in core, provider, SQLite and runtime, one at a time, and runs the fast tests with each; prints the score
and the changes that no test noticed, and writes docs/reliability.md. Uses cargo-mutants, which it installs if it is missing,
and copies of the tree below target/mutants.

  --sample N      tries this many mutants that compile; default 120
  --seed S        chooses the sample; default 1
  --only TEXT     tries all mutants with this text in their name instead, and writes nothing

cargo xtask walk
Records the calls of one chained step (start, turn, activity, turn, end) and lists the functions of this repository that it
enters, in the order of their first entry; those that only return to their caller are indented and are no hops. Needs gdb
with Python and a C compiler.

  --optimised     records the program as users build it: functions that the compiler inlines are no calls
  --calls         lists also each call, with its caller
  --check         fails if there are too many hops or files

cargo xtask api
Compares the public surface of each published crate with its snapshot in docs/api.

  --update        writes the snapshots

cargo xtask type-names
Lists the type names that are defined more than once in the workspace.";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum XtaskCommand {
    Help,
    Proof(ProofOrder),
    Mutants(MutantsOrder),
    Walk(WalkOrder),
    Api { is_update: bool },
    TypeNames,
}

/// Which proofs to run, and how long.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProofOrder {
    pub(crate) long_minutes: Option<u64>,
    pub(crate) seed: Option<u64>,
    pub(crate) only: Vec<String>,
}

/// Which mutants to try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MutantsOrder {
    /// How many viable ones.
    pub(crate) sample: u64,
    pub(crate) seed: u64,
    /// All mutants with this text in their name, instead of a sample.
    pub(crate) only: Option<String>,
}

impl Default for MutantsOrder {
    fn default() -> Self {
        Self { sample: 120, seed: 1, only: None }
    }
}

pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<XtaskCommand, String> {
    match words.next().as_deref() {
        Some("proof") => proof(words),
        Some("mutants") => mutants(words),
        Some("walk") => walk(words),
        Some("api") => api(words),
        Some("type-names") => match words.next().as_deref() {
            None => Ok(XtaskCommand::TypeNames),
            Some("--help" | "-h") => Ok(XtaskCommand::Help),
            Some(other) => Err(format!("there is no option {other:?}")),
        },
        Some("--help" | "-h") => Ok(XtaskCommand::Help),
        Some(other) => Err(format!("there is no command {other:?}")),
        None => Err("no command".to_owned()),
    }
}

fn proof(mut words: impl Iterator<Item = String>) -> Result<XtaskCommand, String> {
    let mut order = ProofOrder::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--help" | "-h" => return Ok(XtaskCommand::Help),
            "--long" => order.long_minutes = Some(positive(&word, &value()?)?),
            "--seed" => order.seed = Some(number(&word, &value()?)?),
            "--only" => {
                let id = value()?.to_uppercase();
                if !PROOFS.iter().any(|proof| proof.id == id) {
                    let all: Vec<_> = PROOFS.iter().map(|proof| proof.id).collect();
                    return Err(format!("there is no proof {id}; there are {}", all.join(", ")));
                }
                order.only.push(id);
            }
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    Ok(XtaskCommand::Proof(order))
}

fn mutants(mut words: impl Iterator<Item = String>) -> Result<XtaskCommand, String> {
    let mut order = MutantsOrder::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--help" | "-h" => return Ok(XtaskCommand::Help),
            "--sample" => order.sample = positive(&word, &value()?)?,
            "--seed" => order.seed = number(&word, &value()?)?,
            "--only" => order.only = Some(value()?),
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    Ok(XtaskCommand::Mutants(order))
}

fn walk(words: impl Iterator<Item = String>) -> Result<XtaskCommand, String> {
    let mut order = WalkOrder::default();
    for word in words {
        match word.as_str() {
            "--help" | "-h" => return Ok(XtaskCommand::Help),
            "--optimised" => order.is_optimised = true,
            "--calls" => order.shows_calls = true,
            "--check" => order.is_check = true,
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    Ok(XtaskCommand::Walk(order))
}

fn api(words: impl Iterator<Item = String>) -> Result<XtaskCommand, String> {
    let mut is_update = false;
    for word in words {
        match word.as_str() {
            "--help" | "-h" => return Ok(XtaskCommand::Help),
            "--update" => is_update = true,
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    Ok(XtaskCommand::Api { is_update })
}

fn number(option: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{option} needs a whole number, not {text:?}"))
}

fn positive(option: &str, text: &str) -> Result<u64, String> {
    match number(option, text)? {
        0 => Err(format!("{option} needs at least 1")),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::{MutantsOrder, ProofOrder, XtaskCommand, parse};
    use crate::walk::WalkOrder;

    fn parsed(line: &str) -> Result<XtaskCommand, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_say_what_to_run() {
        let order =
            ProofOrder { long_minutes: Some(90), seed: Some(7), only: vec!["R2".into(), "R13".into()] };
        assert_eq!(parsed("proof --long 90 --seed 7 --only r2 --only R13"), Ok(XtaskCommand::Proof(order)));
        assert_eq!(parsed("proof"), Ok(XtaskCommand::Proof(ProofOrder::default())));
        assert_eq!(parsed("api --update"), Ok(XtaskCommand::Api { is_update: true }));
        let walk = WalkOrder { is_check: true, ..WalkOrder::default() };
        assert_eq!(parsed("walk --check"), Ok(XtaskCommand::Walk(walk)));
        let mutants = MutantsOrder { sample: 200, seed: 7, only: None };
        assert_eq!(parsed("mutants --sample 200 --seed 7"), Ok(XtaskCommand::Mutants(mutants)));
        assert_eq!(parsed("proof --seed 7 --help"), Ok(XtaskCommand::Help));
    }

    #[test]
    fn a_wrong_command_line_is_refused_with_a_reason() {
        for (line, reason) in [
            ("", "no command"),
            ("prove", "no command \"prove\""),
            ("proof --long", "--long needs a value"),
            ("proof --long 0", "at least 1"),
            ("proof --seed x", "whole number"),
            ("proof --only R99", "there are R1, R2"),
            ("walk --fast", "no option \"--fast\""),
            ("mutants --sample 0", "at least 1"),
            ("proof --fast", "no option \"--fast\""),
        ] {
            let wrong = parsed(line).unwrap_err();
            assert!(wrong.contains(reason), "{line}: {wrong}");
        }
    }
}
