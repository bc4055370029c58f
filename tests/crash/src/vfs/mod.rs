//! The file system that SQLite goes through: registered under a name, with a [`Disk`] behind it.
//!
//! The one place of the workspace with `unsafe`: SQLite calls C functions with C pointers. Everything that decides
//! anything is in [`crate::disk`], which is safe.
#![allow(unsafe_code, reason = "SQLite's file system is a table of C functions")]

mod file;
mod shm;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::ffi;

use self::file::{Handle, OpenFile};
use self::shm::Shms;
use crate::chance::Chance;
use crate::disk::Disk;

/// A registered file system. Dropping it takes it back; every file must be closed by then.
pub struct Vfs {
    // The table SQLite holds a pointer to, and everything that table points to. Never moved, freed on drop.
    table: *mut ffi::sqlite3_vfs,
    name: CString,
    world: *mut World,
}

// SAFETY: the pointers are owned, and what is behind them is only reached through mutexes and SQLite's own.
unsafe impl Send for Vfs {}
// SAFETY: as above; `&Vfs` reads nothing but the name and the disk.
unsafe impl Sync for Vfs {}

/// What the functions of the table find behind it.
struct World {
    disk: Arc<Disk>,
    randomness: Mutex<Chance>,
    shms: Arc<Shms>,
    open_files: AtomicU64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Vfs {
    /// Registers a file system with that disk, under a name of its own.
    pub fn register(disk: Arc<Disk>, seed: u64) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("everturn-crash-{number}")).unwrap();
        let world = Box::into_raw(Box::new(World {
            disk,
            randomness: Mutex::new(Chance::new(seed)),
            shms: Arc::default(),
            open_files: AtomicU64::new(0),
        }));
        let table = Box::into_raw(Box::new(ffi::sqlite3_vfs {
            iVersion: 1,
            szOsFile: c_int::try_from(size_of::<OpenFile>()).unwrap(),
            mxPathname: 512,
            pNext: std::ptr::null_mut(),
            zName: name.as_ptr(),
            pAppData: world.cast(),
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
        // SAFETY: SQLite may be registered with before it was initialised only after this call.
        let ready = unsafe { ffi::sqlite3_initialize() };
        assert_eq!(ready, ffi::SQLITE_OK);
        // SAFETY: the table lives until it is unregistered in `drop`.
        let registered = unsafe { ffi::sqlite3_vfs_register(table, 0) };
        assert_eq!(registered, ffi::SQLITE_OK);
        Self { table, name, world }
    }

    /// What it is registered as.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap()
    }

    /// How many files are open.
    pub fn open_files(&self) -> u64 {
        // SAFETY: the world lives as long as `self`.
        unsafe { &*self.world }.open_files.load(Ordering::SeqCst)
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: it was registered in `register`, and only there.
        unsafe { ffi::sqlite3_vfs_unregister(self.table) };
        if self.open_files() > 0 {
            // Somebody still has a pointer to all this: better lost than freed.
            return;
        }
        // SAFETY: both come from `Box::into_raw`; no file is open and nobody finds the name any more.
        unsafe {
            drop(Box::from_raw(self.table));
            drop(Box::from_raw(self.world));
        }
    }
}

/// # Safety
/// `vfs` must be a table of ours that is registered.
unsafe fn world<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a World {
    // SAFETY: `pAppData` was set in `register` and lives as long as the table.
    unsafe { &*(*vfs).pAppData.cast::<World>() }
}

/// # Safety
/// `name` must be a C string.
unsafe fn text<'a>(name: *const c_char) -> std::borrow::Cow<'a, str> {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }.to_string_lossy()
}

impl World {
    fn open(&self, name: Option<&str>, flags: c_int) -> Result<Handle, c_int> {
        let life = self.disk.life();
        let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let (disk, file) = match name {
            Some(name) => (Arc::clone(&self.disk), self.disk.open(life, name, create)?),
            // A scratch file of one connection: no power cut ever shows what was in it.
            None => {
                let scratch = Arc::new(Disk::new(0));
                let file = scratch.open(0, "scratch", true)?;
                (scratch, file)
            }
        };
        let life = if name.is_some() { life } else { 0 };
        let delete =
            (flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0).then(|| name.unwrap_or_default().to_owned());
        Ok(Handle::new(disk, life, file, Arc::clone(&self.shms), delete))
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
        let world = world(vfs);
        let file = file.cast::<OpenFile>();
        let name = (!name.is_null()).then(|| text(name));
        match world.open(name.as_deref(), flags) {
            Ok(mut handle) => {
                world.open_files.fetch_add(1, Ordering::SeqCst);
                handle.counted_by(&world.open_files);
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
    let (world, name) = unsafe { (world(vfs), text(name)) };
    code(world.disk.delete(world.disk.life(), &name, sync != 0))
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands us our own table, a C string and a place for the answer.
    unsafe {
        let world = world(vfs);
        match world.disk.exists(world.disk.life(), &text(name)) {
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
    let (world, bytes) = unsafe {
        let size = usize::try_from(size).unwrap_or(0);
        (world(vfs), std::slice::from_raw_parts_mut(out.cast::<u8>(), size))
    };
    let mut chance = world.randomness.lock().unwrap_or_else(PoisonError::into_inner);
    bytes.iter_mut().for_each(|byte| *byte = chance.next_u64() as u8);
    size
}

/// Nobody else is at work while a connection of ours sleeps on its own thread; one that waits for another thread lets it
/// go on.
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

/// A C pointer to nothing of ours; used by the functions of a file too.
type Pointer = *mut c_void;
