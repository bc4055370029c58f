//! A type name means one thing in the workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names that may be defined more than once, with the reason.
const ALLOWED: &[(&str, &str)] = &[];

/// Prints each type name that is defined more than once, with the places. False if there is one that is not allowed.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let twins = twins(root)?;
    twins.iter().for_each(|line| println!("{line}"));
    println!("{} type names are defined more than once", twins.len());
    Ok(twins.is_empty())
}

/// A line for each name that is defined more than once and is not allowed to be.
fn twins(root: &Path) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for folder in source_folders(root)? {
        collect(&folder, &mut files)?;
    }
    files.sort();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
        let shown = file.strip_prefix(root).unwrap_or(file).display();
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = defined(line) {
                places.entry(name.to_owned()).or_default().push(format!("{shown}:{}", index + 1));
            }
        }
    }
    let is_allowed = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    let twins = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !is_allowed(name) && !are_of_providers(places));
    Ok(twins.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect())
}

/// Whether a type is defined once in each provider with tables, in files of the same name: there it is the same thing.
fn are_of_providers(places: &[String]) -> bool {
    let within = |provider: &str| {
        let folder = format!("crates/{provider}/src/");
        let file = places.iter().find_map(|place| place.strip_prefix(&folder))?;
        file.split_once(':').map(|(file, _line)| file)
    };
    places.len() == 2 && within("sqlite").is_some_and(|file| within("postgres") == Some(file))
}

/// The `src` folders of all packages.
fn source_folders(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut folders = vec![root.join("bench/src"), root.join("xtask/src")];
    for group in ["crates", "tests"] {
        let group = root.join(group);
        for entry in group.read_dir().map_err(|error| unreadable(&group, &error))? {
            folders.push(entry.map_err(|error| unreadable(&group, &error))?.path().join("src"));
        }
    }
    Ok(folders)
}

/// All source files below the folder, without those of unit tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in folder.read_dir().map_err(|error| unreadable(folder, &error))? {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

/// The type that is defined on this line, at the top level of its file.
fn defined(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
        None => rest.trim_start(),
    });
    let (keyword, rest) = line.strip_prefix("unsafe ").unwrap_or(line).split_once(' ')?;
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&keyword);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.get(..end).filter(|name| is_type && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{are_of_providers, defined, twins};

    #[test]
    fn type_names_are_unique_in_the_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let twins = twins(root).unwrap();
        assert!(
            twins.is_empty(),
            "a type name means one thing; these are defined more than once:\n{}",
            twins.join("\n")
        );
    }

    #[test]
    fn providers_may_name_a_type_alike_in_files_of_the_same_name() {
        let places = |places: &[&str]| places.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>();
        let alike = ["crates/postgres/src/submit.rs:3", "crates/sqlite/src/submit.rs:8"];
        assert!(are_of_providers(&places(&alike)));
        assert!(!are_of_providers(&places(&["crates/postgres/src/a.rs:3", "crates/sqlite/src/b.rs:8"])));
        assert!(!are_of_providers(&places(&[alike[0], alike[1], "crates/core/src/submit.rs:1"])));
    }

    #[test]
    fn definitions_are_found_at_the_top_level() {
        for line in [
            "pub struct Held<T> {",
            "struct Held(u8);",
            "pub(crate) enum Held {",
            "pub(in crate::a) trait Held: B {",
        ] {
            assert_eq!(defined(line), Some("Held"), "{line}");
        }
        assert_eq!(defined("type Held = u8;"), Some("Held"));
        for line in
            ["    struct Held;", "// struct Held", "pub fn held() {", "use a::Held;", "pub use held::Held;"]
        {
            assert_eq!(defined(line), None, "{line}");
        }
    }
}
