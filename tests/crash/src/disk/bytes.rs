//! The bytes of one file: as a process reads them, and as they are on the disk.

use everturn_simulation::SeededRandom;

/// One file.
#[derive(Debug, Default)]
pub(super) struct FileBytes {
    /// What a process reads.
    current: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<FileChange>,
}

#[derive(Debug)]
enum FileChange {
    Write { offset: usize, data: Vec<u8> },
    Truncate { len: usize },
}

/// What a power loss does to writes that were not synced.
#[derive(Debug, Clone, Copy)]
pub(super) enum PowerLoss {
    /// All of them are lost.
    Lost,
    /// All of them are kept.
    Kept,
    /// The first ones are kept, the last of these up to some sector.
    Torn { sector: usize },
    /// Some sectors of some of them are kept.
    Shuffled { sector: usize },
}

impl PowerLoss {
    pub(super) fn draw(random: &mut SeededRandom) -> Self {
        let sector = if random.percent(50) { 512 } else { 4096 };
        match random.modulo(10) {
            0..3 => Self::Lost,
            3 => Self::Kept,
            4..7 => Self::Torn { sector },
            _ => Self::Shuffled { sector },
        }
    }
}

impl FileBytes {
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        Self { current: bytes.clone(), synced: bytes, unsynced: Vec::new() }
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn len(&self) -> u64 {
        self.current.len() as u64
    }

    /// Fills the buffer, the rest with zeros. Returns true if the file had enough bytes.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let rest_of_file = self.current.get(position(offset)..).unwrap_or_default();
        let count = rest_of_file.len().min(buffer.len());
        let (filled, rest) = buffer.split_at_mut(count);
        filled.copy_from_slice(&rest_of_file[..count]);
        rest.fill(0);
        rest.is_empty()
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        self.change(FileChange::Write { offset: position(offset), data: data.to_vec() });
    }

    pub(super) fn truncate(&mut self, len: u64) {
        self.change(FileChange::Truncate { len: position(len) });
    }

    fn change(&mut self, change: FileChange) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// A sync that fails: some writes are on the disk, some wait for the next sync, and some are lost.
    pub(super) fn sync_partly(&mut self, random: &mut SeededRandom) {
        for change in std::mem::take(&mut self.unsynced) {
            match random.modulo(3) {
                0 => self.unsynced.push(change),
                1 => change.apply(&mut self.synced),
                _ => {}
            }
        }
    }

    pub(super) fn lose_power(&mut self, power_loss: PowerLoss, random: &mut SeededRandom) {
        let unsynced = std::mem::take(&mut self.unsynced);
        match power_loss {
            PowerLoss::Lost => {}
            PowerLoss::Kept => unsynced.iter().for_each(|change| change.apply(&mut self.synced)),
            PowerLoss::Torn { sector } => {
                let whole = random.index(unsynced.len() + 1);
                for (index, change) in unsynced.iter().enumerate().take(whole + 1) {
                    if index < whole {
                        change.apply(&mut self.synced);
                    } else {
                        let mut left = random.index(change.sectors(sector) + 1);
                        change.apply_sectors(&mut self.synced, sector, || {
                            let kept = left > 0;
                            left = left.saturating_sub(1);
                            kept
                        });
                    }
                }
            }
            PowerLoss::Shuffled { sector } => {
                for change in &unsynced {
                    change.apply_sectors(&mut self.synced, sector, || random.percent(50));
                }
            }
        }
        self.current = self.synced.clone();
    }
}

impl FileChange {
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
