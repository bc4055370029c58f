//! The copy of the workspace with the bugs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::bugs::PlantedBug;
use crate::kept_modules::{KeptModules, keep};

/// What each crate with a bug gets: the question whether a bug is switched on.
const QUESTION: &str = r#"
/// Whether the bug of this name is planted in this process.
pub(crate) fn planted(name: &str) -> bool {
    static PLANTED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("EVERTURN_PLANTED_BUG").ok());
    PLANTED.as_deref() == Some(name)
}
"#;

/// Makes `copy` a copy of the workspace with these bugs in it. The files that `kept_modules` names keep only the modules
/// listed there. A file that is up to date is not written again, so that cargo builds only what has changed since the last
/// copy.
///
/// # Errors
/// If a file cannot be read or written, if a text that a bug replaces does not occur exactly once, or if a module that is
/// kept does not exist.
pub fn plant(
    workspace: &Path,
    copy: &Path,
    bugs: &[PlantedBug],
    kept_modules: &[KeptModules],
) -> Result<(), String> {
    let mut files = BTreeMap::new();
    read_folder(workspace, Path::new(""), &mut files)?;
    for kept in kept_modules {
        let bytes = files.get_mut(Path::new(kept.file)).ok_or_else(|| format!("{} is missing", kept.file))?;
        *bytes = keep(&String::from_utf8_lossy(bytes), kept)?.into_bytes();
    }
    let mut crates = BTreeSet::new();
    for bug in bugs {
        let bytes = files.get_mut(Path::new(bug.file)).ok_or_else(|| missing(bug))?;
        *bytes = planted_in(&String::from_utf8_lossy(bytes), bug)?.into_bytes();
        crates.extend(bug.file.split_once("/src/").map(|(folder, _)| folder));
    }
    for folder in crates {
        let library = Path::new(folder).join("src/lib.rs");
        let bytes = files.get_mut(&library).ok_or_else(|| format!("{} is missing", library.display()))?;
        bytes.extend_from_slice(QUESTION.as_bytes());
    }
    write_folder(copy, &files)
}

/// The text with this bug in it.
fn planted_in(text: &str, bug: &PlantedBug) -> Result<String, String> {
    let PlantedBug { name, file, find, replace, .. } = bug;
    if !replace.contains("BUG") {
        return Err(format!("the bug {name} cannot be switched on: its replacement does not contain BUG"));
    }
    match text.matches(find).count() {
        1 => Ok(text.replacen(find, &replace.replace("BUG", &format!("crate::planted({name:?})")), 1)),
        count => Err(format!(
            "the bug {name} cannot be planted: its text occurs {count} times in {file}, not once. Change the entry in \
             tests/planted/src/bugs.rs. The text is:\n{find}"
        )),
    }
}

fn missing(bug: &PlantedBug) -> String {
    format!(
        "the bug {} cannot be planted: there is no {}. Change the entry in tests/planted/src/bugs.rs. Its text is:\n{}",
        bug.name, bug.file, bug.find
    )
}

/// Reads all files below a folder, except what cargo has built and what is hidden.
fn read_folder(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
    let path = root.join(folder);
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    for entry in path.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let relative = folder.join(entry.file_name());
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            // Cargo marks its target folder in this way, but a folder that was copied may have lost the mark. With it the
            // copy, which is inside, would be copied again and again.
            let is_target = relative == Path::new("target") || entry.path().join("CACHEDIR.TAG").exists();
            if !is_target {
                read_folder(root, &relative, files)?;
            }
        } else {
            files.insert(relative, std::fs::read(entry.path()).map_err(failed)?);
        }
    }
    Ok(())
}

/// Makes the folder hold these files and no others.
fn write_folder(root: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
    let mut old = BTreeMap::new();
    if root.exists() {
        read_folder(root, Path::new(""), &mut old)?;
    }
    for (file, bytes) in files.iter().filter(|(file, bytes)| old.get(*file) != Some(bytes)) {
        let path = root.join(file);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, bytes))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    for file in old.keys().filter(|file| !files.contains_key(*file)) {
        let path = root.join(file);
        std::fs::remove_file(&path)
            .map_err(|error| format!("{} cannot be removed: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{plant, planted_in};
    use crate::bugs::PlantedBug;

    const BUG: PlantedBug = PlantedBug {
        name: "off-by-one",
        does: "Counts one too many.",
        file: "crates/a/src/count.rs",
        find: "let count = 1;",
        replace: "let count = 1 + u64::from(BUG);",
    };

    fn write(folder: &Path, file: &str, text: &str) {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_copy_has_the_bug_and_the_question() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, copy) = (folder.path().join("w"), folder.path().join("c"));
        write(&workspace, "crates/a/src/lib.rs", "mod count;\n");
        write(&workspace, "crates/a/src/count.rs", "fn count() -> u64 { let count = 1; count }\n");
        write(&workspace, "target/large", "");
        write(&workspace, "built/CACHEDIR.TAG", "");
        write(&copy, "crates/a/src/gone.rs", "");
        plant(&workspace, &copy, &[BUG], &[]).unwrap();
        let read = |file: &str| std::fs::read_to_string(copy.join(file)).unwrap();
        let line = "fn count() -> u64 { let count = 1 + u64::from(crate::planted(\"off-by-one\")); count }\n";
        assert_eq!(read("crates/a/src/count.rs"), line);
        assert!(read("crates/a/src/lib.rs").contains("fn planted("));
        assert!(!copy.join("target").exists(), "the target folder is not copied, marked or not");
        assert!(!copy.join("built").exists(), "no folder with cargo's mark is copied");
        assert!(!copy.join("crates/a/src/gone.rs").exists());
    }

    #[test]
    fn a_copy_that_is_up_to_date_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, copy) = (folder.path().join("w"), folder.path().join("c"));
        write(&workspace, "crates/a/src/lib.rs", "");
        plant(&workspace, &copy, &[], &[]).unwrap();
        let written = || copy.join("crates/a/src/lib.rs").metadata().unwrap().modified().unwrap();
        let first = written();
        plant(&workspace, &copy, &[], &[]).unwrap();
        assert_eq!(written(), first);
    }

    #[test]
    fn a_text_that_is_gone_or_ambiguous_is_reported_with_its_file() {
        for (text, times) in [("let count = 2;", 0), ("let count = 1;let count = 1;", 2)] {
            let error = planted_in(text, &BUG).unwrap_err();
            assert!(error.contains(&format!("occurs {times} times in crates/a/src/count.rs")), "{error}");
            assert!(error.contains("off-by-one") && error.contains(BUG.find), "{error}");
        }
    }

    #[test]
    fn a_bug_that_cannot_be_switched_on_is_refused() {
        let error = planted_in(BUG.find, &PlantedBug { replace: "let count = 2;", ..BUG }).unwrap_err();
        assert!(error.contains("cannot be switched on"), "{error}");
    }
}
