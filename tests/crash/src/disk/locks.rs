//! The locks of a file, which an operating system would keep.

use rusqlite::ffi;

use super::SqliteCode;

/// SQLite's file lock with its five levels, for all connections to a file.
#[derive(Debug, Default)]
pub struct FileLocks {
    shared: u32,
    reserved: bool,
    pending: bool,
    exclusive: bool,
}

impl FileLocks {
    /// Whether a connection has a reserved lock or a stronger one.
    pub fn is_reserved(&self) -> bool {
        self.reserved || self.pending || self.exclusive
    }

    /// Raises the lock of a connection that has `level`; on failure it may have become a pending lock.
    pub fn raise(&mut self, level: &mut SqliteCode, wanted: SqliteCode) -> Result<(), SqliteCode> {
        if *level == ffi::SQLITE_LOCK_NONE && wanted >= ffi::SQLITE_LOCK_SHARED {
            if self.pending || self.exclusive {
                return Err(ffi::SQLITE_BUSY);
            }
            self.shared += 1;
            *level = ffi::SQLITE_LOCK_SHARED;
        }
        if *level == ffi::SQLITE_LOCK_SHARED && wanted >= ffi::SQLITE_LOCK_RESERVED {
            if self.is_reserved() {
                return Err(ffi::SQLITE_BUSY);
            }
            self.reserved = true;
            *level = ffi::SQLITE_LOCK_RESERVED;
        }
        if wanted >= ffi::SQLITE_LOCK_EXCLUSIVE && *level < ffi::SQLITE_LOCK_EXCLUSIVE {
            self.pending = true;
            *level = ffi::SQLITE_LOCK_PENDING;
            if self.shared > 1 {
                return Err(ffi::SQLITE_BUSY);
            }
            self.exclusive = true;
            *level = ffi::SQLITE_LOCK_EXCLUSIVE;
        }
        Ok(())
    }

    /// Lowers the lock of a connection that has `level`.
    pub fn lower(&mut self, level: &mut SqliteCode, wanted: SqliteCode) {
        if *level > ffi::SQLITE_LOCK_SHARED && wanted <= ffi::SQLITE_LOCK_SHARED {
            self.reserved = false;
            self.pending = false;
            self.exclusive = false;
            *level = ffi::SQLITE_LOCK_SHARED;
        }
        if *level == ffi::SQLITE_LOCK_SHARED && wanted == ffi::SQLITE_LOCK_NONE {
            self.shared -= 1;
            *level = ffi::SQLITE_LOCK_NONE;
        }
    }
}

/// The locks of the shared memory, for all connections to a file.
#[derive(Debug, Default)]
pub struct ShmLocks {
    slots: [ShmSlot; ffi::SQLITE_SHM_NLOCK as usize],
}

#[derive(Debug, Default, Clone, Copy)]
struct ShmSlot {
    shared: u32,
    exclusive: bool,
}

/// The shared-memory locks of one connection, one bit each.
#[derive(Debug, Default, Clone, Copy)]
pub struct ShmHeld {
    shared: u8,
    exclusive: u8,
}

impl ShmLocks {
    /// Takes or frees the locks `first..first + count`: all of them, or none on failure.
    pub fn change(
        &mut self,
        held: &mut ShmHeld,
        first: usize,
        count: usize,
        flags: SqliteCode,
    ) -> Result<(), SqliteCode> {
        let slots = first..first + count;
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            slots.for_each(|index| self.free(held, index));
            return Ok(());
        }
        let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        for index in slots.clone() {
            let (slot, mine) = (self.slots[index], held.shared & (1 << index) != 0);
            let taken = slot.exclusive && held.exclusive & (1 << index) == 0;
            if taken || (exclusive && slot.shared > u32::from(mine)) {
                return Err(ffi::SQLITE_BUSY);
            }
        }
        for index in slots {
            let bit = 1 << index;
            if exclusive {
                self.slots[index].exclusive = true;
                held.exclusive |= bit;
            } else if held.shared & bit == 0 {
                self.slots[index].shared += 1;
                held.shared |= bit;
            }
        }
        Ok(())
    }

    /// Frees all locks of a connection.
    pub fn free_all(&mut self, held: &mut ShmHeld) {
        (0..self.slots.len()).for_each(|index| self.free(held, index));
    }

    fn free(&mut self, held: &mut ShmHeld, index: usize) {
        let bit = 1 << index;
        if held.exclusive & bit != 0 {
            self.slots[index].exclusive = false;
            held.exclusive &= !bit;
        }
        if held.shared & bit != 0 {
            self.slots[index].shared -= 1;
            held.shared &= !bit;
        }
    }
}
