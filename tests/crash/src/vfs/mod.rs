//! A file system for SQLite on a [`Disk`], registered under a name.
//!
//! The only `unsafe` code of the workspace: SQLite calls C functions with C pointers. The logic is in [`crate::disk`],
//! which is safe.
#![allow(unsafe_code, reason = "SQLite's file system is a table of C functions")]

mod file;
mod shm;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::ffi;

use self::file::{FileHandle, OpenFile};
use self::shm::Shms;
use crate::disk::Disk;
use everturn_simulation::SeededRandom;

/// A registered file system. Dropping it unregisters it; every file must be closed before.
pub struct Vfs {
    // SQLite holds a pointer to the table, and the table to the state. Never moved, freed on drop.
    table: *mut ffi::sqlite3_vfs,
    name: CString,
    state: *mut VfsState,
}

// SAFETY: the pointers are owned, and what is behind them is only reached through mutexes and SQLite's own.
unsafe impl Send for Vfs {}
// SAFETY: as above; `&Vfs` reads nothing but the name and the disk.
unsafe impl Sync for Vfs {}

/// The state behind the functions of the table.
struct VfsState {
    disk: Arc<Disk>,
    randomness: Mutex<SeededRandom>,
    shms: Arc<Shms>,
    open_files: AtomicU64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Vfs {
    /// Registers a file system on this disk under a unique name.
    pub fn register(disk: Arc<Disk>, seed: u64) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("everturn-crash-{number}")).unwrap();
        let state = Box::into_raw(Box::new(VfsState {
            disk,
            randomness: Mutex::new(SeededRandom::new(seed)),
            shms: Arc::default(),
            open_files: AtomicU64::new(0),
        }));
        let table = Box::into_raw(Box::new(ffi::sqlite3_vfs {
            iVersion: 1,
            szOsFile: c_int::try_from(size_of::<OpenFile>()).unwrap(),
            mxPathname: 512,
            pNext: std::ptr::null_mut(),
            zName: name.as_ptr(),
            pAppData: state.cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: None,
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: may be called at any time; a file system can be registered only after it.
        let ready = unsafe { ffi::sqlite3_initialize() };
        assert_eq!(ready, ffi::SQLITE_OK);
        // SAFETY: the table lives until it is unregistered in `drop`.
        let registered = unsafe { ffi::sqlite3_vfs_register(table, 0) };
        assert_eq!(registered, ffi::SQLITE_OK);
        Self { table, name, state }
    }

    /// The name under which it is registered.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap()
    }

    /// How many files are open.
    pub fn open_files(&self) -> u64 {
        // SAFETY: the state lives as long as `self`.
        unsafe { &*self.state }.open_files.load(Ordering::SeqCst)
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: it was registered in `register`, and only there.
        unsafe { ffi::sqlite3_vfs_unregister(self.table) };
        if self.open_files() > 0 {
            // A connection still has a pointer to the state: leaking it is better than freeing it.
            return;
        }
        // SAFETY: both come from `Box::into_raw`; no file is open, and no connection can open one by this name.
        unsafe {
            drop(Box::from_raw(self.table));
            drop(Box::from_raw(self.state));
        }
    }
}

/// # Safety
/// `vfs` must be a table of ours that is registered.
unsafe fn state<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a VfsState {
    // SAFETY: `pAppData` was set in `register` and lives as long as the table.
    unsafe { &*(*vfs).pAppData.cast::<VfsState>() }
}

/// # Safety
/// `name` must be a C string.
unsafe fn text<'a>(name: *const c_char) -> std::borrow::Cow<'a, str> {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }.to_string_lossy()
}

impl VfsState {
    fn open(&self, name: Option<&str>, flags: c_int) -> Result<FileHandle, c_int> {
        let boot = self.disk.boot();
        let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let (disk, file) = match name {
            Some(name) => (Arc::clone(&self.disk), self.disk.open(boot, name, create)?),
            // A temporary file of one connection: it is gone after a power cut.
            None => {
                let scratch = Arc::new(Disk::new(0));
                let file = scratch.open(0, "scratch", true)?;
                (scratch, file)
            }
        };
        let boot = if name.is_some() { boot } else { 0 };
        let delete =
            (flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0).then(|| name.unwrap_or_default().to_owned());
        Ok(FileHandle::new(disk, boot, file, Arc::clone(&self.shms), delete))
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands us our own table, a C string or null, and `szOsFile` bytes for the file.
    unsafe {
        let state = state(vfs);
        let file = file.cast::<OpenFile>();
        let name = (!name.is_null()).then(|| text(name));
        match state.open(name.as_deref(), flags) {
            Ok(mut handle) => {
                state.open_files.fetch_add(1, Ordering::SeqCst);
                handle.counted_by(&state.open_files);
                file.write(OpenFile::new(handle));
                if !out_flags.is_null() {
                    *out_flags = flags;
                }
                ffi::SQLITE_OK
            }
            Err(code) => {
                file.write(OpenFile::none());
                code
            }
        }
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite hands us our own table and a C string.
    let (state, name) = unsafe { (state(vfs), text(name)) };
    code(state.disk.delete(state.disk.boot(), &name, sync != 0))
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands us our own table, a C string and a place for the answer.
    unsafe {
        let state = state(vfs);
        match state.disk.exists(state.disk.boot(), &text(name)) {
            Ok(exists) => {
                *out = c_int::from(exists);
                ffi::SQLITE_OK
            }
            Err(code) => code,
        }
    }
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite hands us a C string and `size` bytes to copy it to.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if usize::try_from(size).unwrap_or(0) < bytes.len() {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, size: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite hands us our own table and `size` bytes to fill.
    let (state, bytes) = unsafe {
        let size = usize::try_from(size).unwrap_or(0);
        (state(vfs), std::slice::from_raw_parts_mut(out.cast::<u8>(), size))
    };
    let mut random = state.randomness.lock().unwrap_or_else(PoisonError::into_inner);
    bytes.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
    size
}

/// Does not sleep: in simulated time no other connection works meanwhile. On threads, another thread may go on.
unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::yield_now();
    microseconds
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite hands us a place for the answer. No statement of ours asks SQLite for the time.
    unsafe { *out = 2_460_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_vfs: *mut ffi::sqlite3_vfs, _size: c_int, _out: *mut c_char) -> c_int {
    0
}

fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// A C pointer to memory of SQLite.
type CPointer = *mut c_void;
