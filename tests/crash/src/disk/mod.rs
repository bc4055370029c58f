//! A disk in memory that loses unsynced writes when the power fails.
//!
//! A process reads what it wrote. After a power cut the disk has what was synced, and of the unsynced writes what the seed
//! decides: nothing, all, a prefix that ends in the middle of a write, or any sectors of any writes. Changes of file names
//! are kept the same way, in their order.

mod bad_sectors;
mod bytes;
mod calls;
mod locks;

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::ffi;
use tokio::sync::Notify;

use self::bad_sectors::BadSectors;
pub use self::bad_sectors::{BadSector, PAGE_BYTES};
use self::bytes::{FileBytes, PowerLoss};
pub use self::calls::{CallClass, CallCounts, DiskCall, DiskFault};
pub use self::locks::{FileLocks, ShmHeld, ShmLocks};
use everturn_simulation::SeededRandom;

/// Identifies a file, independent of its name.
pub type FileId = u64;

/// A result code of SQLite.
pub type SqliteCode = std::ffi::c_int;

/// The content of a disk: bytes by name.
pub type Image = BTreeMap<String, Vec<u8>>;

/// A disk in memory.
pub struct Disk {
    state: Mutex<DiskState>,
    sync_us: AtomicU64,
    power_loss: Notify,
    /// A call failed.
    failed: Notify,
}

struct DiskState {
    files: HashMap<FileId, FileBytes>,
    names: BTreeMap<String, FileId>,
    synced_names: BTreeMap<String, FileId>,
    unsynced_names: Vec<NameChange>,
    locks: HashMap<FileId, (FileLocks, ShmLocks)>,
    next_file: FileId,
    /// Counts the power losses: files that were opened before the last one are invalid.
    boot: u64,
    powered: bool,
    random: SeededRandom,
    calls: CallCounts,
    cut_at: Option<u64>,
    fault: Option<DiskFault>,
    faults_hit: u64,
    bytes_max: Option<u64>,
    bad_sectors: BadSectors,
    /// A test reads the disk: no call is counted and none fails.
    faults_paused: bool,
}

#[derive(Debug, Clone)]
enum NameChange {
    Created(String, FileId),
    Deleted(String),
}

impl Disk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        Self::with_image(&Image::new(), seed)
    }

    /// A disk with these files on it.
    pub fn with_image(image: &Image, seed: u64) -> Self {
        let mut files = HashMap::new();
        let mut names = BTreeMap::new();
        for ((name, bytes), id) in image.iter().zip(1..) {
            files.insert(id, FileBytes::synced(bytes.clone()));
            names.insert(name.clone(), id);
        }
        let state = DiskState {
            next_file: files.len() as u64 + 1,
            files,
            synced_names: names.clone(),
            names,
            unsynced_names: Vec::new(),
            locks: HashMap::new(),
            boot: 0,
            powered: true,
            random: SeededRandom::new(seed),
            calls: CallCounts::default(),
            cut_at: None,
            fault: None,
            faults_hit: 0,
            bytes_max: None,
            bad_sectors: BadSectors::default(),
            faults_paused: false,
        };
        Self {
            state: Mutex::new(state),
            sync_us: AtomicU64::new(0),
            power_loss: Notify::new(),
            failed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of the disk, as a process reads it.
    pub fn image(&self) -> Image {
        let state = self.state();
        state.names.iter().map(|(name, id)| (name.clone(), state.files[id].current().to_vec())).collect()
    }

    /// The calls so far.
    pub fn calls(&self) -> CallCounts {
        self.state().calls
    }

    /// Cuts the power at the call with this number, counted from now; 0 is the next.
    pub fn cut_power_after(&self, calls: u64) {
        let mut state = self.state();
        state.cut_at = Some(state.calls.total() + calls);
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.state().lose_power();
        self.power_loss.notify_one();
    }

    /// Whether the power is cut.
    pub fn is_powered_off(&self) -> bool {
        !self.state().powered
    }

    /// Returns when the power is cut.
    pub async fn power_lost(&self) {
        while !self.is_powered_off() {
            self.power_loss.notified().await;
        }
    }

    /// Withdraws a power cut that has not happened yet.
    pub fn keep_power(&self) {
        self.state().cut_at = None;
    }

    /// Runs `read`, whose calls are not counted and do not fail. Everything else must happen on the same thread.
    pub fn without_faults<T>(&self, read: impl FnOnce() -> T) -> T {
        /// Also if `read` panics.
        struct FaultsPaused<'a>(&'a Disk);
        impl Drop for FaultsPaused<'_> {
            fn drop(&mut self) {
                self.0.state().faults_paused = false;
            }
        }
        self.state().faults_paused = true;
        let _paused = FaultsPaused(self);
        read()
    }

    /// Switches the power on again; it stays on until it is cut again.
    pub fn restart(&self) {
        let mut state = self.state();
        state.powered = true;
        state.cut_at = None;
    }

    /// Injects a fault: calls fail from now on.
    pub fn inject(&self, fault: DiskFault) {
        let mut state = self.state();
        state.faults_hit = 0;
        state.fault = Some(fault.from(state.calls));
    }

    /// Ends the fault; returns how many calls have failed.
    pub fn heal(&self) -> u64 {
        let mut state = self.state();
        state.fault = None;
        state.faults_hit
    }

    /// How many calls have failed since the last fault was injected.
    pub fn faults_hit(&self) -> u64 {
        self.state().faults_hit
    }

    /// Returns when the first call has failed.
    pub async fn fault_struck(&self) {
        loop {
            let mut failed = pin!(self.failed.notified());
            failed.as_mut().enable();
            if self.faults_hit() > 0 {
                return;
            }
            failed.await;
        }
    }

    /// Makes every sync take this long, in real time.
    pub fn set_sync_us(&self, sync_us: u64) {
        self.sync_us.store(sync_us, Ordering::Relaxed);
    }

    /// Makes the disk full when its files have this many bytes together.
    pub fn set_bytes_max(&self, bytes_max: Option<u64>) {
        self.state().bytes_max = bytes_max;
    }

    /// From now on every read of this page of the database file fails. The log is not affected.
    pub fn make_unreadable(&self, page: u64, how: BadSector) {
        self.state().bad_sectors.add(page, how);
    }

    /// The page can be read again, and holds what it held before.
    pub fn make_readable(&self, page: u64) {
        self.state().bad_sectors.remove(page);
    }

    /// The bytes of all files together.
    pub fn bytes_used(&self) -> u64 {
        self.state().bytes_used()
    }

    pub(crate) fn boot(&self) -> u64 {
        self.state().boot
    }

    /// One call to the disk: fails without power, at the power cut, and by an injected fault.
    fn call<T>(
        &self,
        boot: u64,
        call: DiskCall,
        run: impl FnOnce(&mut DiskState) -> Result<T, SqliteCode>,
        fail: impl FnOnce(&mut DiskState),
    ) -> Result<T, SqliteCode> {
        let mut state = self.state();
        if !state.powered || state.boot != boot {
            return Err(call.error_code());
        }
        if state.faults_paused {
            return run(&mut state);
        }
        let number = state.calls.count(call.class());
        if state.cut_at == Some(number) {
            // The call at which the power fails may have reached the disk, like every other unsynced one.
            if state.random.percent(50) && call.class() != CallClass::Sync {
                drop(run(&mut state));
            }
            state.lose_power();
            drop(state);
            self.power_loss.notify_one();
            return Err(call.error_code());
        }
        let calls = state.calls;
        if let Some(code) = state.fault.as_mut().and_then(|fault| fault.strikes(call, calls)) {
            state.faults_hit += 1;
            fail(&mut state);
            drop(state);
            self.failed.notify_waiters();
            return Err(code);
        }
        run(&mut state)
    }

    pub(crate) fn open(&self, boot: u64, name: &str, create: bool) -> Result<FileId, SqliteCode> {
        let run = |state: &mut DiskState| {
            if let Some(id) = state.names.get(name) {
                return Ok(*id);
            }
            if !create {
                return Err(ffi::SQLITE_CANTOPEN);
            }
            let id = state.next_file;
            state.next_file += 1;
            state.files.insert(id, FileBytes::default());
            state.names.insert(name.to_owned(), id);
            state.unsynced_names.push(NameChange::Created(name.to_owned(), id));
            Ok(id)
        };
        self.call(boot, DiskCall::Open, run, |_| {})
    }

    pub(crate) fn delete(&self, boot: u64, name: &str, sync: bool) -> Result<(), SqliteCode> {
        let run = |state: &mut DiskState| {
            if state.names.remove(name).is_none() {
                return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
            }
            state.unsynced_names.push(NameChange::Deleted(name.to_owned()));
            if sync {
                state.sync_names(usize::MAX);
            }
            Ok(())
        };
        self.call(boot, DiskCall::Delete, run, |_| {})
    }

    pub(crate) fn exists(&self, boot: u64, name: &str) -> Result<bool, SqliteCode> {
        self.call(boot, DiskCall::Access, |state| Ok(state.names.contains_key(name)), |_| {})
    }

    pub(crate) fn read(
        &self,
        boot: u64,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<bool, SqliteCode> {
        let run = |state: &mut DiskState| {
            if !state.bad_sectors.is_empty()
                && let Some(code) = state.bad_sectors.error_at(offset, buffer.len())
                && state.names.iter().any(|(name, named)| *named == id && name.ends_with(".db"))
            {
                state.faults_hit += 1;
                return Err(code);
            }
            Ok(state.file(id)?.read(offset, buffer))
        };
        self.call(boot, DiskCall::Read, run, |_| {})
    }

    pub(crate) fn write(&self, boot: u64, id: FileId, offset: u64, data: &[u8]) -> Result<(), SqliteCode> {
        let run = |state: &mut DiskState| {
            let end = offset + data.len() as u64;
            let grows = end.saturating_sub(state.file(id)?.len());
            if state.bytes_max.is_some_and(|max| grows > 0 && state.bytes_used() + grows > max) {
                state.faults_hit += 1;
                return Err(ffi::SQLITE_FULL);
            }
            state.file(id)?.write(offset, data);
            Ok(())
        };
        // A failed write may be partly done.
        let fail = |state: &mut DiskState| {
            let done = state.random.index(data.len() + 1);
            let Ok(file) = state.file(id) else { return };
            if let Some(part) = data.get(..done) {
                file.write(offset, part);
            }
        };
        self.call(boot, DiskCall::Write, run, fail)
    }

    pub(crate) fn truncate(&self, boot: u64, id: FileId, len: u64) -> Result<(), SqliteCode> {
        let run = |state: &mut DiskState| {
            state.file(id)?.truncate(len);
            Ok(())
        };
        self.call(boot, DiskCall::Truncate, run, |_| {})
    }

    pub(crate) fn sync(&self, boot: u64, id: FileId) -> Result<(), SqliteCode> {
        let run = |state: &mut DiskState| {
            state.file(id)?.sync();
            let names = state
                .unsynced_names
                .iter()
                .rposition(|change| matches!(change, NameChange::Created(_, created) if *created == id));
            if let Some(last) = names {
                state.sync_names(last + 1);
            }
            Ok(())
        };
        // The next sync succeeds although some writes are lost, as on Linux.
        let fail = |state: &mut DiskState| {
            let DiskState { files, random, .. } = state;
            if let Some(file) = files.get_mut(&id) {
                file.sync_partly(random);
            }
        };
        let sync_us = self.sync_us.load(Ordering::Relaxed);
        if sync_us > 0 {
            std::thread::sleep(Duration::from_micros(sync_us));
        }
        self.call(boot, DiskCall::Sync, run, fail)
    }

    pub(crate) fn size(&self, boot: u64, id: FileId) -> Result<u64, SqliteCode> {
        self.call(boot, DiskCall::Size, |state| Ok(state.file(id)?.len()), |_| {})
    }

    /// Shared memory is no file here, but mapping it can fail.
    pub(crate) fn map_shared(&self, boot: u64) -> Result<(), SqliteCode> {
        self.call(boot, DiskCall::Map, |_| Ok(()), |_| {})
    }

    /// Locks belong to the operating system: no disk call is needed, and they are gone after a power cut.
    pub(crate) fn with_locks<T>(
        &self,
        boot: u64,
        id: FileId,
        change: impl FnOnce(&mut FileLocks, &mut ShmLocks) -> Result<T, SqliteCode>,
    ) -> Result<T, SqliteCode> {
        let mut state = self.state();
        if state.boot != boot {
            return Err(ffi::SQLITE_IOERR_LOCK);
        }
        let (file, shm) = state.locks.entry(id).or_default();
        change(file, shm)
    }
}

impl DiskState {
    fn file(&mut self, id: FileId) -> Result<&mut FileBytes, SqliteCode> {
        self.files.get_mut(&id).ok_or(ffi::SQLITE_IOERR)
    }

    fn bytes_used(&self) -> u64 {
        self.names.values().filter_map(|id| self.files.get(id)).map(FileBytes::len).sum()
    }

    fn sync_names(&mut self, count: usize) {
        let count = count.min(self.unsynced_names.len());
        for change in self.unsynced_names.drain(..count) {
            match change {
                NameChange::Created(name, id) => drop(self.synced_names.insert(name, id)),
                NameChange::Deleted(name) => drop(self.synced_names.remove(&name)),
            }
        }
    }

    /// The power fails; decides which unsynced writes are kept.
    fn lose_power(&mut self) {
        if !self.powered {
            return;
        }
        self.powered = false;
        self.boot += 1;
        self.locks.clear();
        let power_loss = PowerLoss::draw(&mut self.random);
        let names = match power_loss {
            PowerLoss::Lost => 0,
            PowerLoss::Kept => self.unsynced_names.len(),
            PowerLoss::Torn { .. } | PowerLoss::Shuffled { .. } => {
                self.random.index(self.unsynced_names.len() + 1)
            }
        };
        self.sync_names(names);
        self.unsynced_names.clear();
        self.names = self.synced_names.clone();
        let named: Vec<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
        // In the order of names: the outcome must depend on the seed only, not on the layout of a map.
        for id in named {
            let DiskState { files, random, .. } = &mut *self;
            if let Some(file) = files.get_mut(&id) {
                file.lose_power(power_loss, random);
            }
        }
    }
}
