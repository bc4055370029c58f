//! The verdicts of earlier runs on the same commit: a run that was interrupted goes on with what is left.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::sample::MutantName;
use super::worker::Verdicts;

/// A file with a line for each verdict: what became of the mutant, the package of the tests, the mutant.
#[derive(Debug, Clone)]
pub(crate) struct JudgedMutants {
    /// `None` if the sources are not those of a commit.
    path: Option<PathBuf>,
}

impl JudgedMutants {
    pub(crate) fn of_commit(root: &Path, commit: &str, is_clean: bool) -> Self {
        let folder = root.join("target/mutants/judged");
        Self { path: is_clean.then(|| folder.join(format!("{commit}.txt"))) }
    }

    /// The verdicts on these mutants by the tests of a package.
    pub(crate) fn of(&self, tests: &str, names: &[MutantName]) -> Result<Verdicts, String> {
        let mut verdicts = Verdicts::default();
        let Some(path) = &self.path else { return Ok(verdicts) };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(verdicts),
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let (Some(outcome), Some(by), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let name = MutantName(name.to_owned());
            if by != tests || !names.contains(&name) || verdicts.has(&name) {
                continue;
            }
            match outcome {
                "caught" => verdicts.caught.push(name),
                "hung" => verdicts.hung.push(name),
                "missed" => verdicts.missed.push(name),
                "unviable" => verdicts.unviable.push(name),
                _ => {}
            }
        }
        Ok(verdicts)
    }

    /// Adds verdicts by the tests of a package.
    pub(crate) fn add(&self, tests: &str, verdicts: &Verdicts) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut lines = String::new();
        let Verdicts { caught, hung, missed, unviable } = verdicts;
        for (outcome, names) in
            [("caught", caught), ("hung", hung), ("missed", missed), ("unviable", unviable)]
        {
            for name in names {
                // Writing into a String cannot fail.
                let _ = writeln!(lines, "{outcome}\t{tests}\t{}", name.0);
            }
        }
        let add = || {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            OpenOptions::new().create(true).append(true).open(path)?.write_all(lines.as_bytes())
        };
        add().map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: u32) -> MutantName {
        MutantName(format!("crates/a/src/b.rs:{line}:5: replace + with - in f"))
    }

    #[test]
    fn verdicts_of_the_same_tests_on_the_same_commit_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let judged = JudgedMutants::of_commit(folder.path(), "abc", true);
        let verdicts = Verdicts { caught: vec![name(1)], missed: vec![name(2)], ..Verdicts::default() };
        judged.add("everturn", &verdicts).unwrap();
        assert_eq!(judged.of("everturn", &[name(1), name(2), name(3)]).unwrap(), verdicts);
        assert_eq!(judged.of("everturn-core", &[name(1)]).unwrap(), Verdicts::default(), "other tests");
        let of_other = JudgedMutants::of_commit(folder.path(), "def", true);
        assert_eq!(of_other.of("everturn", &[name(1)]).unwrap(), Verdicts::default(), "another commit");
    }

    #[test]
    fn sources_without_a_commit_have_no_verdicts() {
        let folder = tempfile::tempdir().unwrap();
        let judged = JudgedMutants::of_commit(folder.path(), "abc", false);
        judged.add("everturn", &Verdicts { caught: vec![name(1)], ..Verdicts::default() }).unwrap();
        assert_eq!(judged.of("everturn", &[name(1)]).unwrap(), Verdicts::default());
    }
}
