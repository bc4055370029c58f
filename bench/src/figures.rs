//! The result of a measurement, passed from the measuring process to the comparing one.

use std::collections::BTreeMap;
use std::fmt;

use crate::Result;

/// Named numbers; as text one `name=value` a line.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(crate) fn of<const N: usize>(figures: [(&str, f64); N]) -> Self {
        Self(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Result<f64> {
        self.0.get(name).copied().ok_or_else(|| format!("the measurement lacks '{name}'").into())
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut figures = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once('=').ok_or_else(|| format!("no figure: '{line}'"))?;
            figures.insert(name.to_owned(), value.parse()?);
        }
        Ok(Self(figures))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "{name}={value}"))
    }
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().ok_or_else(|| "nothing was measured".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_were_written() {
        let sent = Figures::of([("step_s", 0.000_25), ("warm", 10_000.0)]);
        let received = Figures::parse(&sent.to_string()).unwrap();
        assert_eq!(received.get("step_s").unwrap(), 0.000_25);
        assert_eq!(received.get("warm").unwrap(), 10_000.0);
        assert!(received.get("other").is_err());
        assert!(Figures::parse("nonsense").is_err());
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]).unwrap(), 5.0);
        assert!(median(Vec::new()).is_err());
    }
}
