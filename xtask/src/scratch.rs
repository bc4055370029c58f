//! A folder for the temporary files of one test process. What the process leaves there, also when it was killed or aborted, is
//! removed when it has ended: a run of hours needs no more space than its largest case.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

/// How often the size of the folder is measured.
const MEASURED_EVERY: Duration = Duration::from_secs(2);
/// Names of such folders begin with this and the number of the process that made them.
const PREFIX: &str = "everturn-proof-";
/// A file in the folder that its process holds a lock on.
const IN_USE: &str = "in-use";
/// Where the temporary files are.
const FILES: &str = "files";
/// How often a folder is made again because another run took it for an abandoned one.
const ATTEMPTS_MAX: usize = 16;

/// The folder, which is measured while it is in use.
pub(crate) struct ScratchFolder {
    folder: TempDir,
    files: PathBuf,
    /// Closing it releases the lock.
    _lock: File,
    stop: Sender<()>,
    measuring: JoinHandle<u64>,
}

/// How much space a process needed, and what it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScratchUse {
    /// The most bytes that were measured.
    pub(crate) peak_bytes: u64,
    /// How many files were left, and removed.
    pub(crate) files_left: u64,
}

impl ScratchFolder {
    pub(crate) fn new() -> Result<Self, String> {
        for _ in 0..ATTEMPTS_MAX {
            let prefix = format!("{PREFIX}{}-", std::process::id());
            let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
            let folder = folder.map_err(|error| format!("no scratch folder: {error}"))?;
            // Another run that removes abandoned folders may have found it before it was locked.
            if let Some(lock) = lock(folder.path()).map_err(|error| format!("no scratch folder: {error}"))? {
                return Self::measured(folder, lock);
            }
        }
        Err("no scratch folder: it is removed again and again".to_owned())
    }

    fn measured(folder: TempDir, lock: File) -> Result<Self, String> {
        let path = folder.path().join(FILES);
        fs::create_dir(&path).map_err(|error| format!("no scratch folder: {error}"))?;
        let files = path.clone();
        let (stop, stopped) = channel();
        let measuring = thread::spawn(move || {
            let mut peak_bytes = 0;
            while stopped.recv_timeout(MEASURED_EVERY) == Err(RecvTimeoutError::Timeout) {
                peak_bytes = peak_bytes.max(measured(&path).1);
            }
            peak_bytes
        });
        Ok(Self { folder, files, _lock: lock, stop, measuring })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.files
    }

    /// Removes the folder.
    pub(crate) fn remove(self) -> Result<ScratchUse, String> {
        let Self { folder, files, _lock, stop, measuring } = self;
        drop(stop);
        let peak_bytes = measuring.join().unwrap_or_default();
        let (files_left, bytes_left) = measured(&files);
        folder.close().map_err(|error| format!("a scratch folder cannot be removed: {error}"))?;
        Ok(ScratchUse { peak_bytes: peak_bytes.max(bytes_left), files_left })
    }
}

/// Makes the file that says that a folder is in use, and locks it; `None` if another run removes the folder.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(IN_USE);
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    match locked {
        Ok(file) => Ok(path.exists().then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the folders of runs that were interrupted.
pub(crate) fn remove_abandoned() {
    remove_abandoned_in(&std::env::temp_dir());
}

fn remove_abandoned_in(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // The operating system releases the lock when the process ends. A folder without the file is being made.
        let Ok(file) = File::open(entry.path().join(IN_USE)) else { continue };
        if file.try_lock().is_ok() {
            // Another run may remove it at the same time.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// How many files are below a folder, and their bytes. Files that disappear meanwhile do not count.
fn measured(folder: &Path) -> (u64, u64) {
    let Ok(entries) = fs::read_dir(folder) else { return (0, 0) };
    let each = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => measured(&entry.path()),
        Ok(metadata) => (1, metadata.len()),
        Err(_) => (0, 0),
    });
    each.fold((0, 0), |(files, bytes), (more_files, more_bytes)| (files + more_files, bytes + more_bytes))
}

#[cfg(test)]
mod tests {
    use super::{IN_USE, PREFIX, ScratchFolder, ScratchUse, lock, remove_abandoned_in};

    #[test]
    fn only_a_folder_that_no_process_holds_is_removed() {
        let place = tempfile::tempdir().unwrap();
        // No process has this number, as seen from another container.
        let [held, abandoned, new] = ["held", "abandoned", "new"]
            .map(|name| place.path().join(format!("{PREFIX}{}-{name}", u32::MAX)));
        for folder in [&held, &abandoned, &new] {
            std::fs::create_dir(folder).unwrap();
        }
        let _lock = lock(&held).unwrap().expect("it is in its place");
        std::fs::write(abandoned.join(IN_USE), b"").unwrap();
        remove_abandoned_in(place.path());
        assert_eq!([held, abandoned, new].map(|folder| folder.exists()), [true, false, true]);
    }

    #[test]
    fn what_a_process_leaves_is_counted_and_removed() {
        let scratch = ScratchFolder::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("case")).unwrap();
        std::fs::write(path.join("case/database"), [0; 1_000]).unwrap();
        assert_eq!(scratch.remove(), Ok(ScratchUse { peak_bytes: 1_000, files_left: 1 }));
        assert!(!path.exists(), "the folder is still there");
    }
}
