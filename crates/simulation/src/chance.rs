//! Every choice of a simulation, drawn from one seed.

/// A stream of choices. The same seed gives the same stream, on any machine and in any release.
///
/// ```
/// use everturn_simulation::Chance;
///
/// assert_eq!(Chance::new(7).below(1_000), Chance::new(7).below(1_000));
/// ```
#[derive(Debug, Clone)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream of its own for one part of the simulation: what others draw does not change it.
    #[must_use]
    pub fn of(seed: u64, part: &str) -> Self {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for byte in part.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        let mut chance = Self::new(seed ^ hash);
        chance.next_u64();
        chance
    }

    /// The next number: splitmix64.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first).saturating_add(1))
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these; they must not be none.
    pub fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        const { assert!(N > 0, "there is something to pick from") };
        let index = self.below(N as u64) as usize;
        #[expect(clippy::indexing_slicing, reason = "drawn below the length, which is not zero")]
        choices[index]
    }
}
