//! An open file: the functions that SQLite calls.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rusqlite::ffi;

use super::shm::{Shm, Shms};
use super::{CPointer, code};
use crate::disk::{Disk, FileId, ShmHeld};

/// SQLite's memory for an open file: the table of functions, and our handle.
#[repr(C)]
pub(super) struct OpenFile {
    base: ffi::sqlite3_file,
    handle: *mut FileHandle,
}

impl OpenFile {
    pub(super) fn new(handle: FileHandle) -> Self {
        Self { base: ffi::sqlite3_file { pMethods: &METHODS }, handle: Box::into_raw(Box::new(handle)) }
    }

    /// A file that could not be opened; SQLite does not close it.
    pub(super) fn none() -> Self {
        Self { base: ffi::sqlite3_file { pMethods: std::ptr::null() }, handle: std::ptr::null_mut() }
    }
}

/// An open file of a connection.
pub(super) struct FileHandle {
    disk: Arc<Disk>,
    boot: u64,
    file: FileId,
    level: c_int,
    shms: Arc<Shms>,
    shm: Option<Arc<Shm>>,
    shm_held: ShmHeld,
    delete_on_close: Option<String>,
    counter: Option<NonNull<AtomicU64>>,
}

impl FileHandle {
    pub(super) fn new(
        disk: Arc<Disk>,
        boot: u64,
        file: FileId,
        shms: Arc<Shms>,
        delete_on_close: Option<String>,
    ) -> Self {
        Self {
            disk,
            boot,
            file,
            level: ffi::SQLITE_LOCK_NONE,
            shms,
            shm: None,
            shm_held: ShmHeld::default(),
            delete_on_close,
            counter: None,
        }
    }

    /// Sets the counter of open files, which lives as long as any file is open.
    pub(super) fn counted_by(&mut self, counter: &AtomicU64) {
        self.counter = Some(NonNull::from(counter));
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// `file` must be one of ours that is open, used by one thread at a time, as SQLite does.
unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a mut FileHandle {
    // SAFETY: `handle` was set when the file was opened and is freed when it is closed.
    unsafe { &mut *(*file.cast::<OpenFile>()).handle }
}

fn offset(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

fn length(size: c_int) -> usize {
    usize::try_from(size).unwrap_or(0)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file is ours and open; from here on it is neither.
    let mut handle = unsafe { Box::from_raw((*file.cast::<OpenFile>()).handle) };
    let FileHandle { disk, boot, file, level, shm_held, .. } = &mut *handle;
    let freed = disk.with_locks(*boot, *file, |locks, shm| {
        locks.lower(level, ffi::SQLITE_LOCK_NONE);
        shm.free_all(shm_held);
        Ok(())
    });
    // Without power there are no locks to free and no file to delete.
    let closed = match &handle.delete_on_close {
        Some(name) => freed.and_then(|()| handle.disk.delete(handle.boot, name, false)),
        None => freed,
    };
    if let Some(counter) = handle.counter {
        // SAFETY: the counter outlives every open file, see `Vfs::drop`.
        unsafe { counter.as_ref() }.fetch_sub(1, Ordering::SeqCst);
    }
    code(closed)
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, out: CPointer, size: c_int, at: i64) -> c_int {
    // SAFETY: SQLite hands us an open file of ours and `size` bytes to fill.
    let (handle, buffer) =
        unsafe { (handle(file), std::slice::from_raw_parts_mut(out.cast::<u8>(), length(size))) };
    match handle.disk.read(handle.boot, handle.file, offset(at), buffer) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(code) => code,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const std::ffi::c_void,
    size: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite hands us an open file of ours and `size` bytes to write.
    let (handle, data) =
        unsafe { (handle(file), std::slice::from_raw_parts(data.cast::<u8>(), length(size))) };
    code(handle.disk.write(handle.boot, handle.file, offset(at), data))
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite hands us an open file of ours.
    let handle = unsafe { handle(file) };
    code(handle.disk.truncate(handle.boot, handle.file, offset(size)))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite hands us an open file of ours.
    let handle = unsafe { handle(file) };
    code(handle.disk.sync(handle.boot, handle.file))
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite hands us an open file of ours and a place for the answer.
    unsafe {
        let handle = handle(file);
        match handle.disk.size(handle.boot, handle.file) {
            Ok(size) => {
                *out = i64::try_from(size).unwrap_or(i64::MAX);
                ffi::SQLITE_OK
            }
            Err(code) => code,
        }
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: SQLite hands us an open file of ours.
    let FileHandle { disk, boot, file, level, .. } = unsafe { handle(file) };
    code(disk.with_locks(*boot, *file, |locks, _| locks.raise(level, wanted)))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: SQLite hands us an open file of ours.
    let FileHandle { disk, boot, file, level, .. } = unsafe { handle(file) };
    code(disk.with_locks(*boot, *file, |locks, _| {
        locks.lower(level, wanted);
        Ok(())
    }))
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite hands us an open file of ours and a place for the answer.
    unsafe {
        let handle = handle(file);
        match handle.disk.with_locks(handle.boot, handle.file, |locks, _| Ok(locks.is_reserved())) {
            Ok(reserved) => {
                *out = c_int::from(reserved);
                ffi::SQLITE_OK
            }
            Err(code) => code,
        }
    }
}

unsafe extern "C" fn file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _arg: CPointer) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// As the operating system's: a torn write harms nothing outside its own range.
unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    number: c_int,
    size: c_int,
    make: c_int,
    out: *mut CPointer,
) -> c_int {
    // SAFETY: SQLite hands us an open file of ours and a place for the pointer.
    unsafe {
        let handle = handle(file);
        *out = std::ptr::null_mut();
        if let Err(code) = handle.disk.map_shared(handle.boot) {
            return code;
        }
        let FileHandle { shms, shm, boot, file, .. } = handle;
        let shm = shm.get_or_insert_with(|| shms.of(*boot, *file));
        *out = shm.region(length(number), length(size), make != 0);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: SQLite hands us an open file of ours.
    let FileHandle { disk, boot, file, shm_held, .. } = unsafe { handle(file) };
    code(disk.with_locks(*boot, *file, |_, shm| shm.change(shm_held, length(first), length(count), flags)))
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: SQLite hands us an open file of ours.
    let FileHandle { disk, boot, file, shm_held, shm, .. } = unsafe { handle(file) };
    *shm = None;
    code(disk.with_locks(*boot, *file, |_, locks| {
        locks.free_all(shm_held);
        Ok(())
    }))
}
