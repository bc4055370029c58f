//! Which providers run: each holds a lock of the operating system on a file of its own, in a folder beside the database.
//!
//! A row that bears a lock names the provider that took it. When a process ends, however it ends, the operating system
//! releases the lock on its file; another process that can take it knows that the locks in the rows are stale. The locks
//! are those of `flock`, which belong to an open file: a process can ask about its own files, and closing another
//! descriptor releases nothing.
//!
//! The file is empty, except while its owner finds the database locked again and again: then the others leave it a gap.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use everturn_provider::Clock;

use crate::file_identity::FileIdentity;

/// How often a provider draws another id because a file of that name exists or is taken.
const DRAWS_MAX: usize = 16;
/// How many owners that no longer run one look takes over; the others follow with the next look.
const DEAD_MAX: usize = 64;

/// The provider that took a lock: a random number that is never used again.
pub(crate) type OwnerId = i64;

/// The file of an owner, locked through this descriptor.
#[derive(Debug)]
pub(crate) struct OwnerFile {
    pub(crate) id: OwnerId,
    path: PathBuf,
    /// Closing it releases the lock.
    file: File,
    /// Whether the file says that this owner waits for the database.
    waits: bool,
}

impl OwnerFile {
    /// Tells the other owners whether this one waits for the database.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        if self.waits == waits {
            return;
        }
        self.waits = waits;
        if let Err(error) = self.file.set_len(u64::from(waits)) {
            tracing::debug!(target: "everturn::providers::sqlite", path = %self.path.display(), %error,
                "cannot tell other processes whether this one waits for the database; they leave gaps after its commits only");
        }
    }

    /// No row bears this owner any more.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(target: "everturn::providers::sqlite", path = %self.path.display(), %error,
                "the file of a provider that no longer runs was not removed; the next look tries again");
        }
        if let Some(folder) = self.path.parent() {
            // Fails as long as other providers have their files in it.
            drop(std::fs::remove_dir(folder));
        }
    }
}

/// What one look at the folder found.
#[derive(Debug, Default)]
pub(crate) struct OwnersFound {
    /// Providers of other processes that run.
    pub(crate) running: Vec<OwnerId>,
    /// Owners that no longer run. Their files are locked by this look: no other process takes them over meanwhile.
    pub(crate) dead: Vec<OwnerFile>,
}

/// The folder of the owners of one database.
#[derive(Debug, Clone)]
pub(crate) struct OwnerFolder(PathBuf);

impl OwnerFolder {
    pub(crate) fn beside(database: &Path) -> Self {
        let mut name = OsString::from(database.as_os_str());
        name.push("-owners");
        Self(PathBuf::from(name))
    }

    /// Makes a file for a new owner and locks it. Returns nothing if the operating system cannot tell who runs: locks
    /// without an owner are released when they expire.
    pub(crate) fn join(&self, clock: &dyn Clock) -> Option<OwnerFile> {
        let unknown = |reason: &dyn std::fmt::Display| {
            tracing::warn!(target: "everturn::providers::sqlite", folder = %self.0.display(), reason = %reason,
                "cannot hold a locked file beside the database; if this process is killed, its locks end by expiry");
        };
        for _ in 0..DRAWS_MAX {
            match self.create(new_id(clock)) {
                Ok(Some(owner)) if is_locked(&owner.path) => return Some(owner),
                Ok(Some(owner)) => {
                    owner.remove();
                    unknown(&"a second descriptor could take the lock");
                    return None;
                }
                // The name exists, or another process took the new file for that of a dead owner.
                Ok(None) => {}
                Err(error) => {
                    unknown(&error);
                    return None;
                }
            }
        }
        unknown(&"no free name was found");
        None
    }

    /// Creates and locks a file; `None` if it belongs to another owner by now.
    fn create(&self, id: OwnerId) -> io::Result<Option<OwnerFile>> {
        let path = self.0.join(name_of(id));
        std::fs::create_dir_all(&self.0)?;
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            // The folder was removed by the last owner that left.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        lock(id, path, file)
    }

    /// Looks who runs. Owners of this process are `ours`: they run, and are not others.
    pub(crate) fn look(&self, ours: &[OwnerId]) -> io::Result<OwnersFound> {
        let mut found = OwnersFound::default();
        for id in self.ids()? {
            if ours.contains(&id) {
                continue;
            }
            let dead = if found.dead.len() < DEAD_MAX { self.take_over(id) } else { Ok(None) };
            match dead {
                Ok(Some(owner)) => found.dead.push(owner),
                Ok(None) => found.running.push(id),
                // Another process has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It cannot be asked, and counts as running: its locks expire.
                Err(error) => {
                    found.running.push(id);
                    tracing::debug!(target: "everturn::providers::sqlite", owner = id, %error,
                        "cannot tell whether the process that holds locks still runs");
                }
            }
        }
        Ok(found)
    }

    /// Whether a provider runs, in this process or another. One that cannot be asked counts as running.
    pub(crate) fn has_running_owner(&self) -> bool {
        let Ok(ids) = self.ids() else { return true };
        ids.into_iter().any(|id| {
            match OpenOptions::new().read(true).write(true).open(self.0.join(name_of(id))) {
                Ok(file) => file.try_lock().is_err(),
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            }
        })
    }

    /// Whether one of these owners waits for the database.
    pub(crate) fn is_any_waiting(&self, owners: &[OwnerId]) -> bool {
        owners.iter().any(|id| std::fs::metadata(self.0.join(name_of(*id))).is_ok_and(|file| file.len() > 0))
    }

    /// Whether any provider has a file here, whether it runs or not.
    pub(crate) fn is_in_use(&self) -> bool {
        self.ids().is_ok_and(|ids| !ids.is_empty())
    }

    /// Locks the file of an owner that no longer runs; `None` if it runs.
    fn take_over(&self, id: OwnerId) -> io::Result<Option<OwnerFile>> {
        let path = self.0.join(name_of(id));
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        lock(id, path, file)
    }

    /// All owners with a file, in the same order every time.
    fn ids(&self) -> io::Result<Vec<OwnerId>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut ids = Vec::new();
        for entry in entries {
            ids.extend(entry?.file_name().to_str().and_then(id_of));
        }
        ids.sort_unstable();
        Ok(ids)
    }
}

/// Locks a file that was opened at this path; `None` if another descriptor has it locked, or the path names another file.
fn lock(id: OwnerId, path: PathBuf, file: File) -> io::Result<Option<OwnerFile>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let is_in_place = FileIdentity::at(&path)? == Some(FileIdentity::of(&file.metadata()?));
    Ok(is_in_place.then_some(OwnerFile { id, path, file, waits: false }))
}

/// Whether a second descriptor is refused the lock on this file: else locks mean nothing on this file system.
fn is_locked(path: &Path) -> bool {
    let Ok(second) = OpenOptions::new().read(true).write(true).open(path) else { return false };
    matches!(second.try_lock(), Err(TryLockError::WouldBlock))
}

fn new_id(clock: &dyn Clock) -> OwnerId {
    let [a, b, c, d, e, f, g, h, ..] = clock.random_u128().to_le_bytes();
    OwnerId::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn name_of(id: OwnerId) -> String {
    format!("{:016x}", id.cast_unsigned())
}

fn id_of(name: &str) -> Option<OwnerId> {
    let is_ours = name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(name, 16).ok().filter(|_| is_ours).map(u64::cast_signed)
}

#[cfg(test)]
mod tests {
    use everturn_provider::ManualClock;

    use super::{OwnerFolder, id_of, is_locked, name_of};

    fn folder() -> (tempfile::TempDir, OwnerFolder) {
        let folder = tempfile::tempdir().unwrap();
        let owners = OwnerFolder::beside(&folder.path().join("store.db"));
        (folder, owners)
    }

    #[test]
    fn an_owner_runs_until_its_file_is_closed() {
        let (_folder, owners) = folder();
        let clock = ManualClock::new(0);
        let owner = owners.join(&clock).unwrap();
        let found = owners.look(&[]).unwrap();
        assert!(found.running == [owner.id] && found.dead.is_empty(), "it runs: {found:?}");
        let found = owners.look(&[owner.id]).unwrap();
        assert!(found.running.is_empty() && found.dead.is_empty(), "it is ours: {found:?}");
        let id = owner.id;
        drop(owner);
        let found = owners.look(&[]).unwrap();
        assert_eq!(
            found.dead.iter().map(|owner| owner.id).collect::<Vec<_>>(),
            [id],
            "its file is not locked"
        );
        let beside = owners.look(&[]).unwrap();
        assert!(beside.dead.is_empty(), "one look takes it over, no other does: {beside:?}");
        found.dead.iter().for_each(super::OwnerFile::remove);
        assert!(!owners.is_in_use() && !owners.0.exists(), "the last owner removes the folder");
    }

    #[test]
    fn an_owner_is_seen_to_wait_until_it_does_not_or_has_gone() {
        let (_folder, owners) = folder();
        let mut owner = owners.join(&ManualClock::new(0)).unwrap();
        let id = owner.id;
        assert!(!owners.is_any_waiting(&[id]), "it never waited");
        owner.set_waiting(true);
        assert!(owners.is_any_waiting(&[id + 1, id]), "it waits, and the other has no file");
        owner.set_waiting(false);
        assert!(!owners.is_any_waiting(&[id]), "it waits no more");
        owner.set_waiting(true);
        owner.remove();
        assert!(!owners.is_any_waiting(&[id]), "it has gone");
    }

    #[test]
    fn a_name_that_exists_is_never_used_again() {
        let (_folder, owners) = folder();
        let (first, second) = (ManualClock::new(0), ManualClock::new(0));
        let dead = owners.join(&first).unwrap().id;
        assert_ne!(owners.join(&second).unwrap().id, dead, "both clocks draw the same numbers");
    }

    #[test]
    fn a_file_that_another_look_removed_belongs_to_no_owner() {
        let (_folder, owners) = folder();
        let owner = owners.join(&ManualClock::new(0)).unwrap();
        let file = std::fs::File::open(&owner.path).unwrap();
        let path = owner.path.clone();
        std::fs::remove_file(&path).unwrap();
        drop(owner);
        assert!(super::lock(1, path, file).unwrap().is_none(), "its path names no file");
    }

    #[test]
    fn a_file_system_that_lets_two_descriptors_lock_a_file_is_noticed() {
        let (_folder, owners) = folder();
        let owner = owners.join(&ManualClock::new(0)).unwrap();
        assert!(is_locked(&owner.path));
        let path = owner.path.clone();
        drop(owner);
        assert!(!is_locked(&path), "the second descriptor could lock it");
    }

    #[test]
    fn other_files_in_the_folder_are_no_owners() {
        for id in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(id_of(&name_of(id)), Some(id));
        }
        for name in
            ["", "README", "00000000000000zz", "0000000000000000.bak", "+000000000000001", "000000000000000A"]
        {
            assert_eq!(id_of(name), None, "{name}");
        }
    }
}
