//! Whether the store can still be trusted: the file is in its place and has a schema that this library knows.

use everturn_provider::encoded::length_ms;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::file_identity::FileIdentity;

/// How long a look at the file is trusted while nothing is committed.
const TRUSTED: Duration = Duration::from_secs(1);

/// The reason for which the store refuses all further calls, once there is one.
///
/// What is written to a deleted file is lost when the process ends, and a file that was put in its place holds other
/// instances. No call can be answered from either.
#[derive(Debug, Default)]
pub(crate) struct StoreGuard {
    refusal: OnceLock<String>,
    /// The database file when it was opened; nothing for a database in memory.
    file: OnceLock<GuardedFile>,
}

#[derive(Debug)]
struct GuardedFile {
    path: PathBuf,
    identity: FileIdentity,
    /// When it was last looked at, in milliseconds of the monotonic clock.
    looked_at_ms: AtomicU64,
}

impl StoreGuard {
    /// The file that was opened.
    pub(crate) fn watch(&self, path: PathBuf, identity: FileIdentity) {
        // The store is opened once.
        self.file.get_or_init(|| GuardedFile { path, identity, looked_at_ms: AtomicU64::new(0) });
    }

    /// The file that was opened; `None` for a database in memory.
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        self.file.get().map(|file| file.identity)
    }

    /// The store refuses all further calls. The first reason stays.
    pub(crate) fn refuse(&self, reason: String) {
        let mut is_new = false;
        let reason = self.refusal.get_or_init(|| {
            is_new = true;
            reason
        });
        if is_new {
            tracing::error!(target: "everturn::providers::sqlite", reason, "the store refuses all further calls");
        }
    }

    /// Why the store refuses all calls, as far as it is known.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// The same after a look at the file, unless the last one was less than a second ago.
    pub(crate) fn refusal_within_a_second(&self, monotonic: Duration) -> Option<&str> {
        if let Some(file) = self.file.get() {
            let (now_ms, looked_at_ms) = (length_ms(monotonic), file.looked_at_ms.load(Ordering::Relaxed));
            if now_ms.saturating_sub(looked_at_ms) >= length_ms(TRUSTED) {
                file.looked_at_ms.store(now_ms, Ordering::Relaxed);
                return self.refusal_now();
            }
        }
        self.refusal()
    }

    /// The same after a look at the file, which costs a microsecond.
    pub(crate) fn refusal_now(&self) -> Option<&str> {
        if let Some(GuardedFile { path, identity, .. }) = self.file.get()
            && self.refusal.get().is_none()
            // An error of the look itself says nothing about the file.
            && FileIdentity::at(path).is_ok_and(|found| found != Some(*identity))
        {
            self.refuse(format!(
                "the database file {0} was deleted or replaced while it was open, and nothing more is written to it; \
                 end the process, remove {0}-wal and {0}-shm unless they came with the file that is there now, and \
                 restart",
                path.display()
            ));
        }
        self.refusal()
    }
}
