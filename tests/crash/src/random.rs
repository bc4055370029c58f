//! The random generator of a case.

use everturn_simulation::SeededRandom;

/// The generator of the case with this seed.
pub fn seeded(seed: u64) -> SeededRandom {
    SeededRandom::new(seed.wrapping_mul(0xA076_1D64_78BD_642F))
}
