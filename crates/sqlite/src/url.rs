//! Where a database is.

use std::path::PathBuf;

use crate::error::SqliteError;

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    Memory,
    File { path: PathBuf, create: bool },
}

impl Location {
    /// The same place, whatever becomes of the current directory and by whatever link it was named: the lock beside the
    /// file must be one.
    pub(crate) fn absolute(self) -> Result<Self, SqliteError> {
        match self {
            Self::Memory => Ok(Self::Memory),
            Self::File { path, create } => std::path::absolute(&path)
                .map(|path| Self::File { path: resolved(path), create })
                .map_err(|error| SqliteError::io(format_args!("opening {}", path.display()), error)),
        }
    }
}

/// The file itself; for one that is yet to be made, its place in the folder itself.
fn resolved(path: PathBuf) -> PathBuf {
    if let Ok(file) = path.canonicalize() {
        return file;
    }
    match (path.parent().map(std::path::Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Reads `sqlite:{path}`, `sqlite://{path}` and `sqlite::memory:`, with `?mode=rwc` (the default), `rw` or `memory`.
pub(crate) fn parse(url: &str) -> Result<Location, SqliteError> {
    let Some(rest) = url.strip_prefix("sqlite:") else {
        return Err(SqliteError::url(format!("opening {url}: the url must begin with sqlite:")));
    };
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut create = true;
    let mut memory = path == ":memory:";
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter {
            "mode=rwc" => create = true,
            "mode=rw" => create = false,
            "mode=memory" => memory = true,
            other => {
                return Err(SqliteError::url(format!(
                    "opening {url}: parameter {other} is not supported, only mode=rwc, mode=rw and mode=memory are"
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
    Ok(Location::File { path: PathBuf::from(path), create })
}

#[cfg(test)]
mod tests {
    use super::{Location, parse};

    fn file(path: &str, create: bool) -> Location {
        Location::File { path: path.into(), create }
    }

    #[test]
    fn files_and_memory_are_told_apart() {
        assert_eq!(parse("sqlite:a/b.db").unwrap(), file("a/b.db", true));
        assert_eq!(parse("sqlite:/a/b.db?mode=rwc").unwrap(), file("/a/b.db", true));
        assert_eq!(parse("sqlite:///a/b.db?mode=rw").unwrap(), file("/a/b.db", false));
        assert_eq!(parse("sqlite::memory:").unwrap(), Location::Memory);
        assert_eq!(parse("sqlite://:memory:").unwrap(), Location::Memory);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for url in
            ["", "postgres://x", "sqlite:", "sqlite:?mode=rwc", "sqlite:a.db?mode=ro", "sqlite:a.db?x=1"]
        {
            assert!(parse(url).unwrap_err().is_url(), "{url}");
        }
    }
}
