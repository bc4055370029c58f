//! What a measurement says, on its way from the measuring process to the judging one.

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

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().ok_or_else(|| "nothing was measured".into())
}
