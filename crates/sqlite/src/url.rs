//! Where a database is.

use std::path::{Path, PathBuf};

use crate::error::SqliteError;

/// How many symbolic links lead from one to the next at most.
const LINKS_MAX: usize = 40;

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    Memory,
    File { path: PathBuf, mode: OpenMode },
}

/// What may be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// It is created if it is missing.
    Create,
    /// It must exist.
    Existing,
    /// It must exist, and nothing is written.
    ReadOnly,
}

impl Location {
    /// The same place, whatever becomes of the current directory and by whatever link it was named: the lock beside the
    /// file must be one.
    pub(crate) fn absolute(self) -> Result<Self, SqliteError> {
        match self {
            Self::Memory => Ok(Self::Memory),
            Self::File { path, mode } => std::path::absolute(&path)
                .map(|path| Self::File { path: resolved(path), mode })
                .map_err(|error| SqliteError::io(format_args!("opening {}", path.display()), error)),
        }
    }
}

/// The file itself; for one that is yet to be made, its place in the folder itself. SQLite makes a file at the end of a
/// link, so the link is followed even if there is no file.
fn resolved(mut path: PathBuf) -> PathBuf {
    for _ in 0..LINKS_MAX {
        if let Ok(file) = path.canonicalize() {
            return file;
        }
        let Ok(target) = path.read_link() else { break };
        // A relative link begins in the folder of the link; an absolute one replaces the path.
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Reads `sqlite:{path}`, `sqlite://{path}` and `sqlite::memory:`, with `?mode=rwc` (the default), `rw`, `ro` or `memory`.
pub(crate) fn parse(url: &str) -> Result<Location, SqliteError> {
    let Some(rest) = url.strip_prefix("sqlite:") else {
        return Err(SqliteError::url(format!("opening {url}: the url must begin with sqlite:")));
    };
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut mode = OpenMode::Create;
    let mut memory = path == ":memory:";
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter {
            "mode=rwc" => mode = OpenMode::Create,
            "mode=rw" => mode = OpenMode::Existing,
            "mode=ro" => mode = OpenMode::ReadOnly,
            "mode=memory" => memory = true,
            other => {
                return Err(SqliteError::url(format!(
                    "opening {url}: parameter {other} is not supported, only mode=rwc, mode=rw, mode=ro and \
                     mode=memory are"
                )));
            }
        }
    }
    if memory {
        return Ok(Location::Memory);
    }
    if path.is_empty() {
        return Err(SqliteError::url(format!("opening {url}: the url names no file")));
    }
    Ok(Location::File { path: PathBuf::from(path), mode })
}

#[cfg(test)]
mod tests {
    use super::{Location, OpenMode, parse};

    fn file(path: &str, mode: OpenMode) -> Location {
        Location::File { path: path.into(), mode }
    }

    #[test]
    fn files_and_memory_are_told_apart() {
        assert_eq!(parse("sqlite:a/b.db").unwrap(), file("a/b.db", OpenMode::Create));
        assert_eq!(parse("sqlite:/a/b.db?mode=rwc").unwrap(), file("/a/b.db", OpenMode::Create));
        assert_eq!(parse("sqlite:///a/b.db?mode=rw").unwrap(), file("/a/b.db", OpenMode::Existing));
        assert_eq!(parse("sqlite:b.db?mode=ro").unwrap(), file("b.db", OpenMode::ReadOnly));
        assert_eq!(parse("sqlite::memory:").unwrap(), Location::Memory);
        assert_eq!(parse("sqlite://:memory:").unwrap(), Location::Memory);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for url in
            ["", "postgres://x", "sqlite:", "sqlite:?mode=rwc", "sqlite:a.db?mode=wo", "sqlite:a.db?x=1"]
        {
            assert!(parse(url).unwrap_err().is_url(), "{url}");
        }
    }
}
