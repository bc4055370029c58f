//! The seeded random generator of the simulation and of the crash proofs.

/// A splitmix64 sequence. The same seed gives the same sequence on any machine and in any release: the seeds of old
/// failures are kept as tests, so no method may change what it draws.
///
/// ```
/// use everturn_simulation::SeededRandom;
///
/// assert_eq!(SeededRandom::new(7).below(1_000), SeededRandom::new(7).below(1_000));
/// ```
#[derive(Debug, Clone)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A separate sequence for one part of a simulation: what the other parts draw does not change it.
    #[must_use]
    pub fn of(seed: u64, part: &str) -> Self {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for byte in part.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        let mut random = Self::new(seed ^ hash);
        random.next_u64();
        random
    }

    /// A separate sequence for one part of a case; it depends on the current state of this one.
    #[must_use]
    pub fn branch(&self, label: u64) -> Self {
        Self::new(Self::new(self.state ^ label.wrapping_mul(0xD6E8_FEB8_6659_FD93)).next_u64())
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, by multiplication; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A number below `end`, by division; 0 if `end` is 0. The crash proofs draw this way, and their kept seeds depend
    /// on it.
    pub fn modulo(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// An index into something of this length, by [`modulo`](Self::modulo); 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.modulo(len as u64) as usize
    }

    /// True with this probability, in percent, by [`modulo`](Self::modulo).
    pub fn percent(&mut self, percent: u64) -> bool {
        self.modulo(100) < percent
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first).saturating_add(1))
    }

    /// True with probability 1 / `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the choices.
    pub fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        const { assert!(N > 0, "there is something to pick from") };
        let index = self.below(N as u64) as usize;
        #[expect(clippy::indexing_slicing, reason = "drawn below the length, which is not zero")]
        choices[index]
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRandom;

    /// The seeds of old failures mean what they meant only as long as this passes.
    #[test]
    fn sequences_never_change() {
        let mut random = SeededRandom::new(310);
        assert_eq!(random.next_u64(), 2_680_090_638_196_265_461);
        assert_eq!((random.below(1_000), random.modulo(1_000)), (24, 145));
        assert_eq!((random.index(7), random.percent(50), random.between(3, 9)), (3, true, 8));
        assert_eq!(SeededRandom::of(310, "nodes").next_u64(), 17_401_315_127_815_118_423);
        assert_eq!(random.branch(6).next_u64(), 16_118_845_516_111_145_524);
    }
}
