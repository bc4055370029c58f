//! The writers of this process that have the same file open: each wakes the others when it has committed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::command_queue::{Command, CommandQueue};
use crate::owners::OwnerId;
use crate::writer::WriterShared;

/// The writers of this process, by file.
static FILES: LazyLock<Mutex<HashMap<PathBuf, Arc<FileWriters>>>> = LazyLock::new(Mutex::default);

fn files() -> MutexGuard<'static, HashMap<PathBuf, Arc<FileWriters>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writers of one file, in the order in which they opened it.
#[derive(Default)]
struct FileWriters {
    writers: Mutex<Vec<Arc<RegisteredWriter>>>,
    /// How many there are: most files have one, which need not take the lock.
    count: AtomicUsize,
}

impl FileWriters {
    fn writers(&self) -> MutexGuard<'_, Vec<Arc<RegisteredWriter>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A writer as the others see it.
struct RegisteredWriter {
    commands: Arc<CommandQueue>,
    shared: Arc<WriterShared>,
    owner: Option<OwnerId>,
    /// It was woken and has not looked yet.
    is_woken: AtomicBool,
}

/// The place of one writer among those of its file.
pub(crate) struct ProcessWriters {
    path: PathBuf,
    file: Arc<FileWriters>,
    this: Arc<RegisteredWriter>,
    /// Not if tests make several processes out of one: processes do not wake each other.
    wakes_others: bool,
}

impl ProcessWriters {
    pub(crate) fn join(
        path: &Path,
        commands: Arc<CommandQueue>,
        shared: Arc<WriterShared>,
        owner: Option<OwnerId>,
        wakes_others: bool,
    ) -> Self {
        let this = Arc::new(RegisteredWriter { commands, shared, owner, is_woken: AtomicBool::new(false) });
        let mut files = files();
        let file = Arc::clone(files.entry(path.to_owned()).or_default());
        let mut writers = file.writers();
        writers.push(Arc::clone(&this));
        file.count.store(writers.len(), Ordering::SeqCst);
        drop(writers);
        Self { path: path.to_owned(), file, this, wakes_others }
    }

    /// Whether no other writer of this process has the file.
    pub(crate) fn is_only_one(&self) -> bool {
        self.file.count.load(Ordering::SeqCst) <= 1
    }

    /// The owners of this process.
    pub(crate) fn owners(&self) -> Vec<OwnerId> {
        self.file.writers().iter().filter_map(|writer| writer.owner).collect()
    }

    /// This writer has committed: wakes the others, if a fetch or a watch waits there.
    pub(crate) fn wake_others(&self) {
        if !self.wakes_others || self.is_only_one() {
            return;
        }
        for other in self.file.writers().iter().filter(|other| !Arc::ptr_eq(other, &self.this)) {
            if other.shared.awaits_commits() && !other.is_woken.swap(true, Ordering::SeqCst) {
                other.commands.send_even_if_closed(Command::CommittedElsewhere);
            }
        }
    }

    /// This writer is about to look: the next commit wakes it again.
    pub(crate) fn note_look(&self) {
        self.this.is_woken.store(false, Ordering::SeqCst);
    }
}

impl Drop for ProcessWriters {
    fn drop(&mut self) {
        let mut files = files();
        let mut writers = self.file.writers();
        writers.retain(|writer| !Arc::ptr_eq(writer, &self.this));
        self.file.count.store(writers.len(), Ordering::SeqCst);
        if writers.is_empty() {
            files.remove(&self.path);
        }
    }
}
