//! Pages of a database file that cannot be read, however often they are tried.

use std::collections::BTreeMap;

use rusqlite::ffi;

use super::SqliteCode;

/// The size of a page of the database files on this disk.
pub const PAGE_BYTES: u64 = 4096;

/// How reading a bad sector fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadSector {
    /// The operating system reports EIO, which SQLite takes for a damaged file system.
    DamagedFileSystem,
    /// The operating system reports another error.
    FailedRead,
}

impl BadSector {
    /// Both.
    pub const ALL: [Self; 2] = [Self::DamagedFileSystem, Self::FailedRead];
}

/// The bad sectors of a disk, by the page of the database file that they are in. The first page has number 1.
#[derive(Debug, Default)]
pub(super) struct BadSectors(BTreeMap<u64, BadSector>);

impl BadSectors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, page: u64, how: BadSector) {
        self.0.insert(page, how);
    }

    pub(super) fn remove(&mut self, page: u64) {
        self.0.remove(&page);
    }

    /// The error of a read of so many bytes.
    pub(super) fn error_at(&self, offset: u64, bytes: usize) -> Option<SqliteCode> {
        let last = (offset + (bytes as u64).max(1) - 1) / PAGE_BYTES + 1;
        self.0.range(offset / PAGE_BYTES + 1..=last).next().map(|(_, how)| match how {
            BadSector::DamagedFileSystem => ffi::SQLITE_IOERR_CORRUPTFS,
            BadSector::FailedRead => ffi::SQLITE_IOERR_READ,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_the_bad_page_fail() {
        let mut sectors = BadSectors::default();
        sectors.add(3, BadSector::FailedRead);
        assert_eq!(sectors.error_at(2 * PAGE_BYTES, 4096), Some(ffi::SQLITE_IOERR_READ));
        assert_eq!(sectors.error_at(3 * PAGE_BYTES - 1, 1), Some(ffi::SQLITE_IOERR_READ));
        assert_eq!(sectors.error_at(PAGE_BYTES, 4096), None);
        assert_eq!(sectors.error_at(3 * PAGE_BYTES, 4096), None);
        sectors.remove(3);
        assert_eq!(sectors.error_at(2 * PAGE_BYTES, 4096), None);
    }
}
