//! The lines that a proof prints, for people and for `cargo xtask proof`.

use std::fmt;
use std::str::FromStr;

use crate::counts::Counts;

/// The progress of a proof.
#[derive(Debug, Clone, PartialEq)]
pub enum ProofState {
    /// It is running.
    Running {
        /// How much of it is done.
        percent: u64,
    },
    /// All its cases have run.
    Done {
        /// The seed of the first case.
        seed: u64,
        /// How long all cases took.
        seconds: f64,
    },
    /// A case failed.
    Broken {
        /// Its seed.
        seed: u64,
        /// The command that runs this case again.
        command: String,
    },
}

/// One line that a proof prints.
///
/// ```
/// use everturn_proof::{Counts, ProofReport, ProofState};
///
/// let line = "proof R2 r2_power_cuts: 40 %: 12 power cuts, 5 instances";
/// let report: ProofReport = line.parse().unwrap();
/// assert_eq!(report.state, ProofState::Running { percent: 40 });
/// assert_eq!(report.counts.get("power cuts"), 12);
/// assert_eq!(report.to_string(), line);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ProofReport {
    /// The proof's number: R2.
    pub id: String,
    /// Its test.
    pub test: String,
    /// Its progress.
    pub state: ProofState,
    /// What it has counted so far.
    pub counts: Counts,
}

impl fmt::Display for ProofReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, test, state, counts } = self;
        write!(f, "proof {id} {test}: ")?;
        match state {
            ProofState::Running { percent } => write!(f, "{percent} %: {counts}"),
            ProofState::Done { seed, seconds } => {
                write!(f, "done in {seconds:.1} s from seed {seed}: {counts}")
            }
            ProofState::Broken { seed, command } => write!(f, "broken by seed {seed}: {command}"),
        }
    }
}

impl FromStr for ProofReport {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (name, rest) = line.strip_prefix("proof ").ok_or(())?.split_once(": ").ok_or(())?;
        let (id, test) = name.split_once(' ').ok_or(())?;
        let (state, counts) = if let Some(rest) = rest.strip_prefix("broken by seed ") {
            let (seed, command) = rest.split_once(": ").ok_or(())?;
            let command = command.to_owned();
            (ProofState::Broken { seed: number(seed)?, command }, Counts::default())
        } else if let Some(rest) = rest.strip_prefix("done in ") {
            let (seconds, rest) = rest.split_once(" s from seed ").ok_or(())?;
            let (seed, counts) = rest.split_once(": ").ok_or(())?;
            let seconds = seconds.parse().map_err(drop)?;
            (ProofState::Done { seed: number(seed)?, seconds }, parse_counts(counts)?)
        } else {
            let (percent, counts) = rest.split_once(" %: ").ok_or(())?;
            (ProofState::Running { percent: number(percent)? }, parse_counts(counts)?)
        };
        Ok(Self { id: id.to_owned(), test: test.to_owned(), state, counts })
    }
}

fn number(text: &str) -> Result<u64, ()> {
    text.parse().map_err(drop)
}

fn parse_counts(text: &str) -> Result<Counts, ()> {
    let mut counts = Counts::default();
    for part in text.split(", ").filter(|part| !part.is_empty()) {
        let (count, name) = part.split_once(' ').ok_or(())?;
        counts.add(name, number(count)?);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::{Counts, ProofReport, ProofState};

    #[test]
    fn every_line_reads_as_it_was_written() {
        let mut counts = Counts::default();
        counts.add("seeds", 500);
        counts.add("faults that took effect", 12);
        let states = [
            (ProofState::Running { percent: 7 }, counts.clone()),
            (ProofState::Done { seed: 3, seconds: 12.5 }, counts),
            (
                ProofState::Broken { seed: 9, command: "A=1 cargo test x -- --nocapture".into() },
                Counts::default(),
            ),
        ];
        for (state, counts) in states {
            let report = ProofReport { id: "R1".into(), test: "r1_faults".into(), state, counts };
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("test r1_faults ... ok".parse::<ProofReport>(), Err(()));
    }
}
