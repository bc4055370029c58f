//! The memory that the connections to one file share.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::disk::FileId;

/// The shared memory of every file, by boot and file. It is freed when the last connection is closed.
#[derive(Default)]
pub(super) struct Shms(Mutex<HashMap<(u64, FileId), Weak<Shm>>>);

impl Shms {
    pub(super) fn of(&self, boot: u64, file: FileId) -> Arc<Shm> {
        let mut shms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shms.retain(|_, shm| shm.strong_count() > 0);
        shms.get(&(boot, file)).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shm = Arc::new(Shm::default());
            shms.insert((boot, file), Arc::downgrade(&shm));
            shm
        })
    }
}

/// Regions that are not moved as long as a connection has the file open.
#[derive(Default)]
pub(super) struct Shm {
    regions: Mutex<Vec<Box<[UnsafeCell<u64>]>>>,
}

// SAFETY: the list is behind a mutex, and the bytes of the regions are never touched by Rust: only SQLite does, under its
// own locks and barriers, as it does with memory shared between processes.
unsafe impl Send for Shm {}
// SAFETY: as above.
unsafe impl Sync for Shm {}

impl Shm {
    /// The region with this number; null if it does not exist and `make` is false.
    pub(super) fn region(&self, number: usize, bytes: usize, make: bool) -> *mut c_void {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        while make && regions.len() <= number {
            regions.push((0..bytes.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect());
        }
        regions.get(number).map_or(std::ptr::null_mut(), |region| region.as_ptr().cast_mut().cast())
    }
}
