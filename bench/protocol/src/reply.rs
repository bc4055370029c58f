//! What a measuring process answers.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::{BenchError, BenchResult};

/// Named numbers. The unit is the last part of the name: `step_s`, `latest_ms`, `activities_per_s`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// These figures.
    pub fn of<const N: usize>(figures: [(&str, f64); N]) -> Self {
        Self(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Adds a figure.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// The figure of this name.
    ///
    /// Fails if it was not measured.
    pub fn get(&self, name: &str) -> BenchResult<f64> {
        self.0.get(name).copied().ok_or_else(|| format!("the measurement lacks '{name}'").into())
    }

    /// All figures, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// The answer to one request; [`Display`](fmt::Display) writes it as one line of JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum MeasureReply {
    /// The workload ran.
    Measured {
        /// Its figures.
        figures: Figures,
        /// True if its time was up before its end: then rates are those until then.
        stopped: bool,
    },
    /// This system does not have the workload, for this reason.
    Absent(String),
}

impl MeasureReply {
    /// The reply of a workload that ran to its end.
    pub fn whole(figures: Figures) -> Self {
        Self::Measured { figures, stopped: false }
    }

    /// Reads the last line of a program's output.
    ///
    /// Fails if it is not a reply.
    pub fn parse(output: &str) -> BenchResult<Self> {
        let line = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let bad = || -> BenchError { format!("no reply: '{line}'").into() };
        let reply: Value = serde_json::from_str(line).map_err(|_| bad())?;
        if let Some(reason) = reply.get("absent").and_then(Value::as_str) {
            return Ok(Self::Absent(reason.to_owned()));
        }
        let mut figures = Figures::default();
        for (name, value) in reply.get("figures").and_then(Value::as_object).ok_or_else(bad)? {
            figures.set(name, value.as_f64().ok_or_else(bad)?);
        }
        let stopped = reply.get("stopped").and_then(Value::as_bool).unwrap_or(false);
        Ok(Self::Measured { figures, stopped })
    }
}

impl fmt::Display for MeasureReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut object = Map::new();
        match self {
            Self::Absent(reason) => {
                object.insert("absent".to_owned(), Value::from(reason.as_str()));
            }
            Self::Measured { figures, stopped } => {
                let figures = figures.iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
                object.insert("figures".to_owned(), Value::Object(figures.collect()));
                object.insert("stopped".to_owned(), Value::from(*stopped));
            }
        }
        write!(f, "{}", Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_as_they_were_written() {
        let figures = Figures::of([("step_s", 0.000_25), ("warm", 10_000.0)]);
        let replies = [
            MeasureReply::Measured { figures: figures.clone(), stopped: true },
            MeasureReply::whole(figures),
            MeasureReply::Absent("it has no \"timers\"".to_owned()),
        ];
        for reply in replies {
            assert_eq!(reply.to_string().lines().count(), 1);
            assert_eq!(MeasureReply::parse(&format!("a log line\n{reply}\n\n")).unwrap(), reply);
        }
    }

    #[test]
    fn output_without_a_reply_is_an_error() {
        for output in ["", "nonsense", "{}", r#"{"figures":{"step_s":"fast"}}"#] {
            assert!(MeasureReply::parse(output).is_err(), "{output}");
        }
    }

    #[test]
    fn a_figure_that_was_not_measured_is_an_error() {
        assert!(Figures::of([("step_s", 1.0)]).get("seconds").is_err());
    }
}
