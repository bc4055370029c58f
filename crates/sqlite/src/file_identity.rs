//! Whether two names, or a name and an open file, are the same file.

use std::fs::Metadata;
use std::io;
use std::path::Path;

/// Device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// The file at this path; `None` if there is none. The file is not opened: closing a descriptor of a database file
    /// would release all locks that SQLite holds on it in this process.
    pub(crate) fn at(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(unix)]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Elsewhere an open file can be neither deleted nor replaced.
    #[cfg(not(unix))]
    pub(crate) fn of(_metadata: &Metadata) -> Self {
        Self { device: 0, inode: 0 }
    }

    /// A name of the file, which has this path. Hard links and a renamed file are the same file.
    #[cfg(unix)]
    pub(crate) fn name(self, _path: &Path) -> Option<String> {
        Some(format!("sqlite file {}:{}", self.device, self.inode))
    }

    #[cfg(not(unix))]
    pub(crate) fn name(self, path: &Path) -> Option<String> {
        let path = path.canonicalize().ok()?;
        Some(format!("sqlite file {}", path.display()))
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn name(path: &Path) -> String {
        FileIdentity::at(path).unwrap().unwrap().name(path).unwrap()
    }

    #[test]
    fn two_files_have_two_names_and_a_hard_link_has_the_name_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, link] = ["one.db", "other.db", "link.db"].map(|file| folder.path().join(file));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&other, "").unwrap();
        std::fs::hard_link(&one, &link).unwrap();
        assert_ne!(name(&one), name(&other), "providers of two files share nothing");
        assert_eq!(name(&one), name(&link), "both are one file");
    }
}
