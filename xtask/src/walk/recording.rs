//! What the recorder wrote, as calls between functions of the program.

use std::collections::BTreeMap;

/// A function of this repository, as the debug information names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: usize,
}

/// The functions of this repository by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Symbols(BTreeMap<u64, (u64, Symbol)>);

impl Symbols {
    /// Reads a list of functions: start, end, name, file and line, separated by tabs.
    pub(crate) fn read(list: &str) -> Result<Self, String> {
        let mut symbols = BTreeMap::new();
        for line in list.lines() {
            let read = || {
                let [start, end, name, file, at] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
                let symbol = Symbol { name: name.to_owned(), file: file.to_owned(), line: at.parse().ok()? };
                Some((start.parse().ok()?, (end.parse().ok()?, symbol)))
            };
            let (start, rest) =
                read().ok_or_else(|| format!("gdb wrote a line that is no function: {line}"))?;
            symbols.insert(start, rest);
        }
        Ok(Self(symbols))
    }

    /// The function that has this place, if it is one of this repository.
    pub(crate) fn at(&self, place: u64) -> Option<&Symbol> {
        let (_, (end, symbol)) = self.0.range(..=place).next_back()?;
        (place < *end).then_some(symbol)
    }

    /// The first address of the function of this name, and the address behind its last one.
    pub(crate) fn range(&self, name: &str) -> Option<(u64, u64)> {
        self.0.iter().find(|(_, (_, symbol))| symbol.name == name).map(|(start, (end, _))| (*start, *end))
    }
}

/// The entry of a function, and the nearest function of this repository that was waiting for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) called: &'a Symbol,
    pub(crate) caller: Option<&'a Symbol>,
}

/// The entries of functions of this repository, in their order. `recording` is what `recorder.c` describes.
pub(crate) fn entries<'a>(recording: &[u8], symbols: &'a Symbols) -> Vec<Entry<'a>> {
    let mut words =
        recording.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let mut entries = Vec::new();
    while let Some(count) = words.next() {
        let places: Vec<u64> = words.by_ref().take(count as usize).collect();
        let Some((place, callers)) = places.split_first() else { continue };
        let Some(called) = symbols.at(*place) else { continue };
        // A return address is behind the call; the call may be the last instruction of its function.
        let caller = callers.iter().find_map(|place| symbols.at(place.saturating_sub(1)));
        entries.push(Entry { called, caller });
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::{Symbols, entries};

    #[test]
    fn entries_name_the_nearest_caller_of_this_repository() {
        let symbols =
            Symbols::read("100\t120\ta::one\tcrates/a.rs\t3\n200\t220\ta::two\tcrates/a.rs\t9\n").unwrap();
        // Foreign code at 150 calls two; one is further out.
        let words: [u64; 7] = [3, 205, 150, 120, 1, 150, 0];
        let recording: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = entries(&recording, &symbols);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].called.name, "a::two");
        assert_eq!(found[0].caller.map(|symbol| symbol.name.as_str()), Some("a::one"));
        assert_eq!(symbols.range("a::two"), Some((200, 220)));
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        assert!(Symbols::read("100\t120\ta::one").unwrap_err().contains("no function"));
    }
}
