//! What a proof counts.

use std::fmt;

/// The count of instances that a case had.
pub const INSTANCES: &str = "instances";
/// The count of instances that finished.
pub const FINISHED: &str = "finished";

/// Counts by name, in the order in which they were first added.
///
/// ```
/// use everturn_proof::Counts;
///
/// let mut counts = Counts::default();
/// counts.add("power cuts", 2);
/// counts.add("power cuts", 3);
/// assert_eq!(counts.to_string(), "5 power cuts");
/// ```
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts(Vec<(String, u64)>);

impl Counts {
    /// Adds to a count.
    pub fn add(&mut self, name: &str, count: u64) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((name.to_owned(), count)),
        }
    }

    /// A count; 0 if nothing was added to it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count)
    }

    /// Adds all counts of another.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(name, count)| self.add(name, count));
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, count)) in self.iter().enumerate() {
            let gap = if index == 0 { "" } else { ", " };
            write!(f, "{gap}{count} {name}")?;
        }
        Ok(())
    }
}
