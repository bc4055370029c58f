//! What a recording amounts to.

use std::collections::{BTreeMap, BTreeSet};

use super::recording::{Entry, Symbol};
use super::source::Sources;

/// The folder of the functions that count.
const COUNTED: &str = "crates/";

/// The functions of this repository that were entered, and the calls between them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// In the order in which they were entered first.
    pub(crate) functions: Vec<String>,
    /// Caller and called function. The caller is empty where a library or a thread calls.
    pub(crate) calls: BTreeSet<(String, String)>,
}

impl Trace {
    pub(crate) fn of(entries: &[Entry<'_>], sources: &mut Sources) -> Result<Self, String> {
        let mut trace = Self::default();
        let mut seen = BTreeSet::new();
        let mut written = |symbol: &Symbol| sources.function(&symbol.name, &symbol.file, symbol.line);
        for Entry { called, caller } in entries.iter().filter(|entry| entry.called.file.starts_with(COUNTED))
        {
            let Some(called) = written(called)? else { continue };
            let caller = caller.map(&mut written).transpose()?.flatten();
            if seen.insert(called.clone()) {
                trace.functions.push(called.clone());
            }
            if caller.as_ref() != Some(&called) {
                trace.calls.insert((caller.unwrap_or_default(), called));
            }
        }
        Ok(trace)
    }

    /// The functions that lead on: they call another function of this repository. The others return to their caller.
    pub(crate) fn path(&self) -> Vec<&str> {
        let callers: BTreeSet<&str> = self.calls.iter().map(|(caller, _)| caller.as_str()).collect();
        self.functions.iter().map(String::as_str).filter(|function| callers.contains(function)).collect()
    }

    /// How many functions of each crate were entered.
    pub(crate) fn by_crate(&self) -> BTreeMap<&str, usize> {
        let mut crates = BTreeMap::new();
        for function in &self.functions {
            *crates.entry(function.split("/src/").next().unwrap_or_default()).or_default() += 1;
        }
        crates
    }
}

/// The files of these functions.
pub(crate) fn files<'a>(functions: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    functions.into_iter().filter_map(|function| function.split_once(':')).map(|(file, _)| file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_only_returns_is_not_on_the_path() {
        let calls = [("", "a.rs:start"), ("a.rs:start", "b.rs:write"), ("b.rs:write", "b.rs:length")];
        let trace = Trace {
            functions: calls.iter().map(|(_, called)| (*called).to_owned()).collect(),
            calls: calls
                .iter()
                .map(|(caller, called)| ((*caller).to_owned(), (*called).to_owned()))
                .collect(),
        };
        assert_eq!(trace.path(), ["a.rs:start", "b.rs:write"]);
        assert_eq!(files(trace.path()).len(), 2);
    }
}
