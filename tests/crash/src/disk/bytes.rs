//! The bytes of one file: as they are read, and as they are on the disk.

use crate::chance::Chance;

/// One file.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    seen: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    Truncate { len: usize },
}

/// What becomes of everything that was not synced.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    /// It is gone.
    Lost,
    /// All of it is there.
    Kept,
    /// The first changes are there, the last of them up to some sector.
    Torn { sector: usize },
    /// Some sectors of some changes are there.
    Shuffled { sector: usize },
}

impl Fate {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let sector = if chance.percent(50) { 512 } else { 4096 };
        match chance.below(10) {
            0..3 => Self::Lost,
            3 => Self::Kept,
            4..7 => Self::Torn { sector },
            _ => Self::Shuffled { sector },
        }
    }
}

impl Bytes {
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        Self { seen: bytes.clone(), synced: bytes, unsynced: Vec::new() }
    }

    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Fills the buffer; the rest is zeros. Tells whether there was enough to fill it.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let there = self.seen.get(position(offset)..).unwrap_or_default();
        let count = there.len().min(buffer.len());
        let (filled, rest) = buffer.split_at_mut(count);
        filled.copy_from_slice(&there[..count]);
        rest.fill(0);
        rest.is_empty()
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        self.change(Change::Write { offset: position(offset), data: data.to_vec() });
    }

    pub(super) fn truncate(&mut self, len: u64) {
        self.change(Change::Truncate { len: position(len) });
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    pub(super) fn sync_badly(&mut self, chance: &mut Chance) {
        for change in std::mem::take(&mut self.unsynced) {
            match chance.below(3) {
                0 => self.unsynced.push(change),
                1 => change.apply(&mut self.synced),
                _ => {}
            }
        }
    }

    pub(super) fn lose_power(&mut self, fate: Fate, chance: &mut Chance) {
        let unsynced = std::mem::take(&mut self.unsynced);
        match fate {
            Fate::Lost => {}
            Fate::Kept => unsynced.iter().for_each(|change| change.apply(&mut self.synced)),
            Fate::Torn { sector } => {
                let whole = chance.index(unsynced.len() + 1);
                for (index, change) in unsynced.iter().enumerate().take(whole + 1) {
                    if index < whole {
                        change.apply(&mut self.synced);
                    } else {
                        let mut left = chance.index(change.sectors(sector) + 1);
                        change.apply_sectors(&mut self.synced, sector, || {
                            let kept = left > 0;
                            left = left.saturating_sub(1);
                            kept
                        });
                    }
                }
            }
            Fate::Shuffled { sector } => {
                for change in &unsynced {
                    change.apply_sectors(&mut self.synced, sector, || chance.percent(50));
                }
            }
        }
        self.seen = self.synced.clone();
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
            Self::Truncate { len } => bytes.resize(*len, 0),
        }
    }

    /// How many sectors it touches.
    fn sectors(&self, sector: usize) -> usize {
        match self {
            Self::Write { offset, data } => (offset % sector + data.len()).div_ceil(sector),
            Self::Truncate { .. } => 1,
        }
    }

    /// Applies the sectors that are kept.
    fn apply_sectors(&self, bytes: &mut Vec<u8>, sector: usize, mut kept: impl FnMut() -> bool) {
        let Self::Write { offset, data } = self else {
            if kept() {
                self.apply(bytes);
            }
            return;
        };
        let (mut offset, mut rest) = (*offset, data.as_slice());
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(sector - offset % sector));
            if kept() {
                Self::Write { offset, data: part.to_vec() }.apply(bytes);
            }
            offset += part.len();
            rest = after;
        }
    }
}

fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
