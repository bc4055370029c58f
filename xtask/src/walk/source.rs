//! Which written function a name and a line of the debug information belong to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The sources that a recording refers to, read once.
pub(crate) struct Sources {
    root: PathBuf,
    files: BTreeMap<String, Vec<String>>,
}

impl Sources {
    pub(crate) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), files: BTreeMap::new() }
    }

    /// The function as it is written, `file:Type::function`; none if a derive wrote it. Closures and the state machines of
    /// async functions belong to the function that they stand in, and all instances of a generic function are one.
    pub(crate) fn function(
        &mut self,
        symbol: &str,
        file: &str,
        line: usize,
    ) -> Result<Option<String>, String> {
        if !self.files.contains_key(file) {
            let text = std::fs::read_to_string(self.root.join(file))
                .map_err(|error| format!("{file} cannot be read: {error}"))?;
            self.files.insert(file.to_owned(), text.lines().map(str::to_owned).collect());
        }
        let lines = self.files.get(file).map_or(&[][..], Vec::as_slice);
        Ok(written(lines, symbol, line).map(|function| format!("{file}:{function}")))
    }
}

/// `Type::function` for a symbol at this line, counted from 1.
fn written(lines: &[String], symbol: &str, line: usize) -> Option<String> {
    let (name, is_inside) = name_of(symbol);
    let is_start = |(_, text): &(usize, &String)| defines(text, &name);
    let at = line.saturating_sub(1);
    let text = lines.get(at).map_or("", String::as_str);
    if is_derive(lines, at) {
        return None;
    }
    let before = || lines.iter().enumerate().take(at + 1).rev().find(is_start);
    let after = || lines.iter().enumerate().skip(at).find(is_start);
    // An attribute macro leaves its own line in the functions that it rewrites.
    let found = if is_inside || defines(text, &name) { before() } else { after().or_else(before) };
    let Some((start, text)) = found else { return Some(name) };
    let owner = lines.iter().take(start).rev().find(|line| !line.is_empty() && indent(line) < indent(text));
    Some(match owner.and_then(|line| type_of(line)) {
        Some(owner) => format!("{owner}::{name}"),
        None => name,
    })
}

/// The name of the function of a symbol, and whether the symbol is only a part of it: a closure or a state machine.
fn name_of(symbol: &str) -> (String, bool) {
    let mut depth = 0_usize;
    let mut path = String::new();
    let mut previous = ' ';
    for character in symbol.chars() {
        match character {
            '<' => depth += 1,
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => path.push(character),
            _ => {}
        }
        previous = character;
    }
    let parts: Vec<&str> = path.split("::").collect();
    let is_part = |part: &&str| part.starts_with("{closure") || part.starts_with("{async");
    let end = parts.iter().position(is_part).unwrap_or(parts.len());
    let name = parts.get(..end).and_then(<[_]>::last).copied().unwrap_or_default();
    (name.to_owned(), end < parts.len())
}

/// Whether a function of this name begins on this line.
fn defines(line: &str, name: &str) -> bool {
    let rest = line.split("fn ").nth(1).and_then(|rest| rest.strip_prefix(name));
    !line.trim_start().starts_with("//") && rest.is_some_and(|rest| rest.starts_with(['(', '<']))
}

/// Whether the line is part of `#[derive(…)]`.
fn is_derive(lines: &[String], at: usize) -> bool {
    for line in lines.iter().take(at + 1).rev().map(|line| line.trim_start()) {
        if line.starts_with("#[derive(") {
            return true;
        }
        if line.ends_with([';', '}', '{', ']']) && !line.starts_with("#[") {
            return false;
        }
        if line.starts_with("pub ") || line.starts_with("fn ") || line.starts_with("///") {
            return false;
        }
    }
    false
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The type of an `impl` block, or the trait of a `trait` block, that begins on this line.
fn type_of(line: &str) -> Option<String> {
    let words = line.trim_start();
    let words = words.split_once("trait ").map(|(_, rest)| rest).or_else(|| words.strip_prefix("impl"))?;
    // Without the parameters of `impl<…>`.
    let words = if words.starts_with('<') { after_parameters(words) } else { words };
    let words = words.split_once(" for ").map_or(words, |(_, rest)| rest).trim_start();
    let path: String = words.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect();
    path.rsplit("::").next().filter(|name| !name.is_empty()).map(|name| name.trim_end_matches(':').to_owned())
}

fn after_parameters(text: &str) -> &str {
    let mut depth = 0_usize;
    for (index, character) in text.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return text.get(index + 1..).unwrap_or_default();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{name_of, written};

    const FILE: &str = "\
#[derive(Debug, Clone)]
pub struct Pair<T>(T);

impl<T: Into<u8>> Pair<T> {
    fn first(&self) -> u8 {
        self.0
    }
}

#[async_trait]
impl<T> super::Store for Pair<T> {
    async fn commit(
        &self,
    ) {
        later(|| 1).await
    }
}

fn later() {}
";

    fn at(symbol: &str, line: usize) -> Option<String> {
        let lines: Vec<String> = FILE.lines().map(str::to_owned).collect();
        written(&lines, symbol, line)
    }

    #[test]
    fn symbols_belong_to_the_function_they_are_written_in() {
        assert_eq!(at("a::Pair<u8>::first<u8>", 5).as_deref(), Some("Pair::first"));
        assert_eq!(at("a::later", 19).as_deref(), Some("later"));
        assert_eq!(
            at("a::{impl#1}::commit::{async_block#0}::{closure#0}<u8>", 15).as_deref(),
            Some("Pair::commit")
        );
    }

    #[test]
    fn a_function_rewritten_by_an_attribute_is_found_below_it() {
        assert_eq!(at("a::{impl#1}::commit<u8>", 10).as_deref(), Some("Pair::commit"));
    }

    #[test]
    fn derived_functions_are_not_written() {
        assert_eq!(at("a::{impl#2}::fmt<u8>", 1), None);
    }

    #[test]
    fn generic_arguments_are_no_part_of_the_name() {
        assert_eq!(name_of("a::b<c::{closure#0}, fn() -> d::E<f>>"), ("b".to_owned(), false));
        assert_eq!(name_of("a::b::{async_fn#0}<c>"), ("b".to_owned(), true));
    }
}
