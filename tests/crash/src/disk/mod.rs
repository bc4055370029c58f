//! A disk in memory: it keeps what was synced, and of the rest what the seed says.
//!
//! What a process reads is what it wrote. What is there after a power cut is what it synced, and of everything else a part:
//! nothing, a beginning that ends in the middle of a write, or any sectors of any writes. Names of files are kept the same
//! way, in the order of their changes.

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

use self::bytes::{Bytes, Fate};
pub use self::calls::{Call, Calls, Class, Fault};
pub use self::locks::{FileLocks, ShmHeld, ShmLocks};
use crate::chance::Chance;

/// Names one file, whatever it is called.
pub type FileId = u64;

/// A result code of SQLite.
pub type Code = std::ffi::c_int;

/// What is on a disk: bytes by name.
pub type Image = BTreeMap<String, Vec<u8>>;

/// A disk in memory.
pub struct Disk {
    state: Mutex<State>,
    sync_us: AtomicU64,
    went_dark: Notify,
    /// A call failed.
    failed: Notify,
}

struct State {
    files: HashMap<FileId, Bytes>,
    names: BTreeMap<String, FileId>,
    synced_names: BTreeMap<String, FileId>,
    unsynced_names: Vec<NameChange>,
    locks: HashMap<FileId, (FileLocks, ShmLocks)>,
    next_file: FileId,
    /// Counts the lives of the machine: what was opened in an earlier one is dead.
    life: u64,
    powered: bool,
    chance: Chance,
    calls: Calls,
    cut_at: Option<u64>,
    fault: Option<Fault>,
    faults_hit: u64,
    bytes_max: Option<u64>,
    /// Somebody only looks: nothing is counted and nothing fails.
    quiet: bool,
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
            files.insert(id, Bytes::synced(bytes.clone()));
            names.insert(name.clone(), id);
        }
        let state = State {
            next_file: files.len() as u64 + 1,
            files,
            synced_names: names.clone(),
            names,
            unsynced_names: Vec::new(),
            locks: HashMap::new(),
            life: 0,
            powered: true,
            chance: Chance::new(seed),
            calls: Calls::default(),
            cut_at: None,
            fault: None,
            faults_hit: 0,
            bytes_max: None,
            quiet: false,
        };
        Self {
            state: Mutex::new(state),
            sync_us: AtomicU64::new(0),
            went_dark: Notify::new(),
            failed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a process sees on the disk.
    pub fn image(&self) -> Image {
        let state = self.state();
        state.names.iter().map(|(name, id)| (name.clone(), state.files[id].seen().to_vec())).collect()
    }

    /// The calls so far.
    pub fn calls(&self) -> Calls {
        self.state().calls
    }

    /// Cuts the power at the n-th call from now; 0 is the next.
    pub fn cut_power_after(&self, calls: u64) {
        let mut state = self.state();
        state.cut_at = Some(state.calls.total() + calls);
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.state().go_dark();
        self.went_dark.notify_one();
    }

    /// Whether the machine is without power.
    pub fn is_dark(&self) -> bool {
        !self.state().powered
    }

    /// Ends when the power is cut.
    pub async fn darkness(&self) {
        while !self.is_dark() {
            self.went_dark.notified().await;
        }
    }

    /// The power stays on after all.
    pub fn keep_power(&self) {
        self.state().cut_at = None;
    }

    /// Looks at what is there, on the thread on which everything else happens: no call of it counts, and none fails.
    pub fn quietly<T>(&self, look: impl FnOnce() -> T) -> T {
        /// Also if whoever looks panics.
        struct Quiet<'a>(&'a Disk);
        impl Drop for Quiet<'_> {
            fn drop(&mut self) {
                self.0.state().quiet = false;
            }
        }
        self.state().quiet = true;
        let _quiet = Quiet(self);
        look()
    }

    /// Starts the machine again, with what survived. The power stays on until it is cut anew.
    pub fn restart(&self) {
        let mut state = self.state();
        state.powered = true;
        state.cut_at = None;
    }

    /// Lets calls fail.
    pub fn inject(&self, fault: Fault) {
        let mut state = self.state();
        state.faults_hit = 0;
        state.fault = Some(fault.from(state.calls));
    }

    /// No more calls fail; tells how many did.
    pub fn heal(&self) -> u64 {
        let mut state = self.state();
        state.fault = None;
        state.faults_hit
    }

    /// How many calls failed since the last fault was injected.
    pub fn faults_hit(&self) -> u64 {
        self.state().faults_hit
    }

    /// Returns when the injected fault has struck for the first time.
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

    /// Lets every sync take so long, in real time.
    pub fn set_sync_us(&self, sync_us: u64) {
        self.sync_us.store(sync_us, Ordering::Relaxed);
    }

    /// Lets the disk be full when its files have so many bytes together.
    pub fn set_bytes_max(&self, bytes_max: Option<u64>) {
        self.state().bytes_max = bytes_max;
    }

    /// The bytes of all files together.
    pub fn bytes_used(&self) -> u64 {
        self.state().bytes_used()
    }

    pub(crate) fn life(&self) -> u64 {
        self.state().life
    }

    /// One call to the disk: fails if the machine is off, if its time has come, or if a fault says so.
    fn call<T>(
        &self,
        life: u64,
        call: Call,
        run: impl FnOnce(&mut State) -> Result<T, Code>,
        fail: impl FnOnce(&mut State),
    ) -> Result<T, Code> {
        let mut state = self.state();
        if !state.powered || state.life != life {
            return Err(call.error_code());
        }
        if state.quiet {
            return run(&mut state);
        }
        let number = state.calls.count(call.class());
        if state.cut_at == Some(number) {
            // The call that the power fails in may have reached the disk or not, like every other that was not synced.
            if state.chance.percent(50) && call.class() != Class::Sync {
                drop(run(&mut state));
            }
            state.go_dark();
            drop(state);
            self.went_dark.notify_one();
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

    pub(crate) fn open(&self, life: u64, name: &str, create: bool) -> Result<FileId, Code> {
        let run = |state: &mut State| {
            if let Some(id) = state.names.get(name) {
                return Ok(*id);
            }
            if !create {
                return Err(ffi::SQLITE_CANTOPEN);
            }
            let id = state.next_file;
            state.next_file += 1;
            state.files.insert(id, Bytes::default());
            state.names.insert(name.to_owned(), id);
            state.unsynced_names.push(NameChange::Created(name.to_owned(), id));
            Ok(id)
        };
        self.call(life, Call::Open, run, |_| {})
    }

    pub(crate) fn delete(&self, life: u64, name: &str, sync: bool) -> Result<(), Code> {
        let run = |state: &mut State| {
            if state.names.remove(name).is_none() {
                return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
            }
            state.unsynced_names.push(NameChange::Deleted(name.to_owned()));
            if sync {
                state.sync_names(usize::MAX);
            }
            Ok(())
        };
        self.call(life, Call::Delete, run, |_| {})
    }

    pub(crate) fn exists(&self, life: u64, name: &str) -> Result<bool, Code> {
        self.call(life, Call::Access, |state| Ok(state.names.contains_key(name)), |_| {})
    }

    pub(crate) fn read(&self, life: u64, id: FileId, offset: u64, buffer: &mut [u8]) -> Result<bool, Code> {
        self.call(life, Call::Read, |state| Ok(state.file(id)?.read(offset, buffer)), |_| {})
    }

    pub(crate) fn write(&self, life: u64, id: FileId, offset: u64, data: &[u8]) -> Result<(), Code> {
        let run = |state: &mut State| {
            let end = offset + data.len() as u64;
            let grows = end.saturating_sub(state.file(id)?.len());
            if state.bytes_max.is_some_and(|max| grows > 0 && state.bytes_used() + grows > max) {
                state.faults_hit += 1;
                return Err(ffi::SQLITE_FULL);
            }
            state.file(id)?.write(offset, data);
            Ok(())
        };
        // A write that fails may have done a part of its work.
        let fail = |state: &mut State| {
            let done = state.chance.index(data.len() + 1);
            let Ok(file) = state.file(id) else { return };
            if let Some(part) = data.get(..done) {
                file.write(offset, part);
            }
        };
        self.call(life, Call::Write, run, fail)
    }

    pub(crate) fn truncate(&self, life: u64, id: FileId, len: u64) -> Result<(), Code> {
        let run = |state: &mut State| {
            state.file(id)?.truncate(len);
            Ok(())
        };
        self.call(life, Call::Truncate, run, |_| {})
    }

    pub(crate) fn sync(&self, life: u64, id: FileId) -> Result<(), Code> {
        let run = |state: &mut State| {
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
        // Of what a failed sync was for, some is on the disk, some waits for the next sync, and some is forgotten: the
        // next sync says that all is well, and it is not there.
        let fail = |state: &mut State| {
            let State { files, chance, .. } = state;
            if let Some(file) = files.get_mut(&id) {
                file.sync_badly(chance);
            }
        };
        let sync_us = self.sync_us.load(Ordering::Relaxed);
        if sync_us > 0 {
            std::thread::sleep(Duration::from_micros(sync_us));
        }
        self.call(life, Call::Sync, run, fail)
    }

    pub(crate) fn size(&self, life: u64, id: FileId) -> Result<u64, Code> {
        self.call(life, Call::Size, |state| Ok(state.file(id)?.len()), |_| {})
    }

    /// Shared memory is no file here; asking for it can fail all the same.
    pub(crate) fn map_shared(&self, life: u64) -> Result<(), Code> {
        self.call(life, Call::Map, |_| Ok(()), |_| {})
    }

    /// Locks are the operating system's and cost no call; they die with the machine.
    pub(crate) fn with_locks<T>(
        &self,
        life: u64,
        id: FileId,
        change: impl FnOnce(&mut FileLocks, &mut ShmLocks) -> Result<T, Code>,
    ) -> Result<T, Code> {
        let mut state = self.state();
        if state.life != life {
            return Err(ffi::SQLITE_IOERR_LOCK);
        }
        let (file, shm) = state.locks.entry(id).or_default();
        change(file, shm)
    }
}

impl State {
    fn file(&mut self, id: FileId) -> Result<&mut Bytes, Code> {
        self.files.get_mut(&id).ok_or(ffi::SQLITE_IOERR)
    }

    fn bytes_used(&self) -> u64 {
        self.names.values().filter_map(|id| self.files.get(id)).map(Bytes::len).sum()
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

    /// The power fails: decides what is left.
    fn go_dark(&mut self) {
        if !self.powered {
            return;
        }
        self.powered = false;
        self.life += 1;
        self.locks.clear();
        let fate = Fate::draw(&mut self.chance);
        let names = match fate {
            Fate::Lost => 0,
            Fate::Kept => self.unsynced_names.len(),
            Fate::Torn { .. } | Fate::Shuffled { .. } => self.chance.index(self.unsynced_names.len() + 1),
        };
        self.sync_names(names);
        self.unsynced_names.clear();
        self.names = self.synced_names.clone();
        let named: Vec<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
        // In the order of their names: what the seed decides must not depend on how a map is laid out.
        for id in named {
            let State { files, chance, .. } = &mut *self;
            if let Some(file) = files.get_mut(&id) {
                file.lose_power(fate, chance);
            }
        }
    }
}
